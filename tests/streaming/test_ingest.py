"""A feed's batch without a cache: each record is in exactly one of table and quarantine, whatever fails in between."""

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from pipelines.streaming import DeltaAppend, Expect, Feed, Pipeline, QueryOptions, from_csv, from_json
from pipelines.streaming.checks.evaluation import evaluate
from pipelines.streaming.errors import TidemillError
from pipelines.streaming.records import StreamRecords
from pipelines.streaming.run.recorder import Recorder
from pipelines.streaming.testing import multiset

EVENT = "id STRING, n INT"
PURPOSE = "on purpose"


@dataclass(frozen=True)
class Probe(DeltaAppend):
    """An append that fails once, before its first commit or after it, and notes what is cached meanwhile."""

    failures: list = field(default_factory=list)
    cached: list = field(default_factory=list)

    def write(self, rows, table, transaction, metadata):
        when = self.failures.pop() if self.failures else None
        if when == "before":
            raise RuntimeError(PURPOSE)
        super().write(rows, table, transaction, metadata)
        self.cached.append(rows.sparkSession.sparkContext._jsc.getPersistentRDDs().size())
        if when == "after":
            raise RuntimeError(PURPOSE)


def events(*numbers):
    return [{"id": f"e{number}", "n": number} for number in numbers]


def lines_of(*numbers):
    return multiset((json.dumps(event),) for event in events(*numbers))


def ingest(sink, rules, *, schema=EVENT, function=lambda rows: rows, options=None, expect=()):
    feed = Feed("events", value=from_json(schema), quarantine=rules)
    query = QueryOptions(options=options or {})
    return Pipeline("shop").stream(source=feed, sink=sink, name="events", query=query, expect=expect)(
        function
    )


def fails(scratch, stream, records):
    with pytest.raises(TidemillError, match=PURPOSE):
        scratch.run(stream, [records])


def line(scratch, stream, batch=-1):
    lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
    return sorted(lines, key=lambda line: line.batch_id)[batch]


def test_nothing_is_cached_and_everything_is_counted(scratch):
    sink = Probe()
    expect = [Expect("small", "n < 8"), Expect("odd", "n % 2 = 1", on_violation="drop")]
    stream = ingest(sink, {"positive": "n > 0"}, expect=expect)
    scratch.run(stream, [["", *events(-1, 1, 2, 3, 9), "{", " ", '{"id": "x", "n": 1} {}']])
    assert sink.cached == [0]
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


def test_headers_and_blank_lines_are_no_records(scratch):
    feed = Feed("events", value=from_csv(EVENT, header=True), quarantine={"positive": "n > 0"})
    stream = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="events")(lambda rows: rows)
    scratch.run(stream, [["id,n", "", "a,1", "b,-1", "ID, N"]])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_blank, batch.rows_quarantined, batch.rows_written) == (2, 3, 1, 1)


def test_records_are_counted_where_spark_leaves_out_the_plan(scratch):
    stream = ingest(DeltaAppend(), {"positive": "n > 0"}, function=lambda rows: rows.where("false"))
    scratch.run(stream, [events(-1, 1, 2)])
    batch = line(scratch, stream)
    assert (batch.rows_read, batch.rows_quarantined, batch.rows_written) == (3, 1, 0)
    assert scratch.quarantined(stream, "raw") == lines_of(-1)


OLD = {"positive": "n > 0", "past": "date_add(current_date(), n) < date_add(current_date(), 50)"}
EDITS = {
    "none": {"rules": OLD},
    "other rules": {"rules": {"negative": "n < 0"}},
    "no rules": {"rules": {}},
    "another schema": {"rules": {"short": "length(id) < 2"}, "schema": "id STRING, n INT, more STRING"},
    "a broken function": {"rules": OLD, "function": lambda rows: rows.select(F.col("n") + F.col("gone"))},
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_batch_is_finished_by_the_rules_that_its_rows_passed(scratch, edit):
    """The table has the batch, the quarantine has not, and the next run comes with other code."""
    before = ingest(Probe(failures=["after"]), OLD)
    fails(scratch, before, ["", *events(-1, 1, 99)])
    assert (scratch.rows(before, "n"), scratch.quarantined(before)) == (multiset([(1,)]), Counter())
    after = ingest(Probe(), **EDITS[edit])
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
        patched.setattr(StreamRecords, "write_counts", _raise)
        fails(scratch, stream, events(-1, 1))
    assert scratch.quarantined(stream, "raw") == lines_of(-1)
    scratch.run(ingest(DeltaAppend(), {}))
    assert (scratch.quarantined(stream, "raw"), scratch.rows(stream, "n")) == (lines_of(-1), multiset([(1,)]))
    assert line(scratch, stream).rows_quarantined == 1


def _raise(*_args, **_kwargs):
    raise RuntimeError(PURPOSE)


RANDOM = "reflect('java.util.UUID', 'randomUUID') < '8'"


@pytest.mark.parametrize("rule", [RANDOM, "rand() < 0.5", "uuid() < '8'"], ids=["reflect", "rand", "uuid"])
@pytest.mark.parametrize("when", [[], ["before"], ["after"]], ids=["no failure", "before", "after"])
def test_a_rule_that_is_random_refuses_a_record_or_not(scratch, rule, when):
    stream = ingest(Probe(failures=list(when)), {"lucky": rule})
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


def test_refused_records_of_an_attempt_whose_rules_are_gone_are_replaced(scratch):
    """The first attempt has quarantined before it failed, as rules that are random make it."""
    first = ingest(Probe(failures=["before"]), {"lucky": f"n > 0 OR {RANDOM} AND false"})
    fails(scratch, first, events(-1, 1, 2))
    assert scratch.quarantined(first, "raw") == lines_of(-1)
    second = ingest(Probe(), {"two": "n <> 2"})
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
