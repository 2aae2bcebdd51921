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
from pipelines.streaming.lifecycle.change import Change
from pipelines.streaming.lifecycle.rebind import rebind
from pipelines.streaming.lifecycle.rebuild import rebuild
from pipelines.streaming.lifecycle.rename_source import rename_source
from pipelines.streaming.lifecycle.rewind import rewind
from pipelines.streaming.lifecycle.verdicts import CodeChange, code_changes

__all__ = [
    "Change",
    "CodeChange",
    "accept_change",
    "accept_findings",
    "accept_new_source",
    "accept_version",
    "code_changes",
    "rebind",
    "rebuild",
    "rename_source",
    "rewind",
]
