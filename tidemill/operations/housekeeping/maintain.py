"""Maintenance of a stream's tables: small files compacted, files and commits removed that nothing needs any more.

Spark compacts, because it knows the layouts and features of its own tables. Files and commits are removed here: VACUUM
and the cleanup of Delta's log take an age as their limit, and what a reader that is behind needs has no age.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidemill.checks.table_commits import sinks_of
from tidemill.errors import LeaseHeldError
from tidemill.operations.core.change import Outcome
from tidemill.operations.core.spec import Argument, OperationSpec
from tidemill.operations.core.steps import holding, run_id_of, session
from tidemill.operations.housekeeping.horizon import Horizons, positions, without_position
from tidemill.records.operation import unfinished_error
from tidemill.records.stream_records import StreamRecords
from tidemill.run.spark import classic
from tidemill.storage.table_ref import TableRef
from tidemill.tables.files import (
    SMALL_BYTES,
    DataFile,
    Need,
    Size,
    obsolete_log_files,
    removable,
    size_of,
    small_files,
)
from tidemill.text.durations import flag_duration
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report, Row, megabytes, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.run.spark.engine import Engine
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.target.target import Target

KIND = "maintain"
KEEP = timedelta(days=7)
"""How far back a stream can be rewound, unless another time is named; as long as VACUUM keeps files by default."""

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMaintenance:
    """What maintenance would do to a table, or has done.

    Attributes:
        version: Its newest version.
        after: Its size after; None for a plan.
        small_files: The files to compact.
        files: The files to remove, those not counted that the compaction replaces.
        log_files: The files of its log to remove.
        horizon: The oldest version that something needs.
        held_by: What needs versions before the newest, for people, the oldest first.
    """

    table: TableRef
    version: int
    before: Size
    after: Size | None = None
    small_files: int
    files: int
    bytes: int
    log_files: int
    horizon: int
    held_by: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is something to do."""
        return bool(self.small_files or self.files or self.log_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance(Outcome):
    """What maintenance would do to the tables of a stream, or has done.

    Attributes:
        outcome: `planned`, `maintained`, `idle` where nothing was to do, or `busy` where a run holds a lease or an
            operation is unfinished.
        reason: Why it is busy.
    """

    outcome: Literal["planned", "maintained", "idle", "busy"]
    tables: tuple[TableMaintenance, ...] = ()
    reason: str = ""

    @property
    def changes(self) -> bool:
        """Whether there is something to do."""
        return any(table.changes for table in self.tables)

    @property
    def summary(self) -> str:
        """What was done, or why the stream is busy."""
        return f"{self.outcome} {self.reason}".strip()

    @property
    def numbers(self) -> "Mapping[str, int]":
        """What was done, in numbers."""
        if self.outcome != "maintained":
            return {}
        return {
            "compacted_files": sum(table.small_files for table in self.tables),
            "removed_files": sum(table.files for table in self.tables),
            "removed_bytes": sum(table.bytes for table in self.tables),
            "removed_log_files": sum(table.log_files for table in self.tables),
            "data_files": sum((table.after or table.before).files for table in self.tables),
        }


def maintain(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    streams: "Sequence[Stream]",
    keep: timedelta = KEEP,
    dry_run: bool = False,
) -> Maintenance:
    """Compact the small files of a stream's tables, and remove files and commits that nothing needs.

    Needed is what a reader continues from, what a batch that must be repeated reads, what a check compares next, and
    everything since the moment to which streams may be rewound. With a time shorter than seven days a query of
    another program may lose its files, as with VACUUM; the leases of all readers are then held.

    Args:
        engine: Where Spark sessions come from; not asked where nothing is to compact.
        streams: The streams of all pipelines of the target, which show who reads what.
        keep: How far back streams may be rewound.
        dry_run: Whether it is planned only, which needs neither a lease nor Spark.

    Raises:
        TidemillError: A checkpoint of the lake cannot be read.
    """
    records = StreamRecords(target.lake, stream.name)
    if records.manifest() is None:
        return Maintenance(stream=stream.name, outcome="idle")
    maintaining = _Maintaining(stream, target, engine, streams, keep)
    if dry_run:
        return Maintenance(stream=stream.name, outcome="planned", tables=maintaining.plan())
    try:
        with maintaining.leases() as lease:
            tables = maintaining.plan()
            if not any(table.changes for table in tables):
                return Maintenance(stream=stream.name, outcome="idle", tables=tables)
            return Maintenance(
                stream=stream.name, outcome="maintained", tables=maintaining.apply(tables, lease)
            )
    except LeaseHeldError as error:
        return Maintenance(stream=stream.name, outcome="busy", reason=f"{error.stream}: {error.what}")


@dataclass(frozen=True, slots=True)
class _Maintaining:
    """The maintenance of the tables of one stream."""

    stream: "Stream"
    target: "Target"
    engine: "Engine"
    streams: "Sequence[Stream]"
    keep: timedelta

    @contextmanager
    def leases(self) -> "Iterator[Lease]":
        """Hold the leases of the stream, which is yielded, and of the readers whose needs no checkpoint shows.

        A reader that is about to begin decides by what is there whether it reads the log or a snapshot. A reader with
        a position needs nothing before it; a file that was removed a moment ago it may just be reading.
        """
        readers = [reader for reader in self.streams if self.stream.name in reader.upstreams]
        for stream in (self.stream, *readers):
            operation = StreamRecords(self.target.lake, stream.name).operation()
            # That of a reader may read the table from its beginning, with a checkpoint of its own.
            if operation is not None and (operation.publishing or stream is not self.stream):
                raise LeaseHeldError(unfinished_error(operation, stream.name).what, stream=stream.name)
        if self.keep >= KEEP:
            readers = without_position(self.stream, self.target.lake, readers)
        with ExitStack() as held:
            own, *_ = [
                held.enter_context(holding(StreamRecords(self.target.lake, stream.name), run_id_of(KIND)))
                for stream in (self.stream, *readers)
            ]
            yield own

    def plan(self) -> tuple[TableMaintenance, ...]:
        """Return what would be done to each table."""
        horizons = self._horizons()
        paths = ((sink, self._path(sink)) for sink in sinks_of(self.stream))
        return tuple(
            self._planned(path, horizons.needs(self.stream, sink), horizons.since)
            for sink, path in paths
            if path.open() is not None
        )

    def apply(self, before: tuple[TableMaintenance, ...], lease: "Lease") -> tuple[TableMaintenance, ...]:
        """Maintain each table as planned."""
        self._compact([table.table for table in before if table.small_files], lease)
        horizons = self._horizons()
        done = []
        for sink, planned in zip(self._sinks(), before, strict=True):
            needs = horizons.needs(self.stream, sink)
            files = self._removable(planned.table, needs, horizons.since)
            log_files = obsolete_log_files(planned.table, _horizon(planned.table, needs))
            # The log's oldest files first: what a kill leaves has no hole.
            planned.table.store.delete([*_with_checksums(planned.table, files), *log_files])
            done.append(
                replace(
                    planned,
                    after=size_of(planned.table),
                    files=len(files),
                    bytes=sum(file.bytes for file in files),
                    log_files=len(log_files),
                )
            )
        return tuple(done)

    def _sinks(self) -> list[str]:
        return [sink for sink in sinks_of(self.stream) if self._path(sink).open() is not None]

    def _path(self, sink: str) -> TableRef:
        return self.target.lake.table(self.stream.name, sink)

    def _horizons(self) -> Horizons:
        since = datetime.now(UTC) - self.keep
        return Horizons(
            lake=self.target.lake,
            streams=self.streams,
            positions=positions(self.target.lake, since),
            since=since,
        )

    def _planned(self, path: TableRef, needs: Sequence[Need], since: datetime) -> TableMaintenance:
        table = path.open()
        if table is None:
            raise FileNotFoundError(path.uri)
        files = self._removable(path, needs, since)
        horizon = _horizon(path, needs)
        return TableMaintenance(
            table=path,
            version=table.version(),
            before=size_of(path),
            small_files=small_files(table),
            files=len(files),
            bytes=sum(file.bytes for file in files),
            log_files=len(obsolete_log_files(path, horizon)),
            horizon=horizon,
            held_by=tuple(dict.fromkeys(need.who for need in needs if need.version < table.version()))[
                :_SHOWN
            ],
        )

    def _removable(self, path: TableRef, needs: Sequence[Need], since: datetime) -> list[DataFile]:
        table = path.open()
        return [] if table is None else removable(path, table, needs, since)

    def _compact(self, paths: list[TableRef], lease: "Lease") -> None:
        """Compact tables with Spark; a compaction changes no row, and readers pass over it."""
        if not paths:
            return
        with session(self.engine, lease) as spark:
            for key, value in {
                **self.stream.query.confs(self.engine.default_partitions()),
                "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
                "spark.databricks.delta.optimize.maxFileSize": str(2 * SMALL_BYTES),
            }.items():
                spark.conf.set(key, value)
            classic.use_scheduler_pool(spark, str(self.stream.name))
            for path in paths:
                spark.sql(f"OPTIMIZE {path.sql}").collect()


def _horizon(path: TableRef, needs: Sequence[Need]) -> int:
    """Return the oldest version of a table that something needs; its newest where nothing does."""
    return min((need.version for need in needs), default=path.log.latest_version() or 0)


def _with_checksums(table: TableRef, files: Sequence[DataFile]) -> Iterator[str]:
    """Yield the keys of data files, and of the checksum that Hadoop wrote for each."""
    for file in files:
        folder, _, name = f"{table.key}/{file.name}".rpartition("/")
        yield from (f"{folder}/{name}", f"{folder}/.{name}.crc")


def _size(row: Row) -> Row:
    size: Row = row["after"] or row["before"]
    return size


def _log_files(row: Row) -> str:
    removed = "-" if row["after"] is None else "removed "
    return f"{_size(row)['log_files']:,}, {removed}{row['removed_log_files']:,}"


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Table", lambda row: Path(row["table"]).name, whole=True),
    Column("Files", lambda row: _size(row)["files"], right=True),
    Column("MB", lambda row: megabytes(_size(row)["bytes"]), right=True),
    Column("Compact", "small_files", right=True),
    Column("Remove", "removed_files", right=True),
    Column("MB", lambda row: megabytes(row["removed_bytes"]), right=True),
    Column("Log files", _log_files, right=True),
    Column("Horizon", lambda row: f"{row['horizon']} of {row['version']}", right=True),
)


