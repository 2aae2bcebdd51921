"""What a stream's manifest records about each of its sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Start = Literal["log", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """What is recorded about one source of a generation.

    Attributes:
        binding: What the source is bound to (`Connector.binding`); None where the next run binds it.
        kind: The kind of source that wrote its offsets; None before its first run.
        stopped_at: The offset at which the stream stopped reading it, as in the offset log; None while the
            definition has the source, and where nothing of it was read.
        accepted_as_new: Whether the user has accepted that the source is read from its beginning.
        start: How a reader of a stream's table begins: with version 0 of its log, or with a snapshot; None for
            other sources.
        start_version: The version of that snapshot; commits up to it are not guarded.
        first_version: The version of the log that a reader of a table begins with, where a backfill reads only a part
            of it, or where its source begins with `latest` or a time; None for other sources.
        schema: The columns that the first run inferred from the files, as DDL; None for other sources.
        read_version: The newest version of a table that was read when the last run ended; None for other sources.
        read_commit: The checksum of that commit.
        accepted_versions: Commits of the table that removed rows and that the user has accepted.
    """

    binding: Mapping[str, Any] | None = None
    kind: str | None = None
    stopped_at: str | None = None
    accepted_as_new: bool = False
    start: Start | None = None
    start_version: int | None = None
    first_version: int | None = None
    schema: str | None = None
    read_version: int | None = None
    read_commit: str | None = None
    accepted_versions: tuple[int, ...] = ()
