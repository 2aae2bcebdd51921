"""The edits, small functions by kind: each changes the declaration, the files or the lake of a world.

An edit returns what must follow: that its stream is refused, that it runs, or either. One that does not apply to the
world as it is returns None.
"""

from bench.changes.edits import copies, files, functions, sinks, sources, tables
from bench.changes.edits.edit import EDITS, Applied

__all__ = ["EDITS", "Applied", "copies", "files", "functions", "sinks", "sources", "tables"]
