"""How much of the state the next start computes again from changes, because no snapshot has them."""

from collections.abc import Iterator

from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.operators import operator_ids, read_operator
from tidemill.checkpoint.format.state_files import StateFile


def changes_to_apply(checkpoint: Checkpoint) -> int:
    """Return the bytes of the changes that are newer than the newest snapshot of their store, compressed.

    A start loads the newest snapshot of each store and applies every change after it.

    Args:
        checkpoint: The checkpoint: its store, or its path.

    Raises:
        CheckpointFormatError: A folder of the state or the description of an operator cannot be read.
    """
    folder = Folder.at(checkpoint)
    return sum(
        item.size
        for operator in operator_ids(folder)
        for _, _, store in read_operator(folder, operator).folders()
        for name in _newer_changes(folder, store)
        if (item := folder.item(f"{store}/{name}"))
    )


def _newer_changes(folder: Folder, store: str) -> Iterator[str]:
    files = {name: file for name in folder.names(store) if (file := StateFile.parse(name))}
    snapshot = max((file.version for file in files.values() if file.whole), default=0)
    return (name for name, file in files.items() if not file.whole and file.version > snapshot)
