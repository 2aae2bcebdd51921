"""The horizon of a table: the oldest version that a reader, a pinned snapshot, a check or a rewind still needs.

Readers are known by their checkpoints. Every checkpoint of the lake is read, also those of streams that no pipeline
declares any more: an offset in a Delta table names the table's id.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.catalog.sources import located
from tidemill.checkpoint import FileAbsentError, SourceOffset, offset_batches, read_offset
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.registry import connector_of
from tidemill.definitions.sink import transaction_app_id
from tidemill.errors import DefinitionError
from tidemill.records.stream_records import StreamRecords
from tidemill.tables.files import Need, Part
from tidemill.text.names import StreamName

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry
    from tidemill.definitions.stream import Stream
    from tidemill.records.batch import BatchRecord
    from tidemill.records.stream_records import Snapshot
    from tidemill.storage.lake import Lake
    from tidemill.storage.table_ref import TableRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The oldest position in a table that a reader may continue from.

    Attributes:
        of: What it reads from there on, as in `Need`.
    """

    reader: StreamName
    table_id: str
    version: int
    of: Part


def positions(lake: "Lake", since: datetime) -> list[Position]:
    """Return the positions of all readers of a lake: where each continues, or would after a rewind.

    Args:
        since: The moment to which a reader may be rewound.

    Raises:
        TidemillError: A checkpoint or a manifest cannot be read, so that its position is not known.
    """
    return [
        position for name in streams_in(lake) for position in _positions_of(StreamRecords(lake, name), since)
    ]


def streams_in(lake: "Lake") -> list[StreamName]:
    """Return the streams that have a manifest in a lake."""
    names = []
    for folder in (
        stream for pipeline in lake.store.list("control") for stream in lake.store.list(pipeline.key)
    ):
        if "manifest.json" not in lake.store.names(folder.key):
            continue
        try:
            names.append(StreamName.parse(folder.key.removeprefix("control/")))
        except DefinitionError:  # a folder that is not Tidemill's
            continue
    return names


def _positions_of(records: StreamRecords, since: datetime) -> Iterator[Position]:
    snapshot = records.snapshot()
    tail, committed = snapshot.tail, snapshot.tail.committed_offsets
    if committed is not None:
        yield from _in_tables(records.stream, committed.sources)
    if tail.latest_offset is not None and tail.latest_offset != committed:
        yield from _begins(snapshot, tail.latest_offset, committed)  # a batch that is repeated
    elif committed is not None:
        # When Spark starts, it plans the last committed batch once more, and reads nothing of it (MicroBatchExecution:
        # some sources expect it). Delta then fails if a commit of that batch is missing.
        ends = {at.table_id: at.version for at in _in_tables(records.stream, committed.sources)}
        for at in _begins(snapshot, committed, _before(snapshot, committed)):
            if at.version < ends.get(at.table_id, at.version):
                yield replace(at, of="log")
    for line in _recent_lines(records, since):
        for offsets in (line.start_offsets, line.end_offsets):
            yield from _in_tables(records.stream, _parsed(offsets))


def _before(snapshot: "Snapshot", entry: "OffsetEntry") -> "OffsetEntry | None":
    try:
        return read_offset(snapshot.checkpoint, entry.batch_id - 1)
    except FileAbsentError:  # the first batch
        return None


def _begins(snapshot: "Snapshot", entry: "OffsetEntry", before: "OffsetEntry | None") -> Iterator[Position]:
    """Yield where a batch begins in each table: where the batch before ends, or at the start of the stream."""
    reader = snapshot.records.stream
    ends = (
        {}
        if before is None
        else {source.key: source for source in before.sources if DeltaPosition.of(source)}
    )
    yield from _in_tables(reader, ends.values())
    sources = snapshot.sources
    for source in entry.sources:
        if (at := DeltaPosition.of(source)) is not None and source.key not in ends:
            # It began with version 0, or with a snapshot.
            record = sources.get(source.key)
            start = None if record is None else record.start_version
            yield Position(
                reader=reader,
                table_id=at.reservoir_id,
                version=start or 0,
                of="commits" if start is None else "snapshot",
            )


def _in_tables(reader: StreamName, offsets: Iterable[SourceOffset]) -> Iterator[Position]:
    for offset in offsets:
        if (at := DeltaPosition.of(offset)) is not None:
            yield Position(
                reader=reader,
                table_id=at.reservoir_id,
                version=at.version,
                of="snapshot" if at.is_starting else "commits",
            )


def _parsed(offsets: Mapping[str, Any]) -> Iterator[SourceOffset]:
    for name, value in offsets.items():
        if value is not None:
            yield SourceOffset.parse("the ledger", name, None, json.dumps(value))


