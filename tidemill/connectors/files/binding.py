"""The folder that a file source reads, wherever lake and folder are."""

# `Path` resolves nothing here; `os` compares paths as strings, as Spark does.
# ruff: noqa: PTH100, PTH111

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.files.backlog import Relocation, plain_path

if TYPE_CHECKING:
    from tidemill.connectors.connector import Binding
    from tidemill.target.target import Target


def folder_binding(path: str, target: "Target") -> "Binding":
    """Return a folder: its path, and, where it lies next to the lake, its path as seen from the lake."""
    plain = plain_path(path)
    if "://" in plain:
        return {"kind": "file", "path": path, "from_lake": None}
    absolute = os.path.abspath(os.path.expanduser(plain))
    beside = Path(absolute).is_relative_to(target.lake.root.parent)
    return {
        "kind": "file",
        "path": absolute,
        "from_lake": os.path.relpath(absolute, target.lake.root) if beside else None,
    }


def has_moved(recorded: "Binding", now: "Binding") -> bool:
    """Return whether a folder is at the same path as seen from the lake, and lake and folder have moved."""
    return (
        recorded["kind"] == now["kind"] == "file"
        and recorded["path"] != now["path"]
        and recorded["from_lake"] is not None
        and recorded["from_lake"] == now["from_lake"]
    )


def relocation_of(recorded: "Binding | None", now: "Binding | None") -> Relocation | None:
    """Return where a source's log has its files and where they are now; None where they have not moved."""
    if recorded is None or now is None or not has_moved(recorded, now):
        return None
    return Relocation(recorded["path"], now["path"])
