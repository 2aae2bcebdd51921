"""A checkpoint that was written by hand, copied to a store."""

from pathlib import Path

from tidemill.storage.local_store import LocalStore
from tidemill.storage.memory_store import MemoryStore


def copied(checkpoint: Path, store):
    """Return a store that has the files of a folder."""
    folder = LocalStore(checkpoint)
    for file in folder.walk():
        folder.copy(file.key, file.key, store)
    return store


def in_memory(checkpoint: Path) -> MemoryStore:
    """Return a store in memory with the files of a folder."""
    return copied(checkpoint, MemoryStore())