def _recent_lines(records: StreamRecords, since: datetime) -> "Iterator[BatchRecord]":
    """Yield the lines of the batches that began after a moment; older files of the ledger are not opened."""
    for run_id, written in records.ledger.runs().items():
        if written >= since.timestamp():
            for line in records.ledger.lines(run_id):
                if line.started_at and datetime.fromisoformat(line.started_at) >= since:
                    yield line


@dataclass(frozen=True, kw_only=True)
class Horizons:
    """What is needed of the tables of a lake.

    Attributes:
        streams: The streams of all pipelines, which show who reads snapshots.
        positions: The positions of all readers.
        since: The moment to which a stream may be rewound.
    """

    lake: "Lake"
    streams: "Sequence[Stream]"
    positions: Sequence[Position]
    since: datetime

    def needs(self, stream: "Stream", sink: str) -> list[Need]:
        """Return what needs a table of a stream, the oldest version first."""
        snapshot = StreamRecords(self.lake, stream.name).snapshot()
        path = self.lake.table(stream.name, sink)
        table = path.open()
        if table is None:
            return []
        table_id, head = str(table.metadata().id), table.version()
        needs = [
            Need(
                version=at.version,
                who=f"{at.reader} plans its last batch, from version {at.version} on, once more when it starts"
                if at.of == "log"
                else f"{at.reader} has read the versions before {at.version}",
                of=at.of,
            )
            for at in self.positions
            if at.table_id == table_id
        ]
        needs += self._pinned(path)
        needs += _commits_to_check(snapshot, path, sink)
        needs.append(Need(version=version_at(path, self.since), who="a rewind", of="log"))
        return sorted({need for need in needs if need.version <= head}, key=lambda need: need.version)

    def _pinned(self, path: "TableRef") -> Iterator[Need]:
        """Yield the snapshots that a batch which runs or must be repeated reads."""
        for reader in self.streams:
            records = StreamRecords(self.lake, reader.name)
            for name, declared in reader.sources.items():
                if declared.streaming:
                    continue
                source = declared
                if source.catalog_table is not None:
                    source = located(reader, records.snapshot().sources).sources[name]
                if connector_of(source).table(source, self.lake) != path:
                    continue
                pins = records.pins()
                repeats = records.snapshot().tail.next_start.kind == "repeat_batch"
                if pins is not None and name in pins.versions and (repeats or records.holder() is not None):
                    version = pins.versions[name]
                    yield Need(
                        version=version,
                        who=f"{reader.name} reads the snapshot of version {version}",
                        of="snapshot",
                    )


def version_at(path: "TableRef", moment: datetime) -> int:
    """Return the version that a table had at a moment; the oldest of its log where that shows none so old."""
    limit = int(moment.timestamp() * 1000)
    oldest = 0
    for version in reversed(path.log.versions()):
        commit = path.log.commit(version)
        oldest = version
        if commit is None or (commit.timestamp_ms or 0) <= limit:
            break
    return oldest


def _commits_to_check(snapshot: "Snapshot", path: "TableRef", sink: str) -> Iterator[Need]:
    """Yield the commits that `exactly_once` compares next, or that the ledger has no line of yet."""
    manifest = snapshot.manifest
    if manifest is None or snapshot.query_id is None:
        return
    checked = snapshot.records.checked()
    position = None if checked is None else checked.position
    same = (snapshot.generation, snapshot.query_id)
    oldest = manifest.active.ledger_batch + 1
    if position is not None and (position.generation, position.query_id) == same:
        if sink in position.versions:
            yield Need(version=position.versions[sink] + 1, who="the check exactly_once", of="log")
    else:
        oldest = min([oldest, *offset_batches(snapshot.checkpoint)])
    commits = path.log.commits_of_batches(transaction_app_id(snapshot.query_id, sink), oldest)
    if commits:
        first = min(commit.version for commit in commits.values())
        yield Need(version=first, who="the check exactly_once", of="log")


def without_position(stream: "Stream", lake: "Lake", streams: "Sequence[Stream]") -> "list[Stream]":
    """Return the readers of a stream's table that have no committed position in it: they may be about to begin.

    Raises:
        TidemillError: A checkpoint cannot be read.
    """
    beginning = []
    for reader in streams:
        for name, source in reader.sources.items():
            if source.streaming and source.upstream == stream.name:
                offset = StreamRecords(lake, reader.name).snapshot().tail.committed(name)
                if offset is None or offset.raw is None:
                    beginning.append(reader)
    return list(dict.fromkeys(beginning))
