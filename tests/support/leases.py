"""A lease that another run holds."""

from contextlib import contextmanager
from pathlib import Path

from tidemill.records import lease
from tidemill.storage.local_store import LocalStore


@contextmanager
def held(files, stream, run_id):
    """A held lease in a store or a folder, for a `with` block."""
    taken = lease.take(LocalStore(files) if isinstance(files, Path) else files, stream, run_id)
    try:
        yield taken
    finally:
        taken.release()
