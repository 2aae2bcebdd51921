"""What a replay does, or has done, for people."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.operations.core.change import Change
from tidemill.operations.quarantine.validation import Verdict
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.text.names import StreamName


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
    ) -> "Replay":
        """Return a replay with what it does in a sentence.

        Args:
            verdict: What today's schema and rules say about the records.
            operation: The id of the operation, once it has changed something.
            effects: What follows from it, one sentence each.
        """
        records, moved = pluralize(verdict.records, "record"), pluralize(verdict.passed, "record")
        return cls(
            stream=stream,
            what=f"{verdict.passed:,} of {records} in quarantine pass today's schema and rules."
            if verdict.records
            else "The quarantine has no record of a committed batch.",
            effects=effects,
            outcome="" if operation is None else f"{moved} moved.",
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


def effects_of(stream: "Stream", verdict: Verdict, readers: "Sequence[Stream]") -> tuple[str, ...]:
    """Return what follows from a replay, one sentence each.

    Args:
        verdict: What today's schema and rules say about its refused records.
        readers: The streams that may read its table.
    """
    effects = []
    if verdict.passed:
        effects.append(f"{pluralize(verdict.passed, 'record')} move through the function into the table.")
    if verdict.stay:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in verdict.by_rule.items())
        effects.append(f"{pluralize(verdict.stay, 'record')} stay in quarantine: {rules}.")
    if verdict.changed:
        effects.append(f"Of those, {pluralize(verdict.changed, 'record')} violate other rules than before.")
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
