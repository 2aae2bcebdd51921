"""Registration of a stream's tables in a catalog now, and not with the next run that has something to read.

For streams that were there before their target had a catalog, after a registration that led elsewhere was removed, and
for whoever wants to know what the catalog says today: runs ask it only where they start Spark anyway.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidemill.catalog.names import names_of
from tidemill.catalog.registrar import Registrar
from tidemill.errors import LeaseHeldError
from tidemill.operations.core.change import Outcome
from tidemill.operations.core.spec import OperationSpec
from tidemill.operations.core.steps import holding, run_id_of, session
from tidemill.records.stream_records import StreamRecords
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.records.registrations import Registration
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target
    from tidemill.text.catalog_name import CatalogName

KIND = "register"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registering(Outcome):
    """The tables of a stream that are registered, or were.

    Attributes:
        outcome: `planned`, `registered`, `idle` where no catalog has a table of the stream, or `busy` where a run holds
            the lease.
        names: The names of the tables that exist, by sink.
        tables: What the catalog said, or what it said to the last run, by sink.
        reason: Why it is busy.
    """

    outcome: Literal["planned", "registered", "idle", "busy"]
    names: "Mapping[str, CatalogName]"
    tables: "Mapping[str, Registration]"
    reason: str = ""

    @property
    def changes(self) -> bool:
        """Whether the catalog is asked."""
        return bool(self.names)

    @property
    def summary(self) -> str:
        """What the catalog said, or why it was not asked."""
        details = " ".join(one.detail for one in self.tables.values() if one.detail)
        tables = ", ".join(f"{one.name} {one.state}" for one in self.tables.values())
        return " ".join(filter(None, (self.outcome, self.reason or tables, details)))


def register(stream: "Stream", target: "Target", engine: "Engine", *, dry_run: bool = False) -> Registering:
    """Register the tables of a stream in its catalog, with their comments; names that lead elsewhere stay.

    Args:
        stream: The stream.
        target: The target.
        engine: Where Spark sessions come from; not asked for a plan.
        dry_run: Whether it is planned only, which needs neither a lease nor Spark.
    """
    records = StreamRecords(target.lake, stream.name)
    names = {
        sink: name
        for sink, name in names_of(stream, target).items()
        if records.table(sink).log.latest_version() is not None
    }
    before = {sink: one for sink, one in records.registrations().tables.items() if sink in names}
    if not names or dry_run:
        outcome: Literal["planned", "idle"] = "planned" if names else "idle"
        return Registering(stream=stream.name, outcome=outcome, names=names, tables=before)
    try:
        with holding(records, run_id_of(KIND)) as lease, session(engine, lease) as spark:
            registrar = Registrar.of(stream, target, records, spark, lease.check)
            if registrar is not None:
                registrar.comment()
                registrar.register()
    except LeaseHeldError as error:
        return Registering(stream=stream.name, outcome="busy", names=names, tables=before, reason=error.what)
    tables = {sink: one for sink, one in records.registrations().tables.items() if sink in names}
    return Registering(stream=stream.name, outcome="registered", names=names, tables=tables)


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Name", "name", whole=True),
    Column("State", "state", whole=True),
    Column("Location", "location"),
)


def _item(one: Registering) -> dict[str, Any]:
    tables = [
        {"sink": sink, **asdict(one.tables[sink])} if sink in one.tables else _unregistered(sink, name)
        for sink, name in one.names.items()
    ]
    return {"stream": str(one.stream), "outcome": one.outcome, "reason": one.reason, "tables": tables}


def _unregistered(sink: str, name: "CatalogName") -> dict[str, Any]:
    return {
        "sink": sink,
        "name": str(name),
        "location": None,
        "state": None,
        "asked_at": None,
        "detail": "",
    }


def _report(outcomes: "Sequence[Registering]", *, changed: bool) -> Report:
    items = list(map(_item, outcomes))
    rows = rows_of(items, "tables")
    if changed:
        count = sum(one.outcome == "registered" for one in outcomes)
        return Report(
            items=items, lines=(f"Done: the catalog was asked about {pluralize(count, 'stream')}.",)
        )
    if not rows:
        return Report(items=items, lines=("No catalog has tables of these streams.",))
    return Report(items=items, columns=_COLUMNS, rows=rows)


REGISTER = OperationSpec(
    kind=KIND,
    summary="Register the tables of streams in the catalog of the target, and show what the catalog says about them.",
    description="Runs do the same after their first commit. A name that leads to another table stays. A stream "
    "that a run holds is busy, which is not a failure.",
    apply=register,
    question="Register them?",
    report=_report,
)
