"""Changes of a stream outside a normal run, each decided by a person: accept, rebind, rename a source.

A change is planned first, and the plan can be printed. It is applied under the stream's lease, and every file of
the checkpoint that it replaces is copied to the control folder.
"""

from tidemill.operations.core.change import Change
from tidemill.operations.edits.accept import accept_change, accept_findings, accept_new_source, accept_version
from tidemill.operations.edits.code_changes import CodeChange, code_changes
from tidemill.operations.edits.rebind import rebind
from tidemill.operations.edits.rename_source import rename_source
from tidemill.operations.generations.adopt import adopt
from tidemill.operations.generations.reset import reset
from tidemill.operations.generations.rewind import rewind
from tidemill.operations.housekeeping.maintain import Maintenance, maintain
from tidemill.operations.housekeeping.prune import Pruning, prune
from tidemill.operations.quarantine.quarantine_replay import replay_quarantine
from tidemill.operations.quarantine.quarantine_view import Quarantine, quarantined
from tidemill.operations.quarantine.replay_plan import Replay
from tidemill.operations.replay.backfill import backfill, replay_range
from tidemill.operations.replay.coverage import Coverage, coverage
from tidemill.operations.replay.follow import follow_backfills
from tidemill.operations.replay.rebuild import rebuild

__all__ = [
    "Change",
    "CodeChange",
    "Coverage",
    "Maintenance",
    "Pruning",
    "Quarantine",
    "Replay",
    "accept_change",
    "accept_findings",
    "accept_new_source",
    "accept_version",
    "adopt",
    "backfill",
    "code_changes",
    "coverage",
    "follow_backfills",
    "maintain",
    "prune",
    "quarantined",
    "rebind",
    "rebuild",
    "rename_source",
    "replay_quarantine",
    "replay_range",
    "reset",
    "rewind",
]
