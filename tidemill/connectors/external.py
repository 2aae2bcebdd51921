"""External data: what streams read and no stream writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SOURCE = "tidemill/source"
"""The metadata entry with the topic, pattern or path as it was declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalData:
    """What streams read and no stream of the pipeline writes.

    Attributes:
        path: The parts of its asset key, valid in Dagster whatever the original is (`external_keys.py`):
            `("feed", "ad-clicks")`, `("kafka", <cluster>, <topic>)`, `("kafka", <cluster>, "pattern", ...)`,
            `("files", <folders> ...)`, `("delta", <folders> ...)`.
        kind: `kafka`, `file` or `deltalake`; None where only the target decides and there is none.
        description: A short description.
        metadata: Further facts; `tidemill/source` is the topic, pattern or path as it was declared.
    """

    path: tuple[str, ...]
    kind: str | None = None
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
