"""The registry of operations. A new one is declared in a module of its own and named here, and has command and job."""

from tidemill.operations.edits.accept import ACCEPT
from tidemill.operations.edits.rebind import REBIND
from tidemill.operations.edits.rename_source import RENAME_SOURCE
from tidemill.operations.generations.adopt import ADOPT
from tidemill.operations.generations.reset import RESET
from tidemill.operations.generations.rewind import REWIND
from tidemill.operations.housekeeping.maintain import MAINTAIN
from tidemill.operations.housekeeping.prune import PRUNE
from tidemill.operations.housekeeping.register import REGISTER
from tidemill.operations.quarantine.quarantine_replay import REPLAY
from tidemill.operations.replay.backfill import BACKFILL
from tidemill.operations.replay.rebuild import REBUILD

OPERATIONS = {
    spec.kind: spec
    for spec in (
        BACKFILL,
        REBUILD,
        REWIND,
        RESET,
        REPLAY,
        ACCEPT,
        REBIND,
        RENAME_SOURCE,
        ADOPT,
        PRUNE,
        MAINTAIN,
        REGISTER,
    )
}
"""Every operation, by its kind."""
