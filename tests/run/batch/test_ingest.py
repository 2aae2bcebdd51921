"""A feed's batch without a cache: each record is in exactly one of table and quarantine, whatever fails in between."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from tests.support.failing import PURPOSE, Failing
from tests.support.raising import raises
from tidemill import Csv, DeltaAppend, Expect, Feed, Json, Pipeline, QueryOptions, Raw
from tidemill.checkpoint import read_tail
from tidemill.checks.evaluation import evaluate
from tidemill.definitions.columns import ORIGIN, RAW
from tidemill.errors import TidemillError
from tidemill.operations.edits.accept import accept_new_source
from tidemill.plans.plan_tree import parse_plan, reads_all
from tidemill.records.batch import BatchCounts, remove_counts, write_counts
from tidemill.records.stream_records import StreamRecords
from tidemill.run.batch import counted, writer
from tidemill.run.batch.quarantine import quarantine
from tidemill.run.batch.validation_rules import is_repeatable, uses_time_of_batch
from tidemill.run.execute.recorder import Recorder
from tidemill.run.spark.classic import full_plan
from tidemill.storage.memory_store import MemoryStore
from tidemill.testing import multiset

EVENT = "id STRING, n INT"


@dataclass(frozen=True, kw_only=True)
class Watching(DeltaAppend):
    """An append that notes what is cached when it has written.

    What an earlier test has left in the shared session is in `before`, and does not count.
    """

    before: frozenset
    cached: list = field(default_factory=list)

    def commit(self, rows, table, transaction, metadata):
        super().commit(rows, table, transaction, metadata)
        self.cached.extend(name for key, name in persistent(rows.sparkSession) if key not in self.before)


def persistent(spark):
    """Return the ids and names of what the JVM has cached, without the states of tables, which Delta caches."""
    rdds = spark.sparkContext._jsc.getPersistentRDDs()
    named = [(int(key), rdd.name() or "") for key, rdd in rdds.items()]
    return [(key, name) for key, name in named if not name.startswith("Delta Table State")]


def events(*numbers):
    return [{"id": f"e{number}", "n": number} for number in numbers]


def lines_of(*numbers):
    return multiset((json.dumps(event),) for event in events(*numbers))


def ingest(sink, rules, *, schema=EVENT, function=lambda rows: rows, options=None, expect=()):
    feed = Feed("events", format=Json(schema), rules=rules)
    query = QueryOptions(options=options or {})
    return Pipeline("shop").stream(source=feed, sink=sink, name="events", query=query, expect=expect)(
        function
    )


def fails(scratch, stream, records):
    with raises("query-failed", PURPOSE):
        scratch.run(stream, [records])


def line(scratch, stream, batch=-1):
    lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
    return sorted(lines, key=lambda line: line.batch_id)[batch]


def test_nothing_is_cached_and_everything_is_counted(scratch, monkeypatch):
    monkeypatch.setattr(counted, "numbers", _raise)  # a job that only counts
    sink = Watching(before=frozenset(key for key, _ in persistent(scratch.engine.new())))
    expect = [Expect("small", "n < 8"), Expect("odd", "n % 2 = 1", on_violation="drop")]
    stream = ingest(sink, {"positive": "n > 0"}, expect=expect)
    scratch.run(stream, [["", *events(-1, 1, 2, 3, 9), "{", " ", '{"id": "x", "n": 1} {}']])
    assert sink.cached == []
    assert scratch.rows(stream, "n") == multiset([(1,), (3,), (9,)])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (7, 2, 3, 3)
    assert (batch.rows_out, batch.rows_dropped, dict(batch.violations)) == (4, 1, {"small": 1, "odd": 1})
    assert scratch.quarantined(stream) == multiset(
        [
            (json.dumps(events(-1)[0]), ("positive",)),
            ("{", ("unparsable",)),
            ('{"id": "x", "n": 1} {}', ("unparsable",)),
        ]
    )


@pytest.mark.parametrize("refused", [0, 1, 40])
def test_only_lines_that_may_be_refused_are_judged_again(scratch, monkeypatch, refused):
    counts = []

    def counting(rows, *args, **given):
        counts.append(rows.count())
        quarantine(rows, *args, **given)

    monkeypatch.setattr(writer, "quarantine", counting)
    stream = ingest(DeltaAppend(), {"positive": "n >= 0"})
    numbers = [*range(60), *range(-refused, 0)]
    scratch.run(stream, [["", *events(*numbers), *events(*numbers)]])
    assert scratch.rows(stream, "n") == multiset((n,) for n in [*range(60), *range(60)])
    assert scratch.quarantined(stream, "raw") == lines_of(*range(-refused, 0), *range(-refused, 0))
    # No other string is in a bucket of these 40, of 262,144.
    assert counts == ([2 * refused] if refused else [])


def test_columns_may_have_any_name_that_is_not_reserved(scratch):
    stream = ingest(
        DeltaAppend(), {"known": "unparsable > 0"}, schema="unparsable INT, _blank INT, _parsed INT"
    )
    records = [{"unparsable": number, "_blank": 2, "_parsed": 3} for number in (0, 1)]
    scratch.run(stream, [["", *records]])
    assert scratch.rows(stream, "unparsable", "_blank", "_parsed") == multiset([(1, 2, 3)])
    assert scratch.quarantined(stream, "raw") == multiset([(json.dumps(records[0]),)])


def test_headers_and_blank_lines_are_no_records(scratch):
    feed = Feed("events", format=Csv(EVENT, header=True), rules={"positive": "n > 0"})
    stream = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="events")(lambda rows: rows)
    scratch.run(stream, [["id,n", "", "a,1", "b,-1", "ID, N"]])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (2, 3, 1, 1)


FEW = {  # functions that Spark may end before they have read each record
    "nothing": lambda rows: rows.where("false"),
    "an empty list": lambda rows: rows.where("n IN (SELECT id FROM range(9) WHERE id > rand() + 9)"),
}


@pytest.mark.parametrize(("function", "sinks"), [*((name, 1) for name in FEW), ("an empty list", 2)])
def test_records_that_the_function_does_not_read_are_counted(scratch, function, sinks):
    sink = [DeltaAppend(name="copy"), DeltaAppend()][-sinks:]
    stream = ingest(sink, {"positive": "n > 0"}, function=FEW[function])
    scratch.run(stream, [events(-1, 1, 2)])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_quarantined, batch.rows_written) == (3, 1, 0)
    assert scratch.quarantined(stream, "raw") == lines_of(-1)


def test_functions_that_may_stop_before_the_last_record():
    plan = "Project [n#1]\n+- {}\n   +- StreamingRelation text, [n#1]"
    subquery = "Filter n#1 IN (list#2 [])\n   :  +- Project [id#3L]\n   :     +- Range (0, 9, step=1)"
    nodes = {"Filter (n#1 > 1)": True, "MapInPandas first(n#1), [n#2]": False, subquery: False}
    assert {node: reads_all(parse_plan(plan.format(node))) for node in nodes} == nodes


def test_records_that_the_function_reads_twice_are_counted_once(scratch):
    both = lambda rows: rows.where("n > 1").unionByName(rows.where("n <= 1"))  # noqa: E731
    stream = ingest(DeltaAppend(), {"positive": "n > 0"}, function=both)
    scratch.run(stream, [events(-1, 1, 2)])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_quarantined, batch.rows_written) == (3, 1, 2)
    assert scratch.rows(stream, "n") == multiset([(1,), (2,)])
    scratch.run(stream, [["", " "]])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (0, 2, 0, 0)


OLD = {"positive": "n > 0", "past": "n < 50"}
TIMED = {"positive": "n > 0", "past": "date_add(current_date(), n) < date_add(current_date(), 50)"}
EDITS = {
    "none": {"rules": OLD},
    "none, with the time of the batch": {"rules": TIMED},
    "other rules": {"rules": {"negative": "n < 0"}},
    "no rules": {"rules": {}},
    "another schema": {"rules": {"short": "length(id) < 2"}, "schema": "id STRING, n INT, more STRING"},
    "a broken function": {"rules": OLD, "function": lambda rows: rows.select(F.col("n") + F.col("gone"))},
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_batch_is_finished_by_the_rules_that_its_rows_passed(scratch, edit):
    """The table has the batch, the quarantine has not, and the next run comes with other code."""
    before = ingest(Failing(when="after"), TIMED if "time" in edit else OLD)
    fails(scratch, before, ["", *events(-1, 1, 99)])
    assert (scratch.rows(before, "n"), scratch.quarantined(before)) == (multiset([(1,)]), Counter())
    after = ingest(DeltaAppend(), **EDITS[edit])
    if edit == "a broken function":
        with pytest.raises(TidemillError):
            scratch.run(after)
    else:
        scratch.run(after)
    assert scratch.rows(before, "n") == multiset([(1,)])
    assert scratch.quarantined(before, "raw") == lines_of(-1, 99)
    batch = line(scratch, before, 0)
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (3, 1, 2, 1)
    if edit == "other rules":
        scratch.run(after, [events(-5, 5)])
        assert scratch.rows(after, "n") == multiset([(1,), (-5,)])
        assert scratch.quarantined(after, "raw") == lines_of(-1, 99, 5)
    (check,) = evaluate(after, scratch.target, datetime.now(UTC), names=["exactly_once"])
    assert check.passed, check.summary


def test_a_batch_whose_refused_records_are_written_is_finished(scratch, monkeypatch):
    stream = ingest(DeltaAppend(), {"positive": "n > 0"})
    with monkeypatch.context() as patched:
        patched.setattr(StreamRecords, "add_counts", _raise)
        fails(scratch, stream, events(-1, 1))
    assert scratch.quarantined(stream, "raw") == lines_of(-1)
    scratch.run(ingest(DeltaAppend(), {}))
    assert (scratch.quarantined(stream, "raw"), scratch.rows(stream, "n")) == (lines_of(-1), multiset([(1,)]))
    assert line(scratch, stream).rows_quarantined == 1


def _raise(*_args, **_kwargs):
    raise RuntimeError(PURPOSE)


TOKYO = {"spark.sql.session.timeZone": "Asia/Tokyo"}
AT = "id STRING, at TIMESTAMP"


@pytest.mark.parametrize(
    ("first", "second"),
    [(TOKYO, {}), pytest.param({}, TOKYO, marks=pytest.mark.campaign)],
    ids=["left out", "added"],
)
def test_a_batch_is_finished_with_the_confs_that_its_rows_passed_with(scratch, first, second):
    rules = {"old": "at < TIMESTAMP'2026-01-01 00:00:00+00:00'"}
    new_year = [{"id": "new year in Tokyo", "at": "2026-01-01 05:00:00"}]
    before = ingest(Failing(when="after"), rules, schema=AT, options=first)
    fails(scratch, before, new_year)
    after = ingest(DeltaAppend(), rules, schema=AT, options=second)
    scratch.run(after)
    passed = int(first == TOKYO)
    assert sum(scratch.rows(after).values()) == passed
    assert sum(scratch.quarantined(after).values()) == 1 - passed
    # Each run has the confs of its own declaration again.
    fails(scratch, before := ingest(Failing(when="after"), rules, schema=AT, options=first), new_year)
    scratch.run(after, [new_year])
    assert sum(scratch.rows(before).values()) == 2 * passed + (1 - passed)
    assert sum(scratch.quarantined(after).values()) == 2 * (1 - passed) + passed


def test_a_batch_is_finished_whose_commit_the_cleanup_of_the_log_has_removed(scratch):
    stream = ingest(Failing(when="after"), {"positive": "n > 0"})
    fails(scratch, stream, events(-1, 1))
    table = DeltaTable(str(scratch.lake.table(stream.name)))
    table.create_checkpoint()
    for commit in (Path(scratch.lake.table(stream.name).uri) / "_delta_log").glob("*.json"):
        commit.unlink()
    scratch.run(stream)
    assert (scratch.rows(stream, "n"), scratch.quarantined(stream, "raw")) == (multiset([(1,)]), lines_of(-1))


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.campaign)])
def test_a_batch_whose_files_are_gone_is_not_committed(scratch, tmp_path, when):
    stream = ingest(Failing(when=when), {"positive": "n > 0"})
    fails(scratch, stream, events(-1, 1))
    (file,) = (scratch.landing / "events").iterdir()
    kept = file.rename(tmp_path / "kept")
    scratch.drop_file("events", events(2))
    with raises("planned-files-missing", "1 file", file):
        scratch.run(stream)
    kept.rename(file)
    scratch.run(stream)
    assert scratch.rows(stream, "n") == multiset([(1,), (2,)])
    assert scratch.quarantined(stream, "raw") == lines_of(-1)


def test_a_batch_is_not_committed_without_the_feed_that_it_refused_records_of(scratch):
    before = ingest(Failing(when="after"), {"positive": "n > 0"})
    fails(scratch, before, events(-1, 1))
    other = Feed("others", format=Json(EVENT))
    after = Pipeline("shop").stream(source={"others": other}, sink=DeltaAppend(), name="events")(
        lambda others: others
    )
    accept_new_source(after, scratch.target, "others")
    with raises("unfinished-source-removed", "'rows'"):
        scratch.run(after)
    scratch.run(before)
    assert (scratch.rows(before, "n"), scratch.quarantined(before, "raw")) == (multiset([(1,)]), lines_of(-1))
    scratch.run(after, [events(5)])
    assert scratch.rows(after, "n") == multiset([(1,), (5,)])


@pytest.mark.parametrize("parser", ["csv", "raw"])
def test_a_batch_of_another_format_is_finished(scratch, parser):
    value = {"csv": Csv("id STRING, n INT", {"sep": ";"}, header=True), "raw": Raw()}[parser]
    rules = {"csv": {"positive": "n > 0"}, "raw": {"short": "length(value) < 4"}}[parser]
    feed = Feed("events", format=value, rules=rules)
    sink = Failing(when="after")
    before = Pipeline("shop").stream(source=feed, sink=sink, name="events")(lambda rows: rows)
    after = ingest(DeltaAppend(), {}, schema="id INT, n STRING")
    fails(scratch, before, ["id;n", "", "a;1", "b;-1"])
    with pytest.raises(TidemillError):  # the columns of the new format do not fit
        scratch.run(after, [events(7)])
    passed = {"csv": multiset([("a", 1)]), "raw": multiset([("a;1",)])}[parser]
    refused = {"csv": [("b;-1",)], "raw": [("id;n",), ("b;-1",)]}[parser]
    assert (scratch.rows(before), scratch.quarantined(before, "raw")) == (passed, multiset(refused))


SMALL_ONES = [Expect("small", "n < 8")]


@pytest.mark.parametrize("written", [True, False], ids=["after its counts", "before its counts"])
def test_a_batch_that_is_finished_keeps_what_it_has_counted(scratch, monkeypatch, written):
    stream = ingest(DeltaAppend(), {"positive": "n > 0"}, expect=SMALL_ONES)
    add = StreamRecords.add_counts

    def fails_with_counts(records, generation, batch, counts):
        if written:
            add(records, generation, batch, counts)
        raise RuntimeError(PURPOSE)

    with monkeypatch.context() as patched:
        patched.setattr(StreamRecords, "add_counts", fails_with_counts)
        fails(scratch, stream, ["", *events(-1, 1, 9)])
    scratch.run(stream)
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (3, 1, 1, 2)
    # The counts of expectations are those of the attempt that wrote the rows, or unknown.
    assert (batch.rows_out, dict(batch.violations)) == ((2, {"small": 1}) if written else (None, {}))
    assert scratch.quarantined(stream, "raw") == lines_of(-1)


def test_counts_of_old_batches_and_generations_are_removed():
    files = MemoryStore()
    for generation, batch in ((1, 0), (1, 7), (2, 0), (2, 1), (2, 10)):
        write_counts(files, generation, batch, BatchCounts(query_id="q"))
    remove_counts(files, 2, last=1)
    assert [entry.key for entry in files.walk()] == ["counts/2/10.json"]


def test_damaged_counts_do_not_stop_a_stream(scratch, monkeypatch):
    stream = ingest(DeltaAppend(), {"positive": "n > 0"})
    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "_lines", _raise)
        fails(scratch, stream, events(-1, 1))
    counts = Path(scratch.lake.records(stream.name).uri()) / "counts" / "1" / "0.json"
    counts.write_text("")
    scratch.run(stream, [events(2)])
    assert (line(scratch, stream, 0).rows_quarantined, line(scratch, stream, 1).rows_read) == (None, 1)


RANDOM = "reflect('java.util.UUID', 'randomUUID') < '8'"
ONCE = [
    "n > 0",
    "n > year(current_date())",
    "current_timestamp() > at",
    "unix_timestamp() > n",
    "at < localtimestamp()",
]
AGAIN = [
    "now() > at",
    "at > TIMESTAMP'now'",
    "at > cast('today' AS TIMESTAMP)",
    "current_time() > TIME'12:00:00'",
    "rand() < 0.5",
    "uuid() < '8'",
    RANDOM,
    "n < (SELECT max(id) FROM range(9))",
]


@pytest.mark.parametrize("rule", [*ONCE, *AGAIN])
def test_a_rule_is_repeatable_or_not(engine, rule):
    spark = engine.new()
    feed = Feed("events", format=Json("n INT, at TIMESTAMP"), rules={"rule": rule})
    lines = spark.range(1).select(F.lit("{}").alias(RAW), F.lit(None).alias(ORIGIN))
    judged = feed.validated(lines)
    plan = full_plan(judged, {})
    assert is_repeatable(feed, judged, parse_plan(plan)) == (rule in ONCE)
    assert uses_time_of_batch(plan) == (rule in ONCE[1:])


@pytest.mark.parametrize("when", [None, "before", "after"])
def test_a_rule_that_is_random_refuses_a_record_or_not(scratch, when):
    stream = ingest(Failing(when=when) if when else DeltaAppend(), {"lucky": RANDOM})
    records = ["", *events(*range(60))]
    if when:
        fails(scratch, stream, records)
        scratch.run(stream)
    else:
        scratch.run(stream, [records])
    ids = Counter(json.loads(raw)["n"] for (raw,) in scratch.quarantined(stream, "raw").elements())
    passed = Counter(n for (n,) in scratch.rows(stream, "n").elements())
    assert 0 < ids.total() < 60
    assert ids + passed == Counter(range(60))
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_quarantined, batch.rows_written) == (60, ids.total(), passed.total())
    assert batch.rows_blank == 1


def test_a_batch_that_is_repeated_is_judged_by_its_own_time(scratch):
    stream = ingest(
        Failing(when="before"), {"ahead": "at > current_timestamp()"}, schema="at TIMESTAMP, n LONG"
    )
    start = int(time.time() * 1000)
    times = range(start, start + 120_000, 10)  # some lie between the two attempts
    records = [{"at": datetime.fromtimestamp(ms / 1000, UTC).isoformat(), "n": ms} for ms in times]
    fails(scratch, stream, records)
    time_of_batch = read_tail(scratch.checkpoint(stream.name)).latest_offset.timestamp_ms
    assert start < time_of_batch < times[-1]
    scratch.run(stream)
    assert scratch.rows(stream, "n") == multiset((ms,) for ms in times if ms > time_of_batch)
    assert line(scratch, stream).rows_quarantined == sum(ms <= time_of_batch for ms in times)


def test_refused_records_of_an_attempt_whose_rules_are_gone_are_replaced(scratch):
    """The first attempt has quarantined before it failed, as rules that are random make it."""
    first = ingest(Failing(when="before"), {"lucky": f"n > 0 OR {RANDOM} AND false"})
    fails(scratch, first, events(-1, 1, 2))
    assert scratch.quarantined(first, "raw") == lines_of(-1)
    second = ingest(DeltaAppend(), {"two": "n <> 2"})
    scratch.run(second)
    assert scratch.quarantined(second, "raw") == lines_of(2)
    assert scratch.rows(second, "n") == multiset([(-1,), (1,)])


def test_a_line_that_a_later_run_writes_has_the_counts(scratch, monkeypatch):
    stream = ingest(DeltaAppend(), {"positive": "n > 0"})
    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "_lines", _raise)
        fails(scratch, stream, ["", *events(-1, 1, 2)])
    scratch.run(stream)
    batch = line(scratch, stream)
    assert batch.reconstructed
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (3, 1, 1, 2)
