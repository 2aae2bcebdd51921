"""The change data feed of a merge table: what changed for readers of the table, in every commit, and nothing else."""

import os
from collections import Counter
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill import DeltaMerge, Feed, Json, Pipeline
from tidemill.connectors.delta.connector import _without_tombstones
from tidemill.definitions.sink import CommitMetadata, SinkContext, Transaction
from tidemill.sinks.key_range import key_range
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.table_ref import TableRef
from tidemill.tables.commit_counts import rows_ignored, rows_written
from tidemill.testing import multiset

SCHEMA = "id INT, seq INT, name STRING, removed BOOLEAN"
SCHEMA_OF_STRINGS = "id STRING, seq INT, name STRING, removed BOOLEAN"
CASES = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "campaign" else 2
SINKS = {
    "rows": DeltaMerge(keys=["id"], sequence_by="seq"),
    "rows and tombstones": DeltaMerge(
        keys=["id"], sequence_by="seq", apply_as_deletes="removed", except_columns=["removed"]
    ),
    "versions": DeltaMerge(
        keys=["id"], sequence_by="seq", apply_as_deletes="removed", except_columns=["removed"], scd_type=2
    ),
    "by batch": DeltaMerge(keys=["id"], apply_as_deletes="removed", except_columns=["removed"]),
}
CLUSTERED = {kind: replace(sink, cluster_by=["id"]) for kind, sink in SINKS.items()}


@st.composite
def histories(draw):
    """Batches of changes in any order: the same key and sequence is the same change, however often it comes."""
    changes = st.tuples(st.integers(0, 9), st.integers(0, 6), st.booleans())
    batches = draw(st.lists(st.lists(changes, min_size=8, max_size=30), min_size=3, max_size=4))
    removed = {}
    for change in (change for batch in batches for change in batch):
        removed.setdefault(change[:2], change[2])
    return [[(key, seq, f"{key}.{seq}", removed[key, seq]) for key, seq, _ in batch] for batch in batches]


def updates(history):
    """One change per key and batch, as a query in update mode sends them; no two batches send the same row."""
    for number, batch in enumerate(history):
        by_key = {change[0]: change for change in batch}
        yield [(key, seq, f"{name} in {number}", removed) for key, seq, name, removed in by_key.values()]


def current_rows(batches):
    """The table by key, tombstones as None, the sequences, and the changes that were ignored: plain Python."""
    rows, sequences = {}, {}
    for batch in batches:
        ignored = 0
        for key, seq, name, removed in {change[0]: change for change in sorted(batch)}.values():
            if seq > sequences.get(key, -1):
                sequences[key] = seq
                rows[key] = None if removed else (key, seq, name)
            else:
                ignored += 1
        yield dict(rows), dict(sequences), ignored


def rows_without_deletes(batches):
    """The same where no change deletes, so that its flag is one more column."""
    removed = {change[:2]: change[3] for batch in batches for change in batch}
    for rows, sequences, ignored in current_rows(
        [[(*change[:3], False) for change in batch] for batch in batches]
    ):
        yield {key: (*row, removed[key, row[1]]) for key, row in rows.items()}, sequences, ignored


def versions(batches):
    """The table by key and sequence: each version with its end."""
    known = {}
    for batch in batches:
        ignored = len({change[:2] for change in batch} & set(known))
        known |= {change[:2]: change for change in batch}
        table, states = {}, {}
        for (key, seq), (_, _, name, removed) in known.items():
            end = min((other for owner, other in known if owner == key and other > seq), default=None)
            states[key, seq] = end if end is not None else -1
            table[key, seq] = None if removed else (key, seq, name, seq, end)
        yield table, states, ignored


def last_batch_wins(batches):
    rows = {}
    for batch in batches:
        for key, seq, name, removed in batch:
            rows.pop(key, None)
            if not removed:
                rows[key] = (key, seq, name)
        yield dict(rows), None, None


ORACLES = {
    "rows": rows_without_deletes,
    "rows and tombstones": current_rows,
    "versions": versions,
    "by batch": last_batch_wins,
}


