"""Descriptions of times and starts for people."""

from datetime import UTC, datetime, timedelta

from tidemill.checkpoint.tail import NextStart

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