def _item(maintenance: Maintenance) -> dict[str, Any]:
    return {
        "stream": str(maintenance.stream),
        "outcome": maintenance.outcome,
        "reason": maintenance.reason,
        "tables": [
            {
                "table": str(table.table),
                "version": table.version,
                "before": asdict(table.before),
                "after": None if table.after is None else asdict(table.after),
                "small_files": table.small_files,
                "removed_files": table.files,
                "removed_bytes": table.bytes,
                "removed_log_files": table.log_files,
                "horizon": table.horizon,
                "held_by": list(table.held_by),
            }
            for table in maintenance.tables
        ],
    }


def _report(maintenances: Sequence[Maintenance], *, changed: bool) -> Report:
    del changed  # the table has both sizes
    items = list(map(_item, maintenances))
    rows = rows_of(items, "tables")
    busy = [f"{item['stream']}: busy: {item['reason']}" for item in items if item["outcome"] == "busy"]
    held = [f"{Path(row['table']).name}: kept for {who}." for row in rows for who in row["held_by"]]
    lines = (*busy, *held, f"{pluralize(len(items), 'stream')}.")
    return Report(items=items, columns=_COLUMNS, rows=rows, lines=lines)


def _apply(stream: "Stream", *, target: "ResolvedTarget", engine: "Engine", **arguments: Any) -> Maintenance:
    return maintain(stream, target, engine, streams=target.pipelines().every_stream(), **arguments)


MAINTAIN = OperationSpec(
    kind=KIND,
    summary="Compact the small files of tables, and remove files and commits that no reader, check or rewind needs.",
    description="A stream that a run holds is busy, which is not a failure. Spark starts only to compact files.",
    apply=_apply,
    arguments=(
        Argument(
            name="keep",
            help="How far back streams can be rewound afterwards: 7d, 12h. With less than 7d, running queries of "
            "other programs can fail.",
            default="7d",
            metavar="DURATION",
            read=flag_duration,
        ),
    ),
    report=_report,
)