def expected_changes(before, after):
    """The changes that turn what readers saw into what they see, by the identity of a row."""
    changes = Counter()
    for identity in {*before, *after}:
        old, new = before.get(identity), after.get(identity)
        if old == new:
            continue
        if old is None:
            changes["insert", *new] += 1
        elif new is None:
            changes["delete", *old] += 1
        else:
            changes["update_preimage", *old] += 1
            changes["update_postimage", *new] += 1
    return changes


def applied(rows, changes):
    """The rows after changes, by +1 and -1; a row that is taken away twice would be negative."""
    counted = Counter(rows)
    for (kind, *row), number in changes.items():
        counted[tuple(row)] += number if kind in ("insert", "update_postimage") else -number
    return {row: number for row, number in counted.items() if number}


@pytest.fixture
def spark(engine):
    """A session for tables of a few rows."""
    spark = engine.new()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    return spark


@pytest.fixture
def written(spark, tmp_path):
    """Write batches with a sink into a new table; returns the table's folder."""
    numbers = count()

    def write(sink, batches):
        path = tmp_path / str(next(numbers))
        sink.prepare(spark, SinkContext(TableRef.at(path)), spark.createDataFrame([], SCHEMA).schema)
        for number, batch in enumerate(batches):
            rows = spark.createDataFrame(batch, SCHEMA)
            sink.commit(rows, TableRef.at(path), Transaction("query", number), CommitMetadata(number, "plan"))
        return path

    return write


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "versions" else [pytest.mark.campaign]) for kind in SINKS],
)
@given(history=histories())
# Each example writes a new table, so one folder and one session serve all of them.
@settings(max_examples=CASES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_feed_is_what_readers_see_change(spark, written, kind, history):
    sink = (SINKS if kind == "rows" else CLUSTERED)[kind]
    batches = list(updates(history)) if kind == "by batch" else history
    path = written(sink, batches)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "0")
    by_commit = {}
    for row in _without_tombstones(feed.load(str(path))).collect():
        *columns, _deleted, change, version, _time = row
        by_commit.setdefault(version, Counter())[(change, *columns)] += 1
    states = [({}, {}, None), *ORACLES[kind](batches)]
    applied_rows = {}
    for version, ((before, old_states, _), (after, new_states, ignored)) in enumerate(pairwise(states), 1):
        changes = by_commit.get(version, Counter())
        assert changes == expected_changes(before, after)
        applied_rows = applied(applied_rows, changes)
        table = DeltaTable(str(path), version=version).to_pyarrow_table().to_pylist()
        visible = multiset(
            [value for name, value in row.items() if name != "_deleted"]
            for row in table
            if not row["_deleted"]
        )
        assert visible == applied_rows == multiset(row for row in after.values() if row is not None)
        commit = TableRef.at(path).log.commit(version)
        if ignored is not None:
            changed = {key for key in new_states if new_states[key] != old_states.get(key)}
            assert rows_written(commit, commit_metadata(commit)) == len(changed)
            assert rows_ignored(commit, commit_metadata(commit)) == ignored
        else:
            assert rows_ignored(commit, commit_metadata(commit)) is None


@pytest.mark.campaign
def test_a_tombstone_has_no_payload(written):
    for kind in ("rows and tombstones", "versions"):
        path = written(SINKS[kind], [[(1, 1, "secret", False)], [(1, 2, "secret", True)]])
        rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
        assert [(row["seq"], row["name"]) for row in rows if row["_deleted"]] == [(2, None)]


KEYS = {
    "tinyint": ["-128", "-5", "127"],
    "bigint": ["-9223372036854775808", "0", "9223372036854775807"],
    "date": ["0001-01-01", "1969-12-31", "2026-11-23"],
    # In the hour that the clock of the session shows twice, with microseconds.
    "timestamp": ["2026-10-24T23:59:59.999999Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00.000001Z"],
}


