"""How much a backlog is in rows, files and bytes, and how old.

This costs more than a count: the size of every unread file, the actions of every unread commit, and for Kafka one
unread message per partition. Only a policy with conditions and a status view need it.
"""

from collections.abc import Iterable

from tidemill.connectors.backlog import Backlog
from tidemill.definitions.run_when import Amount

# Up to twice as much, a JVM that compiles once is done sooner: docs/performance.md.
_LITTLE_BYTES = 32 << 20
_LITTLE_ROWS = 100_000


def amount_of(backlogs: Iterable[Backlog], *, times: bool = True) -> Amount:
    """Return how much waits in some sources together.

    Args:
        backlogs: The backlogs of the sources.
        times: Whether the ages may cost a round trip. A broker that does not answer leaves them unknown.
    """
    amounts = [one.unread.amount(one.count, times=times) for one in backlogs if one.unread is not None]
    return Amount(
        rows=_sum(amount.rows for amount in amounts),
        files=_sum(amount.files for amount in amounts),
        bytes=_sum(amount.bytes for amount in amounts),
        oldest_at=min(filter(None, (amount.oldest_at for amount in amounts)), default=None),
        newest_at=max(filter(None, (amount.newest_at for amount in amounts)), default=None),
    )


def is_little(backlogs: Iterable[Backlog]) -> bool:
    """Return whether so little waits in some sources together that starting Spark takes longer than reading it."""
    waiting = [backlog for backlog in backlogs if backlog]
    if any(backlog.unread is None for backlog in waiting):
        return False  # it is unknown how much
    amounts = [amount_of([backlog], times=False) for backlog in waiting]
    # Where the bytes are unknown, the rows decide.
    rows = sum(amount.rows or 0 for amount in amounts if amount.bytes is None)
    return rows <= _LITTLE_ROWS and sum(amount.bytes or 0 for amount in amounts) <= _LITTLE_BYTES


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
