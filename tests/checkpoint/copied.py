"""A checkpoint that was written by hand, copied to a store in memory."""

from pathlib import Path

from tidemill.storage.local_store import LocalStore
from tidemill.storage.memory_store import MemoryStore


def in_memory(checkpoint: Path) -> MemoryStore:
    """Return a store in memory with the files of a folder."""
    folder, memory = LocalStore(checkpoint), MemoryStore()
    for file in folder.walk():
        memory.create(file.key, folder.read(file.key))
    return memory
