"""What a replay does, or has done, for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.operations.core.change import Change
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.text.names import StreamName


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What today's schema and rules say about refused records.

    Attributes:
        records: How many records there are.
        passed: How many violate no rule.
        passed_rows: The rows of the output among these.
        held: Those that no replay can move, by kind.
        changed: How many still violate a rule, and others than before.
        by_rule: Those that violate each rule, most frequent first.
    """

    records: int = 0
    passed: int = 0
    passed_rows: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    changed: int = 0
    by_rule: Mapping[str, int]

    @property
    def stay(self) -> int:
        """How many stay in quarantine."""
        return self.records - self.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Change):
    """A replay that is planned, or done.

    Attributes:
        verdict: What today's schema and rules say about the records.
        operation: The id of the operation, once it has changed something.
    """

    verdict: Verdict
    operation: str | None = None

    @classmethod
    def of(
        cls,
        stream: "StreamName",
        verdict: Verdict,
        *,
        operation: str | None = None,
        effects: tuple[str, ...] = (),
        again: int = 0,
    ) -> "Replay":
        """Return a replay with what it does in a sentence.

        Args:
            verdict: What today's schema and rules say about the records.
            operation: The id of the operation, once it has changed something.
            effects: What follows from it, one sentence each.
            again: The rows of the records that moved which expectations have sent to quarantine.
        """
        back = f" {pluralize(again, 'row')} of them went back to quarantine." if again else ""
        records, moved = pluralize(verdict.records, "record"), pluralize(verdict.passed, "record")
        return cls(
            stream=stream,
            what=f"{verdict.passed:,} of {records} in quarantine pass today's schema and rules."
            if verdict.records
            else "The quarantine has no record of a committed batch.",
            effects=effects,
            outcome="" if operation is None else f"{moved} moved.{back}",
            verdict=verdict,
            operation=operation,
        )

    @property
    def changes(self) -> bool:
        """Whether a record moves, or stays for other reasons than before."""
        return bool(self.verdict.passed or self.verdict.changed)

    @property
    def item(self) -> dict[str, Any]:
        """The replay as JSON."""
        verdict = self.verdict
        return {
            "stream": str(self.stream),
            "records": verdict.records,
            "moved": verdict.passed,
            "kept": verdict.stay,
            "changed_rules": verdict.changed,
            "rules": dict(verdict.by_rule),
            "operation": self.operation,
            "what": self.what,
            "effects": list(self.effects),
        }


def effects_of(
    stream: "Stream", verdict: Verdict, readers: "Sequence[Stream]", reasons: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what follows from a replay, one sentence each.

    Args:
        verdict: What today's schema and rules say about its refused records.
        readers: The streams that may read its table.
        reasons: Why a kind of record cannot be replayed, by kind.
    """
    effects = []
    if records := verdict.passed - verdict.passed_rows:
        effects.append(f"{pluralize(records, 'record')} move through the function into the table.")
    if verdict.passed_rows:
        effects.append(
            f"{pluralize(verdict.passed_rows, 'row')} of the output move into the table as they are."
        )
    if verdict.stay:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in verdict.by_rule.items())
        effects.append(f"{pluralize(verdict.stay, 'record')} stay in quarantine: {rules}.")
    if verdict.changed:
        effects.append(f"Of those, {pluralize(verdict.changed, 'record')} violate other rules than before.")
    effects += [
        f"Of those, {pluralize(number, 'record')} cannot be replayed: {reasons[kind]}."
        for kind, number in verdict.held.items()
    ]
    late = [
        (reader.name, source.watermark.column)
        for reader in (readers if verdict.passed else ())
        for source in reader.sources.values()
        if source.upstream == stream.name and source.watermark is not None
    ]
    effects += [
        f"{name} reads the table with a watermark on {column!r}: of the moved rows it drops those that are behind it, "
        "as late rows."
        for name, column in late
    ]
    return tuple(effects)
