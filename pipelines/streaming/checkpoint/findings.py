"""What `verify` found: each finding with a stable code, what it means and what mends it."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
Level = Literal["quick", "full"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        code: A stable name in kebab case.
        severity: `error`: the next start fails or loses rows. `warning`: it will not, but something is not as
            Spark leaves it. `info`: worth knowing.
        where: The file or folder, relative to the checkpoint; empty for the checkpoint as a whole.
        what: What is there and what it means.
        mend: What to do; empty when there is nothing to do.
    """

    code: str
    severity: Severity
    where: str
    what: str
    mend: str
