"""Rows that expectations send to quarantine: each row of an output is in the tables or there, and once."""

import json
import os
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from tests.run.quarantine.row_streams import DAY, order, shop
from tests.support.killed import killed_when
from tests.support.raising import raises
from tests.support.recorded import calls, recording
from tidemill import DeltaAppend, Expect, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.connectors.violations import with_refusals
from tidemill.operations.core import steps
from tidemill.operations.quarantine.quarantine_replay import replay_quarantine
from tidemill.operations.replay.backfill import backfill
from tidemill.operations.replay.rebuild import rebuild
from tidemill.records.stream_records import StreamRecords
from tidemill.run.batch.quarantine import refused_rows
from tidemill.run.batch.row_json import json_columns, row_of_json
from tidemill.run.spark.engine import session_of
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch, multiset

ARRIVALS = [
    [order(2), order(101), order(80, parts=1), order(60, parts=0), order(300, "test"), order(None, "b")],
    [order(90, parts=9), order(150, "b", parts=9), order(7, "test"), order(4, parts=None)],
]
STREAMS = ("plain", "copied", "current")


def reasons(row, most):
    """The rules that send a row to quarantine, from its values alone; None for a row that is dropped."""
    amount, parts = row.get("amount"), row.get("parts")
    if row["customer"] == "test":
        return None
    is_small = amount is not None and amount <= most
    is_shared = amount is not None and parts not in (None, 0) and amount / parts < 50
    return tuple(name for name, holds in (("small", is_small), ("shared", is_shared)) if not holds)


def expected(rows, most):
    """The ids in the table, and the ids in quarantine with their reasons."""
    judged = [(row["id"], reasons(row, most)) for row in rows]
    passed = multiset((row,) for row, violated in judged if violated == ())
    return passed, multiset((row, violated) for row, violated in judged if violated)


def contents(scratch, stream):
    """The same of a stream's tables."""
    tables = [scratch.table_rows(scratch.lake.table(stream.name, sink.name), "id") for sink in stream.tables]
    assert all(rows == tables[0] for rows in tables)
    refused = scratch.quarantined(stream, "raw", "violated", "kind")
    return tables[0], Counter(
        {(id_of(raw), rules): n for (raw, rules, kind), n in refused.items() if kind == "output"}
    )


def id_of(raw):
    return json.loads(raw)["id"]


def checked(scratch, stream, *names):
    results = evaluate(stream, scratch.target, datetime.now(UTC), names=["exactly_once", *names])
    assert results[0].passed, results[0].summary
    return results[1:]


def test_a_row_is_in_every_table_or_in_quarantine_with_its_reasons(scratch):
    made = shop(100)
    for arrival in ARRIVALS:
        scratch.run(made["orders"], [arrival])
        for result in scratch.run_all([made[name] for name in STREAMS]):
            assert result.error is None, result.error
    rows = [row for arrival in ARRIVALS for row in arrival]
    for name in STREAMS:
        assert contents(scratch, made[name]) == expected(rows, 100)
        lines = list(StreamRecords(scratch.lake, made[name].name).ledger.lines())
        counts = Counter({line.batch_id: line.rows_quarantined for line in lines})
        assert counts == {
            batch: sum(expected(arrival, 100)[1].values()) for batch, arrival in enumerate(ARRIVALS)
        }
        small, real = checked(scratch, made[name], "small", "real")
        assert (small.passed, small.severity, small.numbers["violations"]) == (False, "warn", 1)
        assert "such rows go to quarantine" in small.summary
        assert real.numbers["violations"] == 1
    entries = scratch.quarantined(made["plain"], "raw", "origin")
    [(row, origin)] = [(json.loads(raw), origin) for raw, origin in entries if '"amount":101' in raw]
    assert (row["customer"], row["parts"], row["day"], origin) == ("a", 1, "2026-01-01", None)


