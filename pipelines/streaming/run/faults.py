"""Named points of a run at which a test can stop it for good.

`TIDEMILL_PAUSE_AT=after-target` makes the run stop and wait there; a test then kills it with SIGKILL.
`TIDEMILL_PAUSE_FILE` names a file that is made when the point is reached. Without the variable a point
costs one look at the environment.
"""

import os
import time
from pathlib import Path
from typing import Literal

Point = Literal["before-batch", "after-quarantine", "after-target", "before-ledger"]


def reach(point: Point) -> None:
    """Stops here for good when the environment says so."""
    if os.environ.get("TIDEMILL_PAUSE_AT") != point:
        return
    if marker := os.environ.get("TIDEMILL_PAUSE_FILE"):
        Path(marker).touch()
    while True:
        time.sleep(60)
