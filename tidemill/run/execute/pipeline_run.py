"""PipelineRun: one run of many streams, in dependency order, independent ones side by side.

The thread that iterates over the results only ever waits on a queue, so that an interrupt reaches it at once;
the streams run in worker threads.
"""

import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING

from tidemill.checkpoint import has_checkpoint
from tidemill.connectors.backlog import is_little
from tidemill.definitions.selection import predecessors, topological_order
from tidemill.errors import CanceledError, LeaseHeldError, LeaseLostError, TerminalError, TidemillError
from tidemill.records.batch import BatchRecord
from tidemill.records.lease import Lease
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import FIRST_GENERATION, StreamRecords
from tidemill.run.decide.decision import RunDecision, decide_run
from tidemill.run.decide.side_by_side import side_by_side
from tidemill.run.decide.waiting import failure_position
from tidemill.run.execute.follow import Follow
from tidemill.run.execute.modes import check_mode
from tidemill.run.execute.progress import Live
from tidemill.run.execute.results import StreamResult
from tidemill.run.execute.stream_run import StreamRun
from tidemill.run.spark.engine import Engine
from tidemill.run.spark.error_translation import message_of, translated
from tidemill.sinks.table_sink import was_written

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tidemill.connectors.backlog import Backlog
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

ATTEMPTS = 3
POLL_SECONDS = 0.2
# A canceled query has 3 s to stop (running_query.py); the rest of a run's 5 s is for its lease and for Dagster.
CANCEL_SECONDS = 3.5


