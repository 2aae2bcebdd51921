"""A query's progress as ledger records, and waiting for it in a way that an interrupt can end."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from pipelines.streaming.errors import CanceledError
from pipelines.streaming.expectations import OBSERVATION
from pipelines.streaming.run.results import BatchRecord, Late

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2
# What a query gets to stop in; a run must end within 5 s of the request.
STOP_SECONDS = 3.0
# Stateful operators that count rows as they come; an aggregation counts groups after a partial aggregation.
_COUNTS_ROWS = ("dedup", "symmetricHashJoin", "flatMapGroups", "transformWithState", "applyInPandas")


def record(
    progress: Mapping[str, Any], *, run_id: str, generation: int, query_id: str, pins: Mapping[str, int]
) -> BatchRecord:
    """One batch from its progress (Spark guide, "Monitoring Streaming Queries").

    Rows written, and what foreachBatch knows, are filled in from the Delta log.
    """
    event_time = progress.get("eventTime") or {}
    operators = progress.get("stateOperators") or []
    observed = (progress.get("observedMetrics") or {}).get(OBSERVATION) or {}
    sources = progress.get("sources") or []
    return BatchRecord(
        batch_id=progress["batchId"],
        run_id=run_id,
        generation=generation,
        query_id=query_id,
        started_at=progress["timestamp"],
        milliseconds=dict(progress.get("durationMs") or {}),
        rows_read=sum(source.get("numInputRows") or 0 for source in sources),
        rows_dropped=observed.get("dropped"),
        violations={
            name.removeprefix("violated_"): count or 0
            for name, count in observed.items()
            if name.startswith("violated_")
        },
        late=_late(operators),
        watermark_ms=_milliseconds(event_time.get("watermark")) or None,
        newest_event_ms=_milliseconds(event_time.get("max")),
        state_rows=sum(o.get("numRowsTotal") or 0 for o in operators) if operators else None,
        state_bytes=sum(o.get("memoryUsedBytes") or 0 for o in operators) if operators else None,
        static_versions=dict(pins),
    )


def _late(operators: list[Mapping[str, Any]]) -> Late:
    counted = [(o, o.get("numRowsDroppedByWatermark") or 0) for o in operators]
    groups = any(n and not str(o.get("operatorName", "")).startswith(_COUNTS_ROWS) for o, n in counted)
    return Late(sum(n for _, n in counted), "groups" if groups else "rows")


def _milliseconds(time_text: str | None) -> int | None:
    if not time_text:
        return None
    return int(datetime.fromisoformat(time_text).astimezone(UTC).timestamp() * 1000)


def wait(
    query: "StreamingQuery",
    canceled: Event,
    on_progress: Callable[[list[dict[str, Any]]], None],
    *,
    seconds: float | None = None,
) -> None:
    """Waits until a query ends; its progress is handed over as batches end.

    The wait itself is on a thread of its own: an interrupt inside `awaitTermination` would leave Py4J's
    connection of that thread unusable, and with it the process (facts: a Terminate in the UI hung for ever).

    Args:
        query: A started query.
        canceled: When it is set, the query is stopped.
        on_progress: Takes all progress of the query so far, oldest first.
        seconds: After that long the query is stopped as well, when the batch at hand has ended; the wait ends
            as if the query had.

    Raises:
        CanceledError: it was canceled.
        Exception: what the query failed with.
    """
    failure: list[BaseException] = []
    done = Event()

    def await_termination() -> None:
        try:
            query.awaitTermination()
        except BaseException as error:  # noqa: BLE001 - handed over to the waiting thread as it is
            failure.append(error)
        finally:
            done.set()

    Thread(target=await_termination, name="await", daemon=True).start()
    deadline = None if seconds is None else time.monotonic() + seconds
    at_deadline: int | None = None
    try:
        while not done.wait(POLL_SECONDS):
            on_progress(batches := _progress(query))
            if deadline is not None and at_deadline is None and time.monotonic() > deadline:
                at_deadline = len(batches)
            if canceled.is_set() or (at_deadline is not None and len(batches) > at_deadline):
                _stop(query, done)
                break
    except BaseException:
        _stop(query, done)
        raise
    if canceled.is_set():
        raise CanceledError
    on_progress(_progress(query))
    if failure:
        raise failure[0]


def _stop(query: "StreamingQuery", done: Event) -> None:
    """Stops a query from a fresh thread, because the asking one may be interrupted again."""
    Thread(target=query.stop, name="stop", daemon=True).start()
    done.wait(STOP_SECONDS)


def _progress(query: "StreamingQuery") -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress]