def test_a_feed_has_refused_records_and_refused_rows_in_one_table(scratch):
    ingested = shop(100)["ingested"]
    lines = [*ARRIVALS[0], "{", json.dumps({"id": "", "amount": 999})]
    [result] = scratch.run(ingested, [lines])
    assert contents(scratch, ingested) == expected(ARRIVALS[0], 100)
    inputs = {
        raw: rules
        for raw, rules, kind in scratch.quarantined(ingested, "raw", "violated", "kind")
        if kind == "input"
    }
    assert inputs == {"{": ("unparsable",), lines[-1]: ("has_id",)}
    refused = sum(expected(ARRIVALS[0], 100)[1].values())
    [batch] = result.batches
    assert (batch.rows_quarantined, batch.rows_out_quarantined) == (refused + 2, refused)
    # The check of the feed is about its records only.
    (share,) = checked(scratch, ingested, "quarantine")
    assert (share.numbers["rows_quarantined"], share.numbers["rows_read"]) == (2, len(lines))
    origins = scratch.quarantined(ingested, "origin")
    assert all(dict(origin)["file"].endswith(".json") for (origin,) in origins)


@pytest.fixture(scope="module")
def filled(engine, tmp_path_factory):
    """A lake whose streams have quarantined rows of two batches."""
    folder = tmp_path_factory.mktemp("filled")
    scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
    made = shop(100)
    for arrival in ARRIVALS:
        scratch.run(made["orders"], [arrival])
        scratch.drop_file("events", [*arrival, "{"])
        for result in scratch.run_all([made[name] for name in ("plain", "copied", "ingested", "totals")]):
            assert result.error is None, result.error
    return folder


ROWS = [row for arrival in ARRIVALS for row in arrival]


@pytest.mark.parametrize("name", [pytest.param("copied", marks=pytest.mark.campaign), "ingested"])
def test_a_replay_moves_the_rows_that_pass_and_keeps_the_rest(refused, name):
    stream = shop(200)[name]
    plan = replay_quarantine(stream, refused.target, refused.engine, dry_run=True)
    assert contents(refused, stream) == expected(ROWS, 100)
    done = replay_quarantine(stream, refused.target, refused.engine)
    assert plan.verdict == done.verdict
    assert (done.verdict.passed, done.verdict.passed_rows) == (1, 1)
    assert any(effect.startswith("1 row of the output move") for effect in done.effects)
    assert contents(refused, stream) == expected(ROWS, 200)
    # A moved row is the row that it would have been.
    columns = ("id", "amount", "parts", "at", "day")
    whole = shop(100)["plain"]
    passed = {row: values for row, *values in refused.table_rows(refused.lake.table(stream.name), *columns)}
    assert passed.keys() > {row for (row,) in refused.rows(whole, "id")}
    moved = next(row for row in ROWS if row.get("amount") == 150)
    amount, parts, at, day = passed[moved["id"]]
    assert (amount, parts, at.isoformat(), day.isoformat()) == (150, 9, moved["at"], "2026-01-01")
    if name == "ingested":
        batches = refused.table_rows(refused.lake.table(stream.name), "id", "_batch", "_origin")
        [(batch, origin)] = [(dict(b), dict(o)) for row, b, o in batches if row == moved["id"]]
        assert batch["batch_id"] == 1
        assert origin["file"].endswith(".json")
    checked(refused, stream)
    assert not replay_quarantine(stream, refused.target, refused.engine).changes


@pytest.mark.campaign
def test_rows_are_replayed_after_their_rules_were_removed(refused):
    plain = shop(100, on="warn")["plain"]
    replay_quarantine(plain, refused.target, refused.engine)
    kept = [row for row in ROWS if row["customer"] != "test"]
    assert contents(refused, plain) == (multiset((row["id"],) for row in kept), Counter())
    checked(refused, plain)


@pytest.mark.campaign
def test_a_row_that_no_longer_fits_the_columns_stays_and_says_so(scratch, tmp_path):
    """The first output has a column more, which a replay would lose; where one is new, it is NULL."""

    def declared(*columns, most):
        return Pipeline("shop").stream(
            source=Feed("events", format=Json("id STRING, n INT, m INT")),
            sink=recording(tmp_path / "calls", *columns),
            expect=[Expect("small", f"n < {most}", on_violation="quarantine")],
            name="events",
        )(lambda events: events.select(*columns))

    scratch.run(declared("id", "n", "m", most=1), [[{"id": "a", "n": 1, "m": 2}]])
    scratch.run(declared("id", "n", most=1), [[{"id": "b", "n": 1}]])
    wider = declared("id", "n", "m", most=9)
    done = replay_quarantine(declared("id", "n", most=9), scratch.target, scratch.engine, dry_run=True)
    assert (done.verdict.passed, dict(done.verdict.by_rule)) == (1, {"columns_changed": 1})
    replay_quarantine(wider, scratch.target, scratch.engine)
    given = sum((call.rows for call in calls(tmp_path / "calls")), Counter())
    assert given == multiset([("a", 1, 2), ("b", 1, None)])
    assert not scratch.quarantined(wider)


