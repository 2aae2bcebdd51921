"""StatefulOperator: what an operator keeps state for, recorded in the manifest and compared by the next run."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulOperator:
    """A stateful operator of a query, as data that is the same in every process.

    Attributes:
        kind: What it is: `aggregate`, `session window`, `deduplicate`, `stream-stream join`, ...
        properties: What decides the meaning of its state, by name, in terms of the columns of the sources.
    """

    kind: str
    properties: Mapping[str, str] = field(default_factory=dict)
