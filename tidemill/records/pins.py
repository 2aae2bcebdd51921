"""The Delta versions of static readings, written down before a batch can use them.

A repeat of the batch then joins the same rows.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemill.storage.atomic import replace_file


@dataclass(frozen=True, slots=True)
class Pins:
    """Pinned versions.

    Attributes:
        first_batch: The first batch that uses them.
        versions: The Delta version of each static reading, by source name.
    """

    first_batch: int
    versions: dict[str, int]


def read_pins(path: Path) -> Pins | None:
    """Return the pins of the run before; None where there are none."""
    try:
        return Pins(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write_pins(path: Path, pins: Pins) -> None:
    """Write the pins of this run."""
    replace_file(path, json.dumps(asdict(pins)))
