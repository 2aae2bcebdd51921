"""Changes of a stream outside a normal run, each decided by a person: accept, rebind, rename a source.

A change is planned first, and the plan can be printed. It is applied under the stream's lease, and every file of
the checkpoint that it replaces is copied to the control folder.
"""

from pipelines.streaming.lifecycle.accept import (
    accept_change,
    accept_findings,
    accept_new_source,
    accept_version,
)
from pipelines.streaming.lifecycle.adopt import adopt
from pipelines.streaming.lifecycle.backfill import backfill
from pipelines.streaming.lifecycle.change import Change
from pipelines.streaming.lifecycle.coverage import Coverage, coverage
from pipelines.streaming.lifecycle.follow import follow_backfills
from pipelines.streaming.lifecycle.maintain import Maintenance, maintain
from pipelines.streaming.lifecycle.prune import Pruning, prune
from pipelines.streaming.lifecycle.quarantine import Quarantine, quarantined
from pipelines.streaming.lifecycle.rebind import rebind
from pipelines.streaming.lifecycle.rebuild import rebuild
from pipelines.streaming.lifecycle.rename_source import rename_source
from pipelines.streaming.lifecycle.replay import replay
from pipelines.streaming.lifecycle.replay_plan import Replay
from pipelines.streaming.lifecycle.replay_range import replay_range
from pipelines.streaming.lifecycle.reset import reset
from pipelines.streaming.lifecycle.rewind import rewind
from pipelines.streaming.lifecycle.verdicts import CodeChange, code_changes

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
    "replay",
    "replay_range",
    "reset",
    "rewind",
]
