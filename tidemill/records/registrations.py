"""What a catalog said about the tables of a stream when a run last asked it.

Status and checks read it without Spark. A stream whose target has no catalog has no such file.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from tidemill.storage.store import Store

State = Literal["registered", "dropped", "moved", "unknown"]
_KEY = "catalog.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a catalog said about one table.

    Attributes:
        name: The table's name in the catalog.
        location: Where the table is.
        state: `registered`: the catalog has the name at the location. `dropped`: it no longer had the name, and the
            run has registered it again. `moved`: the name leads elsewhere, and the run has left it as it is.
            `unknown`: the catalog could not be asked, or refused the registration.
        asked_at: When it was asked, ISO-8601 UTC.
        detail: What is wrong and what fixes it, in sentences; empty where nothing is.
    """

    name: str
    location: str
    state: State
    asked_at: str
    detail: str = ""

    @property
    def is_in_order(self) -> bool:
        """Whether the catalog had the table at its location."""
        return self.state == "registered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrations:
    """The registrations of a stream.

    Attributes:
        tables: What the catalog said, by the name of the sink; `quarantine` is the stream's quarantine.
        comments: The comments of the columns of each table by sink, as the last query had them.
    """

    tables: Mapping[str, Registration] = field(default_factory=dict)
    comments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_registrations(files: Store) -> Registrations:
    """Return what is recorded; nothing where that is missing or cannot be read: the next run asks again."""
    try:
        content = json.loads(files.read(_KEY))
        return Registrations(
            tables={sink: Registration(**one) for sink, one in content["tables"].items()},
            comments={sink: dict(columns) for sink, columns in content["comments"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Registrations()


def write_registrations(files: Store, registrations: Registrations) -> None:
    """Replace the record atomically."""
    files.replace(_KEY, json.dumps(asdict(registrations), indent=2).encode())
