"""What a change of a stream's code does to the state that the old code left, decided without Spark.

Spark compares the types of state and the kinds of operators with those in the checkpoint. Anything else is accepted
without a message: the new code then continues sums, counts and keys that mean what the old code meant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidemill.errors import TerminalError
from tidemill.plans.operators import STATE_TYPES
from tidemill.records.manifest import StatefulOperator

if TYPE_CHECKING:
    from tidemill.checkpoint import Tail
    from tidemill.records.manifest import Generation
    from tidemill.text.names import StreamName

Kind = Literal["nothing", "safe", "unknown", "mixes_state", "refused_by_spark"]

_OPERATORS = "operators"
# Sources have rules of their own (run/decide/sources.py), and a function of the user may be another one.
_SAFE = {"sources", "function"}
_REFUSED = {_OPERATORS, STATE_TYPES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between the operators that the state belongs to and those of the code as it is now.

    Attributes:
        operator: The operator; empty where the operators themselves differ.
        name: The property.
        before: Its value when the state was written; empty where the operator did not have it.
        now: Its value now; empty where the operator no longer has it.
    """

    operator: str
    name: str
    before: str
    now: str

    def __str__(self) -> str:
        """Return the difference as a clause."""
        of = f"{self.operator}: " if self.operator else ""
        return f"{of}{self.name} {self.before or 'none'!r} -> {self.now or 'none'!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a change of code does.

    Attributes:
        kind: `nothing`: the code is the same. `safe`: Spark continues, and the state keeps its meaning. `unknown`: the
            operators of the state were not recorded, or the plan cannot be read. `mixes_state`: Spark continues, and
            the state mixes the old and the new meaning. `refused_by_spark`: Spark refuses to continue the state.
        differences: What differs in the stateful operators.
    """

    kind: Kind
    differences: tuple[Difference, ...] = ()


def verdict(
    generation: "Generation", tail: "Tail", operators: Sequence[StatefulOperator] | None, fingerprint: str
) -> Verdict:
    """Return what a change of code does to a stream.

    Args:
        generation: The active generation, with the operators that the state belongs to.
        operators: The operators of the code as it is now; None where its plan cannot be read.
        fingerprint: The fingerprint of that code.
    """
    same = generation.fingerprint == fingerprint
    has_committed = tail.latest_commit is not None
    recorded = generation.operators
    if not has_committed and (recorded is None or not tail.stateful):
        return Verdict(kind="nothing" if same else "safe")
    if recorded is None and not tail.stateful:
        recorded = ()
    if recorded is None or operators is None:
        return Verdict(kind="nothing" if same else "unknown")
    differences = tuple(_differences(recorded, operators))
    names = {difference.name for difference in differences}
    if names & _REFUSED:
        return Verdict(kind="refused_by_spark", differences=differences)
    if (
        names - _SAFE and has_committed
    ):  # a first batch is computed again, but Spark keeps the types of its attempt
        return Verdict(kind="mixes_state", differences=differences)
    return Verdict(kind="nothing" if same and not differences else "safe", differences=differences)


def check(stream: "StreamName", result: Verdict) -> None:
    """Refuse to run code that does not fit the state.

    Raises:
        TerminalError: Spark would refuse the code, or mix the old and the new meaning in the state.
    """
    if result.kind not in ("mixes_state", "refused_by_spark"):
        return
    outcome = (
        "Spark cannot continue the state of the old code"
        if result.kind == "refused_by_spark"
        else "Spark would continue the state of the old code and mix both meanings without an error"
    )
    what = "; ".join(map(str, result.differences))
    raise TerminalError(
        f"its code has changed: {what}. {outcome}.",
        stream=stream,
        fix=fix(stream, result.kind),
        code="code-changed",
    )


def fix(stream: "StreamName", kind: Kind) -> str:
    """Return what to run, or to edit, after a verdict; empty where no action is needed."""
    if kind not in ("mixes_state", "refused_by_spark"):
        return ""
    purpose = "to continue with mixed state" if kind == "mixes_state" else "to let Spark try it"
    return (
        f"edit the code back; or tidemill accept {stream} --change, {purpose}; or tidemill rebuild {stream}, to "
        "compute the table again from the sources."
    )


def _differences(
    recorded: Sequence[StatefulOperator], operators: Sequence[StatefulOperator]
) -> Iterator[Difference]:
    before, now = ([operator.kind for operator in side] for side in (recorded, operators))
    if before != now:
        yield Difference(operator="", name=_OPERATORS, before=", ".join(before), now=", ".join(now))
        return
    for number, (old, new) in enumerate(zip(recorded, operators, strict=True), start=1):
        operator = old.kind if before.count(old.kind) == 1 else f"{old.kind} ({number} of {len(before)})"
        for name in sorted({*old.properties, *new.properties}):
            values = old.properties.get(name, ""), new.properties.get(name, "")
            if values[0] != values[1] and not (name == STATE_TYPES and _are_compatible(*values)):
                yield Difference(operator=operator, name=name, before=values[0], now=values[1])


def _are_compatible(before: str, now: str) -> bool:
    """Return whether Spark continues state of these types: what was never null must not become nullable."""
    if not before or not now:
        return True  # Spark Connect does not show types
    position = 0
    kept = before.replace(" not null", "!")
    for character in now.replace(" not null", "!"):
        if kept[position : position + 1] == character:
            position += 1
        elif character != "!":
            return False
    return position == len(kept)
