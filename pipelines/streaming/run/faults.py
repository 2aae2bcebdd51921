"""Named points of a run at which a test can stop it for good.

`TIDEMILL_PAUSE_AT="shop/orders:after-sink"` makes the run of that stream stop and wait there; a test then kills
it with SIGKILL. Several, parted by spaces, stop several streams of one process. `TIDEMILL_PAUSE_FILE` names a file
that gets a line for each point that was reached. Without the variable a point costs one look at the environment.
"""

import os
import time
from pathlib import Path
from typing import Literal

from pipelines.streaming.names import StreamName

Point = Literal["before-batch", "after-quarantine", "between-sinks", "after-sink", "before-ledger"]


def pause_point(point: Point, stream: StreamName) -> None:
    """Stops here for good when the environment says so."""
    here = f"{stream}:{point}"
    if here not in os.environ.get("TIDEMILL_PAUSE_AT", "").split():
        return
    if marker := os.environ.get("TIDEMILL_PAUSE_FILE"):
        with Path(marker).open("a", encoding="utf-8") as file:
            file.write(f"{here}\n")
    while True:
        time.sleep(60)
