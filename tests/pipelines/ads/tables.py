"""The tables of `ads` in the form of the oracle, and their comparison."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from pipelines.ads import ads
from tests.pipelines.ads import oracle

if TYPE_CHECKING:
    from tidemill.testing import Scratch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain(value):
    """Return a value in the form of the oracle."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value.isoformat() if isinstance(value, date) else value


ALL = tuple(stream.name.stream for stream in ads)


def tables(scratch: "Scratch", streams: tuple[str, ...] = ALL):
    """Return every table of the pipeline, or of some streams, in the form of the oracle."""
    made = {}
    for table, columns in oracle.COLUMNS.items():
        stream, _, quarantine = table.partition("__")
        if stream not in streams:
            continue
        if quarantine:
            rows = scratch.quarantined(ads[stream], *columns)
            made[table] = Counter({(raw, tuple(sorted(rules))): n for (raw, rules), n in rows.items()})
        else:
            rows = scratch.rows(ads[stream], *columns)
            made[table] = Counter({tuple(map(plain, row)): n for row, n in rows.items()})
    assert {table.partition("__")[0] for table in made} == set(streams), "a table is not compared"
    return made


def assert_equal(made, expected: oracle.Expected):
    for table in made:
        missing, surplus = expected[table] - made[table], made[table] - expected[table]
        assert missing == surplus, (  # disjoint, so equal only if both are empty
            f"{table}: {missing.total()} rows missing, such as {list(missing)[:2]}; "
            f"{surplus.total()} too many, such as {list(surplus)[:2]}"
        )