def test_rows_that_later_batches_replace_are_not_replayed(refused):
    totals = shop(10_000)["totals"]
    done = replay_quarantine(totals, refused.target, refused.engine)
    assert not done.changes
    [effect] = [effect for effect in done.effects if "cannot be replayed" in effect]
    assert f"tidemill rebuild {totals.name}" in effect
    assert sum(refused.quarantined(totals).values()) == done.verdict.records > 0


@pytest.mark.campaign
def test_rows_of_replayed_records_meet_the_expectations(scratch):
    """The record passes the rule of the feed now, and its row goes to quarantine."""

    def declared(least):
        shop = Pipeline("shop")
        feed = Feed("events", format=Json("id STRING, n INT"), rules={"least": f"n >= {least}"})
        expect = [Expect("even", "n % 2 = 0", on_violation="quarantine")]
        return shop.stream(source=feed, sink=DeltaAppend(), expect=expect, name="events")(
            lambda events: events
        )

    numbers = [{"id": f"e{n}", "n": n} for n in range(4)]
    scratch.run(declared(2), [numbers])
    done = replay_quarantine(declared(0), scratch.target, scratch.engine)
    assert "1 row of them went back to quarantine" in done.outcome
    assert scratch.rows(declared(0), "id") == multiset([("e0",), ("e2",)])
    refused = scratch.quarantined(declared(0), "raw", "violated", "kind", "batch_id")
    assert refused == multiset((f'{{"id":"e{n}","n":{n}}}', ("even",), "output", 0) for n in (1, 3))
    checked(scratch, declared(0))


class Killed(BaseException):
    """A kill, as far as files can show it."""


@pytest.mark.campaign
@pytest.mark.parametrize("point", ["table-archive", "table", "quarantine"])
def test_a_replay_that_ended_at_any_step_is_finished_as_it_was_decided(refused, monkeypatch, point):
    def pause(name, stream):
        if name == f"replay-{point}":
            raise Killed(f"{stream} at {name}")

    with monkeypatch.context() as patch:
        patch.setattr(steps, "pause_point", pause)
        patch.setattr(sys.modules[replay_quarantine.__module__], "pause_point", pause)
        with pytest.raises(Killed):
            replay_quarantine(shop(200)["copied"], refused.target, refused.engine)
    replay_quarantine(shop(999)["copied"], refused.target, refused.engine)
    assert contents(refused, shop(200)["copied"]) == expected(ROWS, 200)


def test_runs_that_were_killed_leave_each_row_in_one_table(scratch, tmp_path):
    """Before the table commits, the rules of the next run count; after it, those of the killed one."""
    made = shop(100)
    for arrival in ARRIVALS:
        scratch.run(made["orders"], [arrival])
        scratch.drop_file("events", arrival)
    points = {"plain": "after-quarantine", "ingested": "after-quarantine", "copied": "after-sink"}
    command = ["tests.run.quarantine.row_streams", scratch.lake.uri, str(scratch.landing), "100", *points]
    at = " ".join(f"shop/{name}:{point}" for name, point in points.items())
    killed_when(command, tmp_path, point=at, every=3)
    for name in points:
        assert contents(scratch, made[name])[1], "the quarantine comes first"
    # The edit between the kill and the next run: other rules, and none.
    later = {
        "plain": shop(0, on="warn")["plain"],
        "ingested": shop(200)["ingested"],
        "copied": shop(200)["copied"],
    }
    for stream in later.values():
        scratch.run(stream)
        checked(scratch, stream)
    kept = multiset((row["id"],) for row in ROWS if row["customer"] != "test")
    assert contents(scratch, later["plain"]) == (kept, Counter())
    assert contents(scratch, later["ingested"]) == expected(ROWS, 200)
    assert contents(scratch, later["copied"]) == expected(ROWS, 100)


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["ingested", "plain", "current"])
def test_a_backfill_and_a_rebuild_quarantine_as_a_run_does(scratch, name):
    first = shop(100)[name]
    orders = first if name == "ingested" else shop(100)["orders"]
    amounts = [(20, 1), (45, 1), (30, 0), (120, 9)]
    days = [[order(amount, parts=parts, day=day) for amount, parts in amounts] for day in range(3)]
    for arrival in days:
        scratch.run(orders, [arrival])
    if orders is not first:
        scratch.run(first)
    assert contents(scratch, first) == expected([row for day in days for row in day], 100)
    others = expected([*days[0], *days[2]], 100)
    for most in (40, 130):
        changed = shop(most)[name]
        backfill(changed, scratch.target, scratch.engine, begin="2026-01-02", end="2026-01-03")
        again = expected(days[1], most)
        assert contents(scratch, first) == (others[0] + again[0], others[1] + again[1])
        checked(scratch, changed)
    rebuild(shop(60)[name], scratch.target, scratch.engine)
    assert contents(scratch, first) == expected([row for day in days for row in day], 60)
    checked(scratch, first)


