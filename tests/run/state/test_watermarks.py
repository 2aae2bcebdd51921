"""Watermarks over many runs: what is emitted, and when, is what a query that never stops would emit."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.run.test_follow import followed, until
from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, FileSource, Json, Pipeline, QueryOptions
from tidemill import functions as F
from tidemill.checkpoint import read_tail
from tidemill.operations.generations.rewind import rewind
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide_run
from tidemill.run.execute import follow as following
from tidemill.testing import multiset

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def append(scratch, stream, columns, *rows) -> None:
    """Rows of a string and a time in the table of a stream, which the test writes itself."""
    schema = pa.schema({columns[0]: pa.string(), columns[1]: pa.timestamp("us", "UTC")})
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)
    write_deltalake(scratch.lake.table(stream.name).uri, table, mode="append")


KINDS = {"views": "id STRING, at TIMESTAMP", "clicks": "of STRING, clicked TIMESTAMP"}


class Shop:
    """Views and clicks, and each view with the click that followed within ten minutes."""

    def __init__(self, scratch, **idle: str) -> None:
        self.shop, self.scratch, self.built = Pipeline("shop"), scratch, 0
        self.views, self.clicks = (self.input_of(name, schema) for name, schema in KINDS.items())

        @self.shop.stream(
            source={
                "views": self.views.with_watermark("at", "10 minutes"),
                "clicks": self.clicks.with_watermark("clicked", "5 minutes", **idle),
            },
            sink=DeltaAppend(),
            query=QueryOptions(shuffle_partitions=2),
        )
        def pairs(views, clicks):
            self.built += 1
            near = (F.col("of") == F.col("id")) & F.expr("clicked BETWEEN at AND at + INTERVAL 10 MINUTES")
            return views.join(clicks, near, "left").select("id", "of")

        self.pairs = pairs
        self.arrive()

    def input_of(self, name, schema):
        """The table of a stream that does not run."""
        return self.shop.stream(source=Feed(name, format=Json(schema)), sink=DeltaAppend(), name=name)(
            lambda rows: rows
        )

    def arrive(self, views=(), clicks=()) -> None:
        append(self.scratch, self.views, ("id", "at"), *views)
        append(self.scratch, self.clicks, ("of", "clicked"), *clicks)

    def run(self, **rows):
        self.arrive(**rows)
        [result] = self.scratch.run(self.pairs)
        return result


class ShopOfFiles(Shop):
    """The same of files."""

    def input_of(self, name, schema):
        return FileSource(path=str(self.scratch.landing / name), format="json", schema=schema)

    def arrive(self, views=(), clicks=()) -> None:
        for name, columns, rows in (("views", ("id", "at"), views), ("clicks", ("of", "clicked"), clicks)):
            (self.scratch.landing / name).mkdir(parents=True, exist_ok=True)
            if rows:
                lines = [dict(zip(columns, (value, time.isoformat()), strict=True)) for value, time in rows]
                self.scratch.drop_file(name, lines)


def test_inputs_that_get_news_in_different_runs_move_the_watermark(scratch):
    shop, marks = Shop(scratch), []
    for run in range(6):
        time = at(30 * run)
        news = {"clicks": [(f"v{run - 1}", time)]} if run % 2 else {"views": [(f"v{run}", time)]}
        marks.append(shop.run(**news).watermark_ms)
        assert shop.built == run + 1, "what the watermark closes is emitted by the query that read the rows"
        assert decide_run(shop.pairs, scratch.target).idle
    # The slower of the two after each run: the newest view minus 10 minutes, and the newest click minus 5.
    views = [None, 0, 60, 60, 120, 120]
    clicks = [None, 30, 30, 90, 90, 150]
    expected = [
        None if click is None else milliseconds(min(at(view - 10), at(click - 5)))
        for view, click in zip(views, clicks, strict=True)
    ]
    assert marks == expected
    # The last click has closed what the views before it were waiting for.
    assert scratch.rows(shop.pairs) == multiset((f"v{run}", None) for run in (0, 2))


@pytest.mark.parametrize("kind", [Shop, pytest.param(ShopOfFiles, marks=pytest.mark.campaign)])
def test_a_run_that_was_killed_before_its_records_forgets_no_event(scratch, kind):
    """The commit is there, and neither the line in the ledger nor the newest events in the manifest."""
    shop = kind(scratch)
    shop.run(views=[("a", at(0))])
    records = StreamRecords(scratch.lake, shop.pairs.name)
    before = records.manifest()
    result = shop.run(clicks=[("x", at(60)), ("y", at(59))])
    records.write_manifest(before)
    records.ledger.files.delete([f"{result.batches[0].run_id}.jsonl"])
    assert shop.run(views=[("b", at(90))]).watermark_ms == milliseconds(at(55))
    assert scratch.rows(shop.pairs) == multiset([("a", None)])
    lines = {line.batch_id: line for line in records.ledger.lines()}
    assert [line.reconstructed for _, line in sorted(lines.items())] == [False, True, True, False, False]
    assert lines[1].newest_event_ms_by_source == {"clicks": milliseconds(at(60))}


@pytest.mark.campaign
def test_a_rewind_forgets_the_events_after_its_batch(scratch):
    shop = Shop(scratch)
    shop.run(views=[("a", at(0))], clicks=[("x", at(10))])
    batch = read_tail(scratch.checkpoint(shop.pairs.name)).latest_commit.batch_id
    shop.run(views=[("b", at(60)), ("c", at(500))], clicks=[("b", at(61)), ("y", at(500))])
    expected = scratch.rows(shop.pairs)
    rewind(shop.pairs, scratch.target, scratch.engine, to_batch=batch)
    assert StreamRecords(scratch.lake, shop.pairs.name).manifest().active.newest_events.keys() == {
        "views",
        "clicks",
    }
    shop.run()
    assert scratch.rows(shop.pairs) == expected


def test_a_silent_input_holds_nothing_back_after_its_time(scratch):
    shop = Shop(scratch, idle_after="1 hour")
    shop.run(views=[("a", at(0))], clicks=[("a", at(1)), ("x", at(30))])
    assert shop.run(views=[("b", at(100)), ("c", at(200))]).watermark_ms == milliseconds(at(25))
    assert decide_run(shop.pairs, scratch.target).idle
    records = StreamRecords(scratch.lake, shop.pairs.name)
    manifest = records.manifest()
    newest = manifest.active.newest_events
    long_ago = replace(newest["clicks"], read_at=(datetime.now(UTC) - timedelta(hours=2)).isoformat())
    records.write_manifest(manifest.with_active(newest_events={**newest, "clicks": long_ago}))
    assert not decide_run(shop.pairs, scratch.target).idle
    assert shop.run().watermark_ms == milliseconds(at(190))
    result = shop.run(clicks=[("b", at(101)), ("c", at(201))])
    assert sum(batch.late.count for batch in result.batches if batch.late) == 1
    assert scratch.rows(shop.pairs) == multiset([("a", "a"), ("b", None), ("c", "c")])


@pytest.mark.campaign
@pytest.mark.parametrize("idle", [{}, {"idle_after": "2 seconds"}], ids=["resumed", "idle"])
def test_a_query_that_follows_its_inputs_continues_the_watermark(scratch, monkeypatch, idle):
    """Spark knows only the inputs that had rows since the query began."""
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(following, "_MARK_SECONDS", 0.5)
    shop = Shop(scratch, **idle)
    shop.run(views=[("a", at(0))], clicks=[("x", at(60))])
    records = StreamRecords(scratch.lake, shop.pairs.name)
    with followed(scratch, shop.pairs) as results:
        shop.arrive(views=[("b", at(50))])
        until(lambda: (records.snapshot().next_watermark_ms or 0) >= milliseconds(at(40)))
        shop.arrive(views=[("c", at(200))])
        reached = at(190) if idle else at(55)
        until(lambda: records.snapshot().next_watermark_ms == milliseconds(reached))
        closed = [("a", None), ("b", None)] if idle else [("a", None)]
        until(lambda: scratch.rows(shop.pairs) == multiset(closed))
    assert [(result.outcome, result.error) for result in results] == [("updated", None)]
    assert scratch.rows(shop.pairs) == multiset(closed)


def test_idle_after_needs_an_input_that_it_could_hold_back():
    shop = Pipeline("shop")
    views = shop.stream(
        source=Feed("a", format=Json("id STRING, at TIMESTAMP")), sink=DeltaAppend(), name="a"
    )(lambda rows: rows)
    only = views.with_watermark("at", "1 hour", idle_after="1 day")
    with raises("idle-after-without-effect", "idle_after"):
        shop.stream(source=only, sink=DeltaAppend(), name="b")(lambda rows: rows)
