"""What operators keep state for, recorded in the manifest and compared by the next run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulOperator:
    """A stateful operator of a query, as data that is the same in every process.

    Attributes:
        kind: What it is: `aggregate`, `session window`, `deduplicate`, `stream-stream join`, ...
        properties: What decides the meaning of its state, by name, in terms of the columns of the sources.
    """

    kind: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """A change of operators that a person has accepted.

    Attributes:
        accepted_at: ISO-8601 UTC.
        last_batch: The last batch of the operators before.
        differences: What has changed, a clause each.
        before: The operators before; None where they were not known.
    """

    accepted_at: str
    last_batch: int
    differences: tuple[str, ...]
    before: tuple[StatefulOperator, ...] | None = None


def operators_from_json(content: Sequence[Mapping[str, Any]] | None) -> tuple[StatefulOperator, ...] | None:
    """Return operators that were written as JSON; None where none were recorded."""
    return None if content is None else tuple(StatefulOperator(**operator) for operator in content)


def accepted_from_json(content: Mapping[str, Any]) -> AcceptedChange:
    """Return an accepted change that was written as JSON."""
    return AcceptedChange(
        accepted_at=content["accepted_at"],
        last_batch=content["last_batch"],
        differences=tuple(content["differences"]),
        before=operators_from_json(content["before"]),
    )
