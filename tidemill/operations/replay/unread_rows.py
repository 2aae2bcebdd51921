"""Rows of a range that came from what a backfill with a lookback does not read: it would remove them.

A row of a feed knows its origin. A row of another stream does not; there only a range for which nothing is read is
known to be lost.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.feed import feed_of
from tidemill.connectors.files.backlog import plain_path
from tidemill.errors import TerminalError
from tidemill.operations.replay.lost_origins import in_range, origins_in_range
from tidemill.storage.dataset import dataset_of
from tidemill.storage.table_ref import TableRef
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.connectors.span import SourceSpan
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange

_MOST_NAMED = 3


def check_unread(
    stream: "Stream", table: TableRef, span: "BackfillRange", spans: "Mapping[str, SourceSpan]", lookback: str
) -> None:
    """Check that each row of a range came from what is read.

    Args:
        table: Its main table's folder.
        spans: What is read of each source.
        lookback: The lookback, for people.

    Raises:
        TerminalError: A row did not.
    """
    opened = table.open()
    if opened is None or not spans:
        return
    fix = "give a longer --lookback; or declare no lookback, and everything is read again."
    if feed_of(stream) is not None:
        (read,) = spans.values()
        unread = dict(_unread(origins_in_range(opened, span), read))
        if unread:
            named = ", ".join(
                f"{origin} ({pluralize(rows, 'row')})" for origin, rows in list(unread.items())[:_MOST_NAMED]
            )
            more = f" and {len(unread) - _MOST_NAMED} more" if len(unread) > _MOST_NAMED else ""
            raise TerminalError(
                f"{pluralize(sum(unread.values()), 'row')} of the range came from what a lookback of {lookback} does "
                f"not read, and would be missing: {named}{more}.",
                stream=stream.name,
                fix=fix,
                code="lookback-too-short",
            )
    elif all(one.is_empty for one in spans.values()):
        rows = dataset_of(opened).count_rows(filter=in_range(opened, span))
        if rows:
            raise TerminalError(
                f"with a lookback of {lookback}, nothing is read for the range, and its "
                f"{pluralize(rows, 'row')} would be missing.",
                stream=stream.name,
                fix=fix,
                code="lookback-too-short",
            )


def _unread(origins: "pa.StructArray", read: "SourceSpan") -> Iterator[tuple[str, int]]:
    """Yield each origin that is not read, and its number of rows, those with the most rows first."""
    unread: Counter[str] = Counter()
    files = {plain_path(file.path) for file in read.files or ()}
    for value in origins.field("file").value_counts().to_pylist():
        if value["values"] is not None and (path := plain_path(value["values"])) not in files:
            unread[Path(path).name] += value["counts"]
    begins, ends = read.begins or {}, read.ends or {}
    for topic, number, offset in zip(
        *(origins.field(part).to_pylist() for part in ("topic", "partition", "offset")), strict=True
    ):
        if topic is None:
            continue
        partition = (topic, number)
        if not begins.get(partition, 0) <= offset < ends.get(partition, 0):
            unread[f"message {offset} of {topic}-{number}"] += 1
    yield from unread.most_common()