@pytest.mark.campaign
def test_quarantined_rows_of_files_that_a_lookback_does_not_read_stay(scratch):
    days = [[order(20, day=day), order(120, parts=9, day=day)] for day in range(3)]
    unread = order(150, parts=9, day=1)
    for day, rows in enumerate(days):
        path = scratch.drop_file("events", [*rows, unread] if day == 2 else rows)
        seconds = (DAY + timedelta(days=day, hours=12)).timestamp()
        os.utime(path, (seconds, seconds))
    stream = shop(100)["ingested"]
    scratch.run(stream)
    given = {"begin": "2026-01-02", "end": "2026-01-03", "lookback": "1 hour"}
    backfill(shop(200)["ingested"], scratch.target, scratch.engine, **given)
    others = expected([*days[0], *days[2], unread], 100)
    assert contents(scratch, stream) == (others[0] + multiset((row["id"],) for row in days[1]), others[1])


def test_a_row_is_the_same_after_its_way_through_json(engine):
    with session_of(engine) as spark:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        rows = spark.sql("""
            SELECT 9007199254740993 AS big, CAST(1.1 AS FLOAT) AS small, double('NaN') AS nan,
                double('-Infinity') AS low, CAST('12345678901234567.123456789' AS DECIMAL(38, 9)) AS exact,
                TIMESTAMP'1883-11-18 12:00:00.123456' AS early, TIMESTAMP_NTZ'2026-01-01 00:00:00.000001' AS local,
                DATE'0001-01-01' AS day, X'00FF' AS bytes, 'é"\\\\\\n' AS text, CAST(NULL AS STRING) AS nothing,
                map('a b', 1, 'c', NULL) AS counts, array(NULL, named_struct('x', 1Y, 'y', NULL)) AS parts,
                named_struct('x', CAST(NULL AS INT)) AS empty, CAST(NULL AS STRUCT<x: INT>) AS missing, 1 AS `a.b ``c`
        """)
        never = [Expect("never", "big IS NULL", on_violation="quarantine")]
        columns = json_columns(rows.schema)
        entries = refused_rows(with_refusals(rows, never))
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        back = entries.select(row_of_json("raw", columns).alias("row")).select("row.*")
        assert back.schema.simpleString() == rows.schema.simpleString()
        now, before = (one.withColumn("counts", F.map_entries("counts")) for one in (back, rows))
        assert now.exceptAll(before).count() == 0


def test_a_column_that_json_cannot_hold_is_refused_before_anything_is_written(scratch):
    shop = Pipeline("shop")

    @shop.stream(
        source=Feed("orders", format=Json("id STRING")),
        sink=DeltaAppend(),
        expect=[Expect("known", "id <> ''", on_violation="quarantine")],
    )
    def orders(events):
        return events.withColumn("by_number", F.create_map(F.lit(1), F.col("id")))

    with raises("expectation-unsuitable", "'by_number'", "map<int,string>"):
        scratch.run(orders, [[{"id": "a"}]])
    assert scratch.lake.table(orders.name).open() is None
