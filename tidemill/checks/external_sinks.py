"""The batches of a stream's sinks that are no tables: each sink that knows its newest batch has those before it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.errors import TidemillError
from tidemill.run.decide.sink_batches import is_behind, newest_batch
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.definitions.sink import Sink
    from tidemill.records.batch import BatchRecord
    from tidemill.records.check_state import Position

_RESTORE = "Restore the sink and the checkpoint of the same time."
_REFILL = "Restore a newer copy, or write the missing rows there yourself."


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReport:
    """What the sinks have of the batches.

    Attributes:
        findings: What is wrong, a sentence each.
        unknown: Which sinks could not be asked, and why, a sentence each.
        batches: The newest batch of each sink that knows it, by name.
    """

    findings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    batches: Mapping[str, int] = field(default_factory=dict)


def sink_report(
    context: "CheckContext", lines: "Mapping[int, BatchRecord]", before: "Position | None"
) -> SinkReport:
    """Compare the newest batch of each sink with the checkpoint.

    Args:
        lines: The ledger's lines of the batches to account for.
        before: What the check before has found in order.
    """
    findings, unknown, batches = [], [], {}
    for sink in context.stream.external_sinks:
        name, compared = f"{sink.kind} {sink.name!r}", lines
        try:
            newest = newest_batch(sink, context.target, context.snapshot)
        except TidemillError as error:
            unknown.append(f"The {name} does not report its newest batch: {error}")
            newest, compared = None if before is None else before.sinks.get(sink.name), {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            findings.append(
                f"The log of the {name} cannot be read ({type(error).__name__}: {error}). {_RESTORE}"
            )
            continue
        findings += [f"The {name} {what}" for what in _wrong(context, sink, newest, compared, before)]
        if newest is not None:
            batches[sink.name] = newest
    return SinkReport(findings=tuple(findings), unknown=tuple(unknown), batches=batches)


def _wrong(
    context: "CheckContext",
    sink: "Sink",
    newest: int | None,
    lines: "Mapping[int, BatchRecord]",
    before: "Position | None",
) -> Iterator[str]:
    """Yield what is wrong with the newest batch of a sink."""
    last_commit, has = context.snapshot.last_commit, _has(newest)
    accept = f"{_REFILL} Then: tidemill accept {context.stream.name} --findings."
    behind = {} if before is None or context.before is None else context.before.sinks_behind
    if newest is not None and newest > last_commit + 1:
        yield (
            f"{has}, and the checkpoint ends at batch {last_commit}: the checkpoint is older than the sink, or another "
            f"program writes there as this stream. The sink would take no batch up to {newest}. {_RESTORE}"
        )
    elif before is not None and (sink.name in behind or is_behind(sink, newest, before)):
        when = ""
        if sink.name in behind:
            has, when = _has(behind[sink.name], "had", "ended"), " when a run began"
        yield (
            f"{has}{when}, and had batch {before.sinks.get(sink.name)} at the last check: an older copy was restored, "
            f"or its log is damaged, and the rows in between are missing there. {accept}"
        )
    elif newest is not None:
        missing = [batch for batch, line in lines.items() if batch > newest and _has_rows(line)]
        if missing:
            yield (
                f"{has}, and the checkpoint ends at batch {last_commit}: the rows of "
                f"{pluralize(len(missing), 'batch')} from batch {min(missing)} on are missing there. {accept}"
            )


def _has(batch: int | None, has: str = "has", ends: str = "ends") -> str:
    return f"{has} no batch" if batch is None else f"{ends} at batch {batch}"


def _has_rows(line: "BatchRecord") -> bool:
    """Return whether a batch certainly had rows for the sinks, which need not know one without rows."""
    return bool(line.rows_written or line.rows_ignored)
