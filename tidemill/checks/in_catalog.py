"""The check `in_catalog`: a catalog has the tables of a stream at their locations, as it said to the last run."""

from typing import TYPE_CHECKING

from tidemill.catalog.names import names_of
from tidemill.checks.result import CheckResult
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext

NAME = "in_catalog"


def in_catalog(context: "CheckContext") -> CheckResult:
    """Return whether the catalog had each table of the stream when a run last asked it.

    A name that leads elsewhere is an error. A table that somebody had dropped, that could not be registered, or that no
    run has registered yet, is a warning.
    """
    records = context.snapshot.records
    names, recorded = names_of(context.stream, context.target), records.registrations().tables
    known = {sink: one for sink, one in recorded.items() if sink in names and one.name == str(names[sink])}
    wrong = [one for one in known.values() if not one.is_in_order]
    missing = [
        name
        for sink, name in names.items()
        if sink not in known and records.table(sink).log.latest_version() is not None
    ]
    sentences = [one.detail for one in known.values() if one.detail]
    sentences += [
        f"{name} is not registered yet. Fix: tidemill register {context.stream.name}" for name in missing
    ]
    return CheckResult(
        name=NAME,
        passed=not wrong and not missing,
        severity="error" if any(one.state == "moved" for one in wrong) else "warn",
        summary="\n".join(sentences) or f"The catalog has {pluralize(len(known), 'table')} of the stream.",
        numbers={"registered": len(known) - len(wrong), "not_in_order": len(wrong) + len(missing)},
    )
