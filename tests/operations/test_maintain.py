"""Maintenance: many increments leave few files, and nothing that a reader, a check or a rewind needs is removed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.leases import held
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.operations.generations.rewind import rewind
from tidemill.operations.generations.table_versions import missing_files
from tidemill.operations.housekeeping.maintain import KEEP, maintain
from tidemill.operations.housekeeping.prune import prune
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

NOW = timedelta(0)

shop = Pipeline("shop")


@shop.stream(
    source=Feed(
        "orders",
        Json("id INT, day STRING, at TIMESTAMP"),
        rules={"known": "id >= 0"},
        max_files_per_batch=1,
    ),
    sink=DeltaAppend(partition_by=["day"]),
)
def orders(events):
    return events


@shop.stream(source=orders, sink=DeltaMerge(keys=["day"], sequence_by="id"))
def newest(orders):
    return orders.select("day", "id")


@shop.stream(source=newest.changes(), sink=DeltaAppend())
def history(changes):
    return changes.where("_change_type <> 'update_preimage'").select("day", "id", "_change_type")


@shop.stream(
    source=orders.limited(max_files_per_batch=10).with_watermark("at", "1 minute"), sink=DeltaAppend()
)
def behind(orders):
    return orders.dropDuplicatesWithinWatermark(["id", "day"])


STREAMS = tuple(shop)
DAYS = ["a b", "c:d"]


def increments(scratch, count, streams, *, first=0):
    """A run of streams, with batches of their first one that each have an order per day and a refused record."""
    for number in range(first, first + count):
        at = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)).isoformat()
        own = [{"id": number, "day": day, "at": at} for day in DAYS]
        scratch.drop_file("orders", [*own, {"id": -1}])
    assert not [result.error for result in scratch.run_all(streams) if result.error]


def maintained(scratch, stream, keep=NOW, **options):
    return maintain(stream, scratch.target, scratch.engine, streams=STREAMS, keep=keep, **options)


def findings(scratch, stream):
    names = ["exactly_once", "checkpoint_sound"]
    return [
        r.summary for r in evaluate(stream, scratch.target, datetime.now(UTC), names=names) if not r.passed
    ]


def versions_with_missing_files(scratch, stream):
    table = Path(scratch.lake.table(stream.name).uri)
    return [
        version for version in TableRef.at(table).log.versions() if missing_files(TableRef.at(table), version)
    ]


def rewound_and_read_again(scratch, *, keep):
    """Maintain and prune the last stream, take its last batches back, and let it read them again."""
    maintained(scratch, history, keep=keep)
    prune(history, scratch.target, scratch.engine, older_than=NOW)
    before, last = scratch.rows(history), StreamRecords(scratch.lake, history.name).snapshot().last_commit
    rewind(history, scratch.target, scratch.engine, to_batch=last - 2)
    assert sum(scratch.rows(history).values()) == sum(before.values()) - 2 * len(DAYS)
    assert not [result.error for result in scratch.run_all([history]) if result.error]
    assert scratch.rows(history) == before
    assert findings(scratch, history) == []


@pytest.mark.campaign
def test_what_a_reader_that_was_behind_needs_survives_the_maintenance(scratch):
    increments(scratch, 1, STREAMS)
    for first in (1, 6):
        increments(scratch, 5, [orders, newest, history], first=first)
    assert [findings(scratch, stream) for stream in STREAMS] == [[]] * 4

    # A rewind within a week needs every version of this one, and a plan changes nothing.
    week = maintained(scratch, orders, keep=KEEP)
    assert (week.tables[0].small_files, week.tables[0].files, week.tables[0].log_files) == (22, 0, 0)
    plan = maintained(scratch, orders, dry_run=True)
    assert versions_with_missing_files(scratch, orders) == []
    rewound_and_read_again(scratch, keep=KEEP)
    assert "shop/behind has read the versions before 2" in plan.tables[0].held_by

    # Without a rewind, the reader that is behind is what holds the table back: the files of one version are free.
    now = maintained(scratch, orders)
    assert plan.tables[0].files == now.tables[0].files == 2
    assert now.tables[0].horizon == 2
    assert maintained(scratch, newest).tables[0].after.files <= 4, (
        "the table, and the changes that were read last"
    )
    assert [findings(scratch, stream) for stream in STREAMS] == [[]] * 4

    increments(scratch, 1, STREAMS, first=11)
    everything = multiset((number, day) for number in range(12) for day in DAYS)
    assert scratch.rows(behind, "id", "day") == everything
    assert scratch.rows(orders, "id", "day") == everything
    assert sum(scratch.quarantined(orders).values()) == 12
    read = [0, 5, 10, 11]  # the changes of a run are merged in one batch
    kinds = ["insert", *["update_postimage"] * (len(read) - 1)]
    changes = multiset((day, number, kind) for day in DAYS for number, kind in zip(read, kinds, strict=True))
    assert scratch.rows(history, "day", "id", "_change_type") == changes
    table = maintained(scratch, orders).tables[0]
    assert table.after.files <= 2 * 2
    assert table.after.log_files <= 4 * 11, "the commits since the newest checkpoint, with their checksums"
    assert maintained(scratch, orders).outcome == "idle"
    assert [findings(scratch, stream) for stream in STREAMS] == [[]] * 4


def test_nothing_is_maintained_beside_a_run(scratch):
    increments(scratch, 1, [orders])
    for stream, keep in ((orders, KEEP), (newest, KEEP), (behind, NOW)):
        # A reader that has no position yet may be about to begin, and with less than a week any reader is asked.
        with held(StreamRecords(scratch.lake, stream.name).control.below("lease"), stream.name, "a run"):
            result = maintained(scratch, orders, keep=keep)
        assert (result.outcome, str(stream.name) in result.reason) == ("busy", True)


@pytest.mark.campaign
@pytest.mark.timeout(3 * 3600)
def test_many_increments_leave_few_files(scratch):
    """A reader is stopped for a hundred increments at a time; the tables are maintained every fifty."""
    sizes = []
    for first in range(0, 400, 50):
        increments(scratch, 50, [orders, newest, history], first=first)
        if first % 100:
            assert not [result.error for result in scratch.run_all([behind]) if result.error]
        results = [maintained(scratch, stream) for stream in STREAMS]
        assert {result.outcome for result in results} <= {"maintained", "idle"}
        assert [findings(scratch, stream) for stream in STREAMS] == [[]] * 4
        if first % 100:
            tables = [table.after or table.before for result in results for table in result.tables]
            # Spark's log of the files that a folder had only grows: it must know them all.
            checkpoints = Path(scratch.lake.uri) / "checkpoints"
            logs = [file for kind in ("commits", "offsets") for file in checkpoints.rglob(f"{kind}/*")]
            state = list(checkpoints.rglob("state/**/*"))
            sizes.append(
                [sum(t.files for t in tables), sum(t.log_files for t in tables), len(logs), len(state)]
            )
            print(first + 50, sizes[-1], flush=True)  # noqa: T201 - the measurement
        for stream in STREAMS:
            prune(stream, scratch.target, scratch.engine, older_than=NOW)
    for number in range(400, 403):
        increments(scratch, 1, STREAMS, first=number)
    rewound_and_read_again(scratch, keep=timedelta(minutes=30))
    everything = multiset((number, day) for number in range(403) for day in DAYS)
    assert scratch.rows(behind, "id", "day") == scratch.rows(orders, "id", "day") == everything
    for early, late in zip(sizes[-2], sizes[-1], strict=True):  # Spark keeps a hundred batches of each stream
        assert late <= 1.2 * early, sizes
