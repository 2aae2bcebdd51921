"""Named points of a run at which a test can pause it.

`TIDEMILL_PAUSE_AT="shop/orders:after-sink"` makes the run of that stream wait there; a test then kills it with
SIGKILL. Several points, separated by spaces, pause several streams of one process. `TIDEMILL_PAUSE_FILE` names a
file that gets a line per point that was reached; a file of that name with `.resume` behind it ends the pause. Without
the variable a point costs one lookup.
"""

import os
import time
from pathlib import Path

from tidemill.text.names import StreamName


def pause_point(point: str, stream: StreamName) -> None:
    """Wait here when the environment names this point.

    Args:
        point: The point: of a run `before-batch`, `after-quarantine`, `between-sinks`, `after-sink` or
            `before-ledger`; of an operation its name and that of the step that has just run.
    """
    here = f"{stream}:{point}"
    if here not in os.environ.get("TIDEMILL_PAUSE_AT", "").split():
        return
    marker = os.environ.get("TIDEMILL_PAUSE_FILE", os.devnull)
    with Path(marker).open("a", encoding="utf-8") as file:
        file.write(f"{here}\n")
    while not Path(f"{marker}.resume").exists():
        time.sleep(0.1)
