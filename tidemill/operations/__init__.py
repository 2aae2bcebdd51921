"""Changes of a stream outside a normal run, each decided by a person: accept, rebind, rename a source.

A change is planned first, and the plan can be printed. It is applied under the stream's lease, and every file of
the checkpoint that it replaces is copied to the control folder.
"""

from tidemill.operations.edits.accept import accept_change
from tidemill.operations.edits.code_changes import CodeChange, code_changes

__all__ = ["CodeChange", "accept_change", "code_changes"]
