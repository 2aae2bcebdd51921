"""Descriptions of offsets, times and starts for people."""

from datetime import UTC, datetime, timedelta

from tidemill.checkpoint.format.source_offset import DeltaOffset, SourceOffset
from tidemill.checkpoint.tail import NextStart

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def describe_offset(source: SourceOffset) -> str:
    """Describe the offset up to which a source is read."""
    if source.raw is None:
        return "nothing yet"
    if source.kind == "file":
        return f"entry {source.log_offset} of the source's log"
    if source.kind == "kafka":
        topics = (
            f"{topic} ({len(partitions)} partitions: "
            + ", ".join(f"{number}→{offset}" for number, offset in sorted(partitions.items()))
            + ")"
            for topic, partitions in sorted(source.partitions.items())
        )
        return "; ".join(topics)
    if source.delta is not None:
        return _delta(source.delta)
    return f"{source.rows} rows" if source.rows is not None else source.raw


def describe_time(milliseconds: int) -> str:
    """Return milliseconds since the epoch as ISO-8601 UTC."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe_start(start: NextStart | None) -> str:
    """Describe what the next start does."""
    if start is None:
        return "unknown: the end of the logs is unreadable"
    match start.kind:
        case "first_run":
            return "first run: no batch was planned yet"
        case "continue":
            return f"continue: new data becomes batch {start.batch_id}"
        case "repeat_batch":
            return f"repeat batch {start.batch_id}: it was planned and not committed"
        case "no_data_batch":
            return (
                f"continue: batch {start.batch_id} emits the results that the watermark closed; "
                "Spark alone runs it only together with new data"
            )


def _delta(delta: DeltaOffset) -> str:
    if delta.is_starting:
        return f"snapshot of version {delta.version}, up to file {delta.index}"
    if delta.index >= 0:
        return f"version {delta.version}, up to file {delta.index}"
    return f"everything before version {delta.version}"
