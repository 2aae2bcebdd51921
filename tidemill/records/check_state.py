"""What the checks of a stream record for the next time: up to where they have compared, and what waited then.

It is a cache. Without it, or with one that does not fit the checkpoint, the checks begin with the batches that the
checkpoint still has. The file keeps a check as quick after ten thousand batches as after ten, which nothing else
could: the ledger has what a run wrote, and not what has been compared with the logs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidemill.storage.store import Store

_KEY = "checks.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Up to where `exactly_once` has compared ledger, offsets and tables and found nothing.

    Attributes:
        generation: The generation of the checkpoint.
        batch: The newest batch.
        versions: The version of each table up to which its commits are accounted for, by sink name.
        end_offsets: Where each source ended after that batch, as in the ledger.
        sinks: The newest batch that each sink had that is no table and knows it, by sink name.
    """

    generation: int
    query_id: str
    batch: int
    versions: Mapping[str, int] = field(default_factory=dict)
    end_offsets: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checks of a stream record.

    Attributes:
        position: The position of `exactly_once`; None before it has found all in order.
        backlog: How much was unread, by source.
        waiting_since: Since when unread data has waited while no batch was committed, ISO-8601 UTC; None where
            nothing waits.
        waiting_batch: The last committed batch then.
        sinks_behind: The newest batch of each sink that had lost some since the position, when a run began; None where
            it had lost all.
    """

    position: Position | None = None
    backlog: Mapping[str, int] = field(default_factory=dict)
    waiting_since: str | None = None
    waiting_batch: int | None = None
    sinks_behind: Mapping[str, int | None] = field(default_factory=dict)


def read_checked(files: Store) -> Checked | None:
    """Return what the checks have recorded; None where there is nothing that can be read."""
    try:
        fields = json.loads(files.read(_KEY))
        position = fields.pop("position")
        return Checked(**fields, position=None if position is None else Position(**position))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_checked(files: Store, checked: Checked) -> None:
    """Replace the record atomically."""
    files.replace(_KEY, json.dumps(asdict(checked)).encode())
