"""A lease that another run holds."""

from contextlib import contextmanager

from tidemill.records import lease


@contextmanager
def held(folder, stream, run_id):
    """A held lease, for a `with` block."""
    taken = lease.take(folder, stream, run_id)
    try:
        yield taken
    finally:
        taken.release()