@pytest.mark.parametrize(
    ("kind", "of_keys"),
    [
        pytest.param("rows", "tinyint", marks=pytest.mark.campaign),
        pytest.param("rows and tombstones", "date", marks=pytest.mark.campaign),
        ("versions", "timestamp"),
        pytest.param("by batch", "bigint", marks=pytest.mark.campaign),
    ],
)
def test_a_merge_of_a_clustered_table_reads_only_files_with_keys_in_the_range(spark, tmp_path, kind, of_keys):
    from pyspark.sql import functions as F

    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    path, sink = tmp_path / "table", CLUSTERED[kind]

    def changes(*given):
        rows = spark.createDataFrame([(key, seq, key, False) for key, seq in given], SCHEMA_OF_STRINGS)
        return rows.withColumn("id", F.col("id").cast(of_keys))

    def write(number, *given):
        sink.commit(
            changes(*given), TableRef.at(path), Transaction("query", number), CommitMetadata(number, "plan")
        )

    sink.prepare(spark, SinkContext(TableRef.at(path)), changes().schema)
    least, middle, greatest = KEYS[of_keys]
    write(0, (least, 1))
    [outside] = [Path(file) for file in DeltaTable(str(path)).file_uris()]
    write(1, (middle, 1), (greatest, 1))
    outside.rename(tmp_path / "outside")
    write(2, (greatest, 2), (middle, 2))
    write(3, (greatest, 3))  # the log has milliseconds only
    (tmp_path / "outside").rename(outside)
    current = {(least, 1), (middle, 2), (greatest, 3)}
    history = current | {(middle, 1), (greatest, 1), (greatest, 2)}
    written = DeltaTable(str(path)).to_pyarrow_table(columns=["name", "seq"]).to_pylist()
    assert multiset(row.values() for row in written) == multiset(history if kind == "versions" else current)


def test_keys_without_a_range(spark):
    rows = spark.createDataFrame([("a", None, 2.0)], "text STRING, empty INT, ratio DOUBLE")
    assert key_range(rows, []) == key_range(rows, ["text", "ratio"]) == key_range(rows, ["empty"]) == "true"
    beyond = spark.sql("SELECT DATE '+12345-01-01' AS day, 7 AS id")
    assert key_range(beyond, ["day", "id"]) == "t.`id` BETWEEN 7 AND 7"


CHANGE = "id STRING, name STRING, op STRING, seq BIGINT"


@pytest.mark.campaign
@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_merge_that_reads_the_changes_of_a_merge_ends_equal(scratch, scd_type):
    shop = Pipeline("shop")
    customers = shop.stream(
        source=Feed("changes", format=Json(CHANGE)),
        sink=DeltaMerge(
            keys=["id"],
            sequence_by="seq",
            apply_as_deletes="op = 'delete'",
            except_columns=["op"],
            scd_type=scd_type,
        ),
        name="customers",
    )(lambda changes: changes)

    @shop.stream(
        source=customers.changes(),
        sink=DeltaMerge(
            keys=["id"] if scd_type == 1 else ["id", "seq"],
            sequence_by="version",
            apply_as_deletes="_change_type = 'delete'",
            except_columns=["_change_type", "_commit_timestamp"],
        ),
    )
    def copies(changes):
        changed = changes.where("_change_type != 'update_preimage'")
        return changed.withColumnRenamed("_commit_version", "version")

    def arriving(*changes):
        return [
            {"id": key, "name": f"{key}{seq}", "op": "delete" if seq in removed else "upsert", "seq": seq}
            for key, seq in changes
        ]

    removed = {3, 4, 8}
    runs = [
        [("a", 1), ("b", 1), ("c", 3)],  # c is deleted before it was there
        [("a", 2), ("b", 3), ("c", 2)],  # an update, a delete, and a change that comes too late
        [("a", 3), ("b", 4), ("c", 5), ("d", 1)],  # a delete, a second delete, and a key that comes back
        [("a", 7), ("b", 2), ("d", 2), ("d", 8)],  # back again; too late; inserted, updated and deleted
    ]
    columns = ["id", "name", "seq"] + (["__START_AT", "__END_AT"] if scd_type == 2 else [])
    for number, run in enumerate(runs):
        scratch.run(customers, [arriving(*run)])
        if number != 1:  # the third run of the reader gets two commits at once
            scratch.run(copies)
            assert scratch.rows(copies, *columns) == scratch.rows(customers, *columns)
    if scd_type == 1:
        assert scratch.rows(copies, *columns) == multiset([("a", "a7", 7), ("c", "c5", 5)])
