"""Registrar: the tables of a stream get their names in a catalog, and the stream's records what the catalog said.

A name that leads elsewhere is never changed, and a name that somebody has dropped is registered again. Neither fails a
run, whose rows are in the table all the same: the record, the warnings of the run, `status` and a check show it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.catalog.comments import Comments, comments_of, of_columns, write_comments
from tidemill.catalog.entry import SESSION_CATALOG, Entry, create_schema, entry_of, forgets_tables, reason_of
from tidemill.catalog.names import names_of
from tidemill.records.registrations import Registration, Registrations, State
from tidemill.storage.locations import is_same_location
from tidemill.text.catalog_name import CatalogName, sql_string
from tidemill.text.durations import now_iso
from tidemill.text.names import QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.stream import Stream
    from tidemill.records.batch import BatchRecord
    from tidemill.records.stream_records import StreamRecords
    from tidemill.storage.table_ref import TableRef
    from tidemill.target.target import Target


@dataclass(slots=True)
class Registrar:
    """Registers the tables of one stream, each once.

    Attributes:
        records: The records of the stream, in the lake of the target.
        spark: The session that the catalog is asked by.
        check_lease: Raises where another run has taken the stream over; called before each write.
        names: The names of the tables by sink.
    """

    stream: "Stream"
    records: "StreamRecords"
    spark: "SparkSession"
    check_lease: Callable[[], None]
    names: Mapping[str, CatalogName]
    _before: Registrations = field(init=False)
    _asked: dict[str, Registration] = field(init=False, default_factory=dict)
    _columns: dict[str, Mapping[str, str]] = field(init=False)
    _commented: dict[str, Comments] = field(init=False, default_factory=dict)
    _not_commented: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._before = self.records.registrations()
        self._columns = dict(self._before.comments)

    @classmethod
    def of(
        cls,
        stream: "Stream",
        target: "Target",
        records: "StreamRecords",
        spark: "SparkSession",
        check_lease: Callable[[], None],
    ) -> "Registrar | None":
        """Return the registrar of a stream; None where no catalog has its tables, or they are those of an operation."""
        names = names_of(stream, target) if records.lake == target.lake else {}
        return cls(stream, records, spark, check_lease, names) if names else None

    @property
    def tables(self) -> Mapping[str, Registration]:
        """What the catalog said, by sink."""
        return self._asked

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the registrations, in sentences."""
        return tuple(one.detail for one in self._asked.values() if one.detail)

    def comment(self, output: "StructType | None" = None) -> None:
        """Write the comments that tables lack; no query of the stream may run.

        Args:
            output: The columns of the output of the stream's query; None for those of its last query.

        Raises:
            LeaseLostError: Another run has taken the stream over.
        """
        if output is not None:
            self._columns = {sink.name: of_columns(sink.table_schema(output)) for sink in self.stream.tables}
        for sink in self.names:
            comments = comments_of(self.stream, sink, self._columns.get(sink, {}))
            if self._commented.get(sink) != comments:
                self.check_lease()
                self._comment(sink, comments)

    def _comment(self, sink: str, comments: Comments) -> None:
        """Write the comments of a table; that they are missing is a warning, and fails no run."""
        try:
            if write_comments(self.spark, self.records.table(sink), comments):
                self._commented[sink] = comments
        except Exception as error:  # noqa: BLE001 - whatever Spark raises
            self._not_commented[sink] = reason_of(error)

    def take(self, lines: "Sequence[BatchRecord]") -> None:
        """Register the tables after the first batches of a run, and the quarantine after its first records.

        Args:
            lines: The batches that have ended.

        Raises:
            LeaseLostError: Another run has taken the stream over.
        """
        refused = QUARANTINE not in self._asked and any(line.rows_quarantined for line in lines)
        if refused or not self._asked:
            self.register()

    def register(self) -> None:
        """Register the tables that exist, each once, and record what the catalog said.

        Raises:
            LeaseLostError: Another run has taken the stream over.
        """
        before = len(self._asked)
        for sink, name in self.names.items():
            table = self.records.table(sink)
            if sink not in self._asked and table.log.latest_version() is not None:
                self.check_lease()
                self._asked[sink] = self._registered(sink, name, table)
        if len(self._asked) > before:
            self.records.write_registrations(
                Registrations(tables={**self._kept(), **self._asked}, comments=self._columns)
            )

    def _kept(self) -> dict[str, Registration]:
        """Return what is recorded of the tables that still have a name."""
        return {sink: one for sink, one in self._before.tables.items() if sink in self.names}

    def _registered(self, sink: str, name: CatalogName, table: "TableRef") -> Registration:
        """Register a table unless its name is taken; return what the catalog said."""
        before = self._before.tables.get(sink)
        was_there = (
            before is not None and before.name == str(name) and before.state in ("registered", "dropped")
        )
        state, detail = self._asked_and_created(sink, name, table, was_there=was_there)
        if not detail and (reason := self._not_commented.get(sink)):
            detail = f"The comments of {name} were not written: {reason}."
        if not detail and before is not None and before.name != str(name):
            detail = (
                f"{name} was registered as {before.name} before, and that name may still be there. "
                f"Fix: DROP TABLE {CatalogName.parse(before.name, field='name').sql}, which leaves its files."
            )
        return Registration(
            name=str(name), location=table.uri, state=state, asked_at=now_iso(), detail=detail
        )

    def _asked_and_created(
        self, sink: str, name: CatalogName, table: "TableRef", *, was_there: bool
    ) -> tuple[State, str]:
        """Return the state of a name and what is wrong; a table whose name is free is registered."""
        try:
            if forgets_tables(self.spark, name):
                return "unknown", _in_memory(name)
            entry = entry_of(self.spark, name)
            is_new = entry is None
            if entry is None:
                self._create(sink, name, table)
                entry = entry_of(self.spark, name)  # somebody else may have been faster
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises
            return "unknown", (
                f"{name} was not registered: {reason_of(error)}. The rows are in {table.uri} all the same. "
                f"Fix: the catalog or the permissions; then tidemill register {self.stream.name}"
            )
        if entry is None or not _leads_to(entry, table):
            return "moved", self._moved(name, entry, table)
        return ("dropped", _dropped(name)) if is_new and was_there else ("registered", "")

    def _create(self, sink: str, name: CatalogName, table: "TableRef") -> None:
        create_schema(self.spark, name)
        comment = comments_of(self.stream, sink, {}).table
        clause = f" COMMENT {sql_string(comment)}" if comment else ""
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name.sql} USING delta{clause} LOCATION {sql_string(table.uri)}"
        )

    def _moved(self, name: CatalogName, entry: Entry | None, table: "TableRef") -> str:
        return (
            f"{name} is {entry or 'missing'} in the catalog, and the table of the stream is at {table.uri}: it was "
            f"left as it is. Fix: if that registration is wrong, DROP TABLE {name.sql} (of a managed table it deletes "
            f"the files), then tidemill register {self.stream.name}; or give the table another name, with table= of "
            "its sink or schema of the target."
        )


def _leads_to(entry: Entry, table: "TableRef") -> bool:
    return entry.location is not None and is_same_location(entry.location, table.uri)


def _dropped(name: CatalogName) -> str:
    return (
        f"{name} was no longer in the catalog: somebody had dropped it, and this run has registered it again."
    )


def _in_memory(name: CatalogName) -> str:
    return (
        f"{name} was not registered: {SESSION_CATALOG} is in memory here, and forgets its tables when Spark ends. "
        'Fix: set "spark.sql.catalogImplementation" = "hive" in [targets.<name>.spark.conf], or name another catalog.'
    )
