"""The Delta versions of static readings, written down before a batch can use them.

A repeat of the batch then joins the same rows.
"""

import json
from dataclasses import asdict, dataclass

from tidemill.storage.store import Store

_KEY = "pins.json"


@dataclass(frozen=True, slots=True)
class Pins:
    """Pinned versions.

    Attributes:
        first_batch: The first batch that uses them.
        versions: The Delta version of each static reading, by source name.
    """

    first_batch: int
    versions: dict[str, int]


def read_pins(files: Store) -> Pins | None:
    """Return the pins of the run before; None where there are none."""
    try:
        return Pins(**json.loads(files.read(_KEY)))
    except FileNotFoundError:
        return None


def write_pins(files: Store, pins: Pins) -> None:
    """Write the pins of this run."""
    files.replace(_KEY, json.dumps(asdict(pins)).encode())
