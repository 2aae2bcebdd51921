"""One run of many streams: in dependency order, independent ones side by side.

The thread that iterates over the results only ever waits on a queue, so that an interrupt reaches it at
once; the streams run in worker threads.
"""

import os
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from threading import Event
from typing import TYPE_CHECKING

from pipelines.streaming import delta_log
from pipelines.streaming.errors import CanceledError, TidemillError
from pipelines.streaming.records import lease, ledger
from pipelines.streaming.records.manifest import read_manifest, write_manifest
from pipelines.streaming.run.failure import translated
from pipelines.streaming.run.plan import Plan, plan
from pipelines.streaming.run.results import BatchRecord, StreamResult
from pipelines.streaming.run.stream_run import Engine, StreamRun, watermark_of
from pipelines.streaming.selection import ordered

if TYPE_CHECKING:
    from pipelines.streaming.names import StreamName
    from pipelines.streaming.stream import Stream
    from pipelines.streaming.target import Target

MOST_SIDE_BY_SIDE = 4
ATTEMPTS = 3
POLL_SECONDS = 0.2
# A canceled query gets 3 s to stop (run/progress.py); the rest of a run's 5 s is for its lease and for Dagster.
CANCEL_SECONDS = 3.5


class PipelineRun:
    """One run of several streams.

    Args:
        streams: What to run, in any order.
        target: The target.
        engine: Where Spark engine come from; not touched when there is nothing to do.
        run_id: The run's id, in the ledger and in leases.
        max_parallel: How many streams run side by side; None: one a core, at most 4.

    Attributes:
        finished: The results so far, those of canceled streams too.
    """

    def __init__(
        self,
        streams: "Sequence[Stream]",
        *,
        target: "Target",
        engine: Engine,
        run_id: str,
        max_parallel: int | None = None,
    ) -> None:
        self.finished: list[StreamResult] = []
        self._streams = ordered(streams)
        self._places = target
        self._engine = engine
        self._run_id = run_id
        self._workers = max_parallel or min(MOST_SIDE_BY_SIDE, os.cpu_count() or 1)
        self._canceled = Event()
        self._leases: dict[StreamName, lease.Lease] = {}
        self._plans: dict[StreamName, Plan] = {}

    def iter_results(self) -> Generator[StreamResult, None, None]:
        """Runs the streams, and gives each one's result as it ends.

        An interrupt in the thread that iterates cancels all queries, waits for them a few seconds, and is
        raised again; `finished` then has what became of every stream that was running.
        """
        open_streams = {stream.name: stream for stream in self._streams}
        ended: Queue[StreamResult] = Queue()
        running: set[StreamName] = set()
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="stream")
        try:
            for result in self._decided():
                open_streams.pop(result.stream)
                self.finished.append(result)
                yield result
            while open_streams:
                for name, stream in list(open_streams.items()):
                    if name not in running and not self._waits_for(stream, open_streams):
                        running.add(name)
                        pool.submit(self._put, ended, stream)
                try:
                    result = ended.get(timeout=POLL_SECONDS)
                except Empty:
                    continue
                open_streams.pop(result.stream)
                running.discard(result.stream)
                self.finished.append(result)
                yield result
        except BaseException:
            self._cancel(ended, len(running))
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for held in self._leases.values():
                held.release()

    def _cancel(self, ended: "Queue[StreamResult]", running: int) -> None:
        """Stops what is running and waits for it a few seconds."""
        self._canceled.set()
        self._engine.abort_start()
        deadline = time.monotonic() + CANCEL_SECONDS
        for _ in range(running):
            try:
                self.finished.append(ended.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                return

    def _decided(self) -> list[StreamResult]:
        """Results of the streams that need no run: idle ones, and those that cannot run.

        Leases of all others are taken here, before a JVM starts: a second run is refused within a second.
        """
        decided = []
        wanted: set[StreamName] = set()
        for stream in self._streams:
            try:
                self._plans[stream.name] = found = plan(stream, self._places)
                wakes = {name for name, streaming in stream.upstreams.items() if streaming}
                if found.idle and not wakes & wanted:
                    decided.append(self._idle(found))
                    continue
                self._leases[stream.name] = lease.take(
                    self._places.lake.control(stream.name) / "lease", stream.name, self._run_id
                )
                wanted.add(stream.name)
            except Exception as error:  # noqa: BLE001 - whatever it is becomes the stream's result
                decided.append(self._failed(stream, translated(error, stream.name), 0.0))
        return decided

    def _put(self, ended: "Queue[StreamResult]", stream: "Stream") -> None:
        ended.put(self._run(stream))

    def _waits_for(self, stream: "Stream", open_streams: "dict[StreamName, Stream]") -> bool:
        return any(name in open_streams for name in stream.upstreams)

    def _run(self, stream: "Stream") -> StreamResult:
        started = time.monotonic()
        broken = [
            result.stream
            for result in self.finished
            if result.stream in stream.upstreams and result.outcome in ("failed", "skipped", "canceled")
        ]
        held = self._leases[stream.name]
        try:
            if broken:
                return StreamResult(
                    stream=stream.name, outcome="skipped", reason=f"{broken[0]} did not succeed"
                )
            return self._attempts(stream, held)
        except CanceledError as error:
            return StreamResult(
                stream=stream.name,
                outcome="canceled",
                batches=self._batches(stream),
                seconds=round(time.monotonic() - started, 3),
                error=translated(error, stream.name),
            )
        except Exception as error:  # noqa: BLE001 - whatever it is becomes the stream's result
            return self._failed(stream, translated(error, stream.name), time.monotonic() - started)
        finally:
            held.release()

    def _attempts(self, stream: "Stream", held: lease.Lease) -> StreamResult:
        """Runs a stream; what is transient is tried again."""
        for attempt in range(1, ATTEMPTS + 1):
            if self._canceled.is_set():
                raise CanceledError
            found = plan(stream, self._places)
            if found.idle:
                return self._idle(found)
            try:
                return StreamRun(
                    plan=found,
                    target=self._places,
                    engine=self._engine,
                    run_id=self._run_id,
                    lease=held,
                    canceled=self._canceled,
                ).run()
            except CanceledError:
                raise
            except Exception as error:
                if attempt == ATTEMPTS or not translated(error, stream.name).transient:
                    raise
                self._canceled.wait(2.0 ** (attempt - 1))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _batches(self, stream: "Stream") -> tuple[BatchRecord, ...]:
        """The batches that a run which did not end well has committed all the same."""
        return tuple(ledger.lines(self._places.lake, stream.name, self._run_id))

    def _idle(self, found: Plan) -> StreamResult:
        name = found.stream.name
        return StreamResult(
            stream=name,
            outcome="idle",
            watermark_ms=watermark_of(found.tail),
            table=str(self._places.lake.table(name)),
            table_version=delta_log.latest_version(self._places.lake.table(name)),
            generation=found.manifest.active.number,
            reason="nothing new",
        )

    def _failed(self, stream: "Stream", error: TidemillError, seconds: float) -> StreamResult:
        if stream.name in self._leases:
            manifest = read_manifest(self._places.lake, stream.name)
            if manifest is not None:
                write_manifest(
                    self._places.lake,
                    stream.name,
                    manifest.with_last_run(self._run_id, "failed", str(error)),
                )
        return StreamResult(
            stream=stream.name,
            outcome="failed",
            batches=self._batches(stream),
            seconds=round(seconds, 3),
            table=str(self._places.lake.table(stream.name)),
            error=error,
        )
