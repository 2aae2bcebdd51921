"""A sink that was declared after the first runs: it begins with the next batch, or with the rows of the main table.

The rows of the main table are written as the batch that the checkpoint has committed last, so a sink that knows its
batches takes them once, whatever happens in between, and the next batch follows them.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.definitions.columns import DELETED, END_AT, START_AT
from tidemill.definitions.sink import BatchIdentity, CommitMetadata, Sink, SinkBatch
from tidemill.operations.core.change import Change, StreamUnderChange, changing
from tidemill.operations.core.steps import session
from tidemill.run.decide.preconditions import new_sinks
from tidemill.run.pause_points import pause_point
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import StreamRecords
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target


def accept_new_sink(
    stream: "Stream", target: "Target", name: str, *, engine: "Engine | None" = None, dry_run: bool = False
) -> Change:
    """Accept that a new sink begins with the next batch.

    Args:
        stream: The stream.
        target: The target.
        name: The name of the sink.
        engine: Fills the sink with the rows that the main table has now; None: it lacks them.
        dry_run: Whether it is planned only.

    Raises:
        TerminalError: The definition has no such sink, it is not new, or there are no rows to fill it with.
        SchemaChangeError: The sink cannot take the columns of the main table.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "accept", dry_run=dry_run) as subject:
        active, last = subject.manifest.active, subject.snapshot.last_commit
        new = new_sinks(stream, active)
        if name not in new:
            raise subject.refuse(
                f"its definition has no new sink {name!r}.",
                f"name one of {', '.join(new)}." if new else "no action is needed; run the stream.",
                code="nothing-to-change",
            )
        sink, is_table = new[name], new[name] in stream.tables
        what = "Its table" if is_table else "It"
        effect = f"{what} has no row of the batches up to {last}."
        if engine is not None:
            _check_rows(subject)
            effect = f"{what} gets the rows that the table of the stream has after batch {last}."
        if not dry_run:
            if engine is not None:
                count = _fill(sink, subject, target, engine)
                effect = f"{what} has the rows of the stream's table after batch {last}: {pluralize(count, 'row')}."
            field = "sinks" if is_table else "external_sinks"
            recorded = {**(getattr(active, field) or {}), name: sink.identity}
            begins = {**active.sinks_begin, name: last if engine is not None else last + 1}
            changed = subject.manifest.with_active(**{field: recorded}, sinks_begin=begins)
            subject.snapshot.records.write_manifest(changed)
            _forget_batches(subject.snapshot.records, name)
        return Change(
            stream=stream.name,
            what=f"The sink {name!r} is accepted, and begins with the next batch.",
            effects=(effect,),
        )


def _check_rows(subject: StreamUnderChange) -> None:
    """Check that the main table has the rows of the stream."""
    main = subject.stream.main
    if subject.snapshot.last_commit < 0 or not main.has_rows or main.appends_into is not None:
        raise subject.refuse(
            "it has no table of its own with rows that a new sink could get.",
            "leave --fill out: the sink begins with the next batch.",
            code="nothing-to-change",
        )


def _fill(sink: Sink, subject: StreamUnderChange, target: "Target", engine: "Engine") -> int:
    """Write the rows of the main table into a sink, unless it has them, and return their number."""
    snapshot = subject.snapshot
    records, query_id = snapshot.records, str(snapshot.query_id)
    context = records.sink_context(sink.name, sink.connection(target))
    with session(engine, subject.lease) as spark:
        rows = _rows_now(spark, str(records.table()))
        sink.check(context, rows.schema)
        sink.prepare(spark, context, rows.schema)
        written = sink.last_batch(context, query_id)
        if written is None or written < snapshot.last_commit:
            if subject.lease is not None:
                subject.lease.check()
            identity = BatchIdentity(str(records.stream), query_id, snapshot.last_commit)
            metadata = CommitMetadata(
                batch_id=snapshot.last_commit,
                fingerprint=subject.manifest.active.fingerprint or "",
                static_versions={},
            )
            sink.write(rows, SinkBatch(identity, context, metadata))
        pause_point("after-fill", records.stream)
        return rows.count()


def _rows_now(spark: "SparkSession", table: str) -> "DataFrame":
    """Return the rows of a main table that are valid now, as the function of the stream returns them."""
    rows = spark.read.format("delta").load(table)
    if DELETED in rows.columns:
        rows = rows.where(f"NOT coalesce({DELETED}, false)")
    if END_AT in rows.columns:
        rows = rows.where(f"{END_AT} IS NULL")
    return rows.drop(DELETED, START_AT, END_AT)


def _forget_batches(records: "StreamRecords", name: str) -> None:
    """Let `exactly_once` compare a sink from its next batch on: what it has seen was elsewhere."""
    checked = records.checked()
    if checked is None or checked.position is None or name not in checked.position.sinks:
        return
    sinks = {sink: batch for sink, batch in checked.position.sinks.items() if sink != name}
    behind = {sink: batch for sink, batch in checked.sinks_behind.items() if sink != name}
    records.write_checked(
        replace(checked, position=replace(checked.position, sinks=sinks), sinks_behind=behind)
    )