class PipelineRun:
    """One run of several streams.

    Args:
        streams: The streams, in any order.
        engine: Where Spark sessions come from; not asked when there is nothing to do.
        run_id: The run's id, in the ledger and in leases.
        max_parallel: How many streams run side by side; None: as many as the engine suggests.
        follow: Reads what arrives as well, all streams side by side, until it is asked to end.
        once: Reads all that waits in a single batch of each stream, whatever the limits of the sources are.

    Attributes:
        finished: The results so far. After an interrupt every selected stream has one.
        live: The streams that are running, and how far they are.

    Raises:
        ConfigurationError: A stream cannot run in the mode of `follow`.
    """

    def __init__(
        self,
        streams: "Sequence[Stream]",
        *,
        target: "Target",
        engine: Engine,
        run_id: str,
        max_parallel: int | None = None,
        follow: Follow | None = None,
        once: bool = False,
    ) -> None:
        if follow is not None:
            check_mode(streams, follow.mode, follow.every)
        self.finished: list[StreamResult] = []
        self.live = Live()
        self._streams = topological_order(streams)
        self._before = predecessors(streams)
        self._target = target
        self._engine = engine
        self._run_id = run_id
        self._follow = follow
        self._once = once
        self._workers = len(streams) if follow else max_parallel or engine.default_parallel()
        self._canceled = Event()
        self._leases: dict[StreamName, Lease] = {}
        self._stream_runs: dict[StreamName, StreamRun] = {}
        self._started: set[StreamName] = set()

    @property
    def count(self) -> int:
        """The number of streams."""
        return len(self._streams)

    def iter_results(
        self, *, on_wait: "Callable[[], None] | None" = None
    ) -> Generator[StreamResult, None, None]:
        """Run the streams, and yield each one's result as it ends.

        An interrupt in the thread that iterates cancels all queries, waits for them a few seconds, and is
        raised again; `finished` then has a result for every stream.

        Args:
            on_wait: Called a few times per second by that thread while it waits for a result.
        """
        waiting = {stream.name: stream for stream in self._streams}
        ended: Queue[StreamResult] = Queue()
        running: set[StreamName] = set()
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="stream")
        try:
            for result in self._decided():
                waiting.pop(result.stream)
                self.finished.append(result)
                yield result
            while waiting:
                for name, stream in list(waiting.items()):
                    if name not in running and not self._waits(stream, waiting):
                        running.add(name)
                        pool.submit(self._put, ended, stream)
                try:
                    result = ended.get(timeout=POLL_SECONDS)
                except Empty:
                    if on_wait is not None:
                        on_wait()
                    continue
                waiting.pop(result.stream)
                running.discard(result.stream)
                self.finished.append(result)
                yield result
        except BaseException:
            self._cancel(ended, len(running))
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            # A stream that has started releases its lease itself, when its query has stopped.
            for name in self._leases.keys() - self._started:
                self._leases[name].release()

    def _waits(self, stream: "Stream", waiting: "Container[StreamName]") -> bool:
        """Return whether a stream waits for others: for their results, or where none of them ends for its tables."""
        before = [name for name in self._before[stream.name] if name in waiting]
        if self._follow is None:
            return bool(before)
        # Those that only append to a table that it reads do not create it.
        into = {sink.appends_into for sink in stream.sinks}
        tables = [name for name in before if name in stream.upstreams or name in into]
        return not all(was_written(self._target.lake.table(name)) for name in tables)

    def _cancel(self, ended: "Queue[StreamResult]", running: int) -> None:
        """Stop the streams that are running, and report every stream that has no result yet."""
        self._canceled.set()
        with suppress(Exception):  # the interrupt is the error to report
            self._engine.abort_start()
        deadline = time.monotonic() + CANCEL_SECONDS
        for _ in range(running):
            try:
                self.finished.append(ended.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                break
        known = {result.stream for result in self.finished}
        self.finished += [
            self._canceled_result(stream) for stream in self._streams if stream.name not in known
        ]

    def _decided(self) -> list[StreamResult]:
        """Return the results of the streams that need no run: idle and busy ones, and those that cannot run.

        The leases of all others are taken here, before a JVM starts: a second run is busy within a second.
        """
        decided = []
        selected: set[StreamName] = set()  # whose tables get rows
        waiting: list[Backlog] = []
        with side_by_side(partial(decide_run, target=self._target), self._streams) as futures:
            wait(futures)
        for stream, future in zip(self._streams, futures, strict=True):
            try:
                decision = future.result()
                triggers = {name for name, streaming in stream.upstreams.items() if streaming}
                if decision.idle and not triggers & selected and self._follow is None:
                    decided.append(self._idle(decision))
                    continue
                self._leases[stream.name] = self._records(stream).take_lease(self._run_id)
                into = (sink.appends_into for sink in stream.sinks)
                selected |= {stream.name, *(name for name in into if name is not None)}
                waiting += decision.backlog.values()
            except LeaseHeldError as error:
                decided.append(StreamResult(stream=stream.name, outcome="busy", reason=error.what))
            except Exception as error:  # noqa: BLE001 - whatever it is becomes the stream's result
                holder = None
                with suppress(Exception):  # the first error is the one to report
                    holder = self._records(stream).holder()
                if holder is None or stream.name in self._leases:
                    decided.append(self._failed(stream, error))
                else:  # a checkpoint that another run is writing may look damaged for a moment
                    reason = f"{holder} holds the lease of this stream."
                    decided.append(StreamResult(stream=stream.name, outcome="busy", reason=reason))
        if selected:
            self._engine.expect(little=is_little(waiting))
        return decided

    def _put(self, ended: "Queue[StreamResult]", stream: "Stream") -> None:
        """Run a stream, and report its result whatever is raised: the run waits for it."""
        self._started.add(stream.name)
        started = time.monotonic()
        try:
            result = self._run(stream)
        except BaseException as raised:  # noqa: BLE001 - also a SystemExit of the user's function
            result = self._failed(stream, raised, time.monotonic() - started)
        try:
            self.live.leave(stream.name)
            self._release(stream)
        except BaseException as raised:  # noqa: BLE001 - as above
            warning = f"its lease was not released ({message_of(raised)}): it expires by its heartbeat."
            result = replace(result, warnings=(*result.warnings, warning))
        ended.put(result)

    def _release(self, stream: "Stream") -> None:
        """Release a stream's lease, at once or when its query stops: while it may write, nobody else may."""
        lease, stream_run = self._leases[stream.name], self._stream_runs.get(stream.name)
        if stream_run is None or stream_run.stopped.is_set():
            lease.release()
        else:
            Thread(target=_release_after, args=(stream_run.stopped, lease), daemon=True).start()

    def _records(self, stream: "Stream") -> StreamRecords:
        return StreamRecords(self._target.lake, stream.name)

    def _run(self, stream: "Stream") -> StreamResult:
        started = time.monotonic()
        broken = [
            result.stream
            for result in self.finished
            if result.stream in stream.upstreams and result.outcome in ("failed", "skipped", "canceled")
        ]
        if broken:
            return StreamResult(stream=stream.name, outcome="skipped", reason=f"{broken[0]} did not succeed")
        try:
            return self._attempts(stream)
        except CanceledError as error:
            return self._canceled_result(
                stream, batches=self._batches(stream), seconds=time.monotonic() - started, error=error
            )

    def _unfinished_batch(self, stream: "Stream") -> int | None:
        """Return the batch that was planned and not committed; None where there is none, or it cannot be read."""
        try:
            start = self._records(stream).snapshot().tail.next_start
        except TidemillError:
            return None
        return start.batch_id if start.kind == "repeat_batch" else None

    def _attempts(self, stream: "Stream") -> StreamResult:
        """Run a stream, and retry transient failures: those in a row without a batch in between are counted."""
        decision = self._decision(stream)
        last_commit = decision.snapshot.last_commit
        first_batch, failures = last_commit + 1, 0
        if decision.idle and (self._follow is None or decision.waits_for_columns):
            return self._idle(decision)
        while True:
            stream_run = StreamRun(
                decision=decision,
                target=self._target,
                engine=self._engine,
                run_id=self._run_id,
                lease=self._leases[stream.name],
                canceled=self._canceled,
                first_batch=first_batch,
                live=self.live,
                follow=self._follow,
                once=self._once,
            )
            self._stream_runs[stream.name] = stream_run
            try:
                return stream_run.run()
            except CanceledError:
                raise
            except Exception as error:
                transient = False
                with suppress(BaseException):  # the stream's own failure is the one to report
                    transient = translated(error, stream.name).transient
                if not transient or not stream_run.stopped.is_set():
                    raise
                last, last_commit = last_commit, self._records(stream).snapshot().last_commit
                failures = failures + 1 if last_commit == last else 1
                if failures == ATTEMPTS:
                    raise
                self._canceled.wait(2.0 ** (failures - 1))
                decision = self._decision(stream)

    def _decision(self, stream: "Stream") -> RunDecision:
        """Decide what the run does to a stream, which for one that follows lasts until its sources have columns."""
        while True:
            if self._canceled.is_set():
                raise CanceledError
            decision = decide_run(stream, self._target)
            if (
                self._follow is None
                or not decision.waits_for_columns
                or self._follow.ended.wait(POLL_SECONDS)
            ):
                return decision

    def _batches(self, stream: "Stream") -> tuple[BatchRecord, ...]:
        """Return the batches that a run which did not end well has committed all the same."""
        return tuple(self._records(stream).ledger.lines(self._run_id))

    def _idle(self, decision: RunDecision) -> StreamResult:
        snapshot = decision.snapshot
        table = snapshot.main_table
        return StreamResult(
            stream=decision.stream.name,
            outcome="idle",
            watermark_ms=snapshot.next_watermark_ms,
            table=str(snapshot.records.table()),
            table_version=None if table is None else table.version,
            generation=snapshot.generation,
            reason="nothing new",
            warnings=decision.warnings,
        )

    def _canceled_result(
        self,
        stream: "Stream",
        *,
        batches: tuple[BatchRecord, ...] = (),
        seconds: float = 0.0,
        error: CanceledError | None = None,
    ) -> StreamResult:
        return StreamResult(
            stream=stream.name,
            outcome="canceled",
            batches=batches,
            seconds=round(seconds, 3),
            error=translated(error or CanceledError(), stream.name),
        )

    def _failed(self, stream: "Stream", raised: BaseException, seconds: float = 0.0) -> StreamResult:
        """Record a failure, and return its result; a step that fails is a warning of the result."""
        error: TidemillError = TerminalError(
            f"{type(raised).__name__} was raised.", stream=stream.name, code="unexpected-error"
        )
        batches: tuple[BatchRecord, ...] = ()
        warnings: tuple[str, ...] = ()
        try:
            error = translated(raised, stream.name, unfinished_batch=self._unfinished_batch(stream))
            batches = self._batches(stream)
            self._record_failure(stream, error)
        except BaseException as another:  # noqa: BLE001 - the stream's own failure is the one to report
            warnings = (f"the failure was not recorded, because that failed, too: {message_of(another)}.",)
        return StreamResult(
            stream=stream.name,
            outcome="failed",
            batches=batches,
            seconds=round(seconds, 3),
            table=str(self._records(stream).table()),
            error=error,
            warnings=warnings,
        )

    def _record_failure(self, stream: "Stream", error: TidemillError) -> None:
        if stream.name not in self._leases or isinstance(error, LeaseLostError):
            return
        records = self._records(stream)
        manifest = records.manifest()
        if manifest is None and not has_checkpoint(records.checkpoint(FIRST_GENERATION)):
            manifest = first_manifest({})  # its first run: it has no part that could miss its manifest
        if manifest is not None:
            try:
                snapshot = records.snapshot()
            except TidemillError:
                snapshot = None
            position = failure_position(stream, manifest, snapshot)
            records.write_manifest(manifest.with_failure(self._run_id, error, position))


def _release_after(stopped: Event, lease: Lease) -> None:
    stopped.wait()
    lease.release()
