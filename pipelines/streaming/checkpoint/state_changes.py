"""How much of the state the next start computes again from changes, because no snapshot has them."""

import os

from pipelines.streaming.checkpoint.format.folder import Folder
from pipelines.streaming.checkpoint.format.state_files import StateFile


def changes_to_apply(checkpoint: str | os.PathLike[str]) -> int:
    """Return the bytes of the changes that are newer than the newest snapshot of their store, compressed.

    A start loads the newest snapshot of each store and applies every change after it.

    Args:
        checkpoint: The checkpoint, at a path of a local or mounted file system.

    Raises:
        CheckpointFormatError: The folder of the state cannot be read.
    """
    newest: dict[str, int] = {}
    changes: list[tuple[str, int, int]] = []
    for path, item in Folder.at(checkpoint).walk("state"):
        store, _, name = path.rpartition("/")
        file = StateFile.parse(name)
        if file is None:
            continue
        if file.whole:
            newest[store] = max(file.version, newest.get(store, 0))
        else:
            changes.append((store, file.version, item.size))
    return sum(size for store, version, size in changes if version > newest.get(store, 0))
