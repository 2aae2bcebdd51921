"""Offsets, watermarks and starts in plain words."""

from datetime import UTC, datetime, timedelta

from pipelines.streaming.checkpoint.source_offset import DeltaOffset, SourceOffset
from pipelines.streaming.checkpoint.tail import NextStart

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def offset_in_words(source: SourceOffset) -> str:
    """Up to where a source is read."""
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


def time_in_words(milliseconds: int) -> str:
    """Milliseconds since the epoch as ISO-8601 UTC; 0, Spark's word for no watermark yet, as `none`."""
    if milliseconds == 0:
        return "none"
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def start_in_words(start: NextStart | None) -> str:
    """What the next start will do."""
    if start is None:
        return "unknown: the end of the logs cannot be read"
    match start.kind:
        case "first_run":
            return "begin: no batch was planned yet"
        case "continue":
            return f"continue: new data becomes batch {start.batch_id}"
        case "repeat_batch":
            return f"repeat batch {start.batch_id}: it was planned and is not committed"
        case "no_data_batch":
            return (
                f"continue: batch {start.batch_id} gives out what the watermark closed; by itself, "
                "Spark does so only together with new data"
            )


def _delta(delta: DeltaOffset) -> str:
    if delta.is_starting:
        return f"snapshot of version {delta.version}, up to file {delta.index}"
    if delta.index >= 0:
        return f"version {delta.version}, up to file {delta.index}"
    return f"all before version {delta.version}"
