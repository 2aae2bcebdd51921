"""Several streams append to one table: each row is there once, and no operation removes the rows of others."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from tests.support.checked import failed_checks
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.definitions.selection import topological_order
from tidemill.definitions.sink import SinkContext
from tidemill.errors import TransientError
from tidemill.operations.core import staging
from tidemill.operations.generations.reset import reset
from tidemill.operations.generations.rewind import rewind
from tidemill.operations.quarantine.quarantine_replay import replay_quarantine
from tidemill.operations.replay.backfill import backfill
from tidemill.operations.replay.rebuild import rebuild
from tidemill.run.decide.status import status_of
from tidemill.sinks.shared_append import SharedTable
from tidemill.storage.local_store import LocalStore
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

WEB = [[("a", 1), ("b", 2)], [("a", 3)], []]
APP = [[("a", 1)], [("c", 5), ("c", 5)], [("d", None)]]
VIEW = "page STRING, n BIGINT"


def declared(rules=None):
    """A stream with a table, one that appends to it, and a reader of the table."""
    shop = Pipeline("shop")

    web = Feed("web", format=Json(VIEW), max_files_per_batch=1)
    app = Feed("app", format=Json(VIEW), rules=rules or {}, max_files_per_batch=1)

    @shop.stream(source=web, sink=DeltaAppend(), backfill_by="page")
    def views(events):
        return events

    @shop.stream(source=app, sink=DeltaAppend(into=views))
    def app_views(events):
        return events

    @shop.stream(source=views, sink=DeltaAppend())
    def copy(views):
        return views

    return views, app_views, copy


def records(rows):
    return [{"page": page, "n": n} for page, n in rows]


def run_both(scratch, streams):
    """Run the first two streams at the same time, once per batch of their rows."""
    views, app_views, _ = streams
    scratch.run(views, [records(WEB[0])])
    for number, arriving in enumerate(APP):
        scratch.arrive(app_views, "events", records(arriving))
        if number:
            scratch.arrive(views, "events", records(WEB[number]))
        assert [result.error for result in scratch.run_all([views, app_views])] == [None, None]


def test_readers_see_the_rows_of_all_streams_in_one_table(scratch):
    streams = views, app_views, copy = declared()
    run_both(scratch, streams)
    scratch.run(copy)
    expected = multiset(row for rows in (*WEB, *APP) for row in rows)
    assert scratch.rows(views, "page", "n") == expected
    assert scratch.rows(copy, "page", "n") == expected
    assert scratch.rows(app_views, "batch_id", "rows") == multiset(
        (n, len(rows)) for n, rows in enumerate(APP)
    )
    for stream in streams:
        assert status_of(stream, scratch.target).state == "idle"
        assert failed_checks(scratch, stream) == []
    assert app_views.sinks[0].delivery == "exactly once"
    for remove in (
        lambda: rebuild(views, scratch.target, scratch.engine, dry_run=True),
        lambda: rewind(views, scratch.target, scratch.engine, to_batch=0, dry_run=True),
        lambda: backfill(views, scratch.target, scratch.engine, begin="a", end="b", dry_run=True),
        lambda: reset(views, scratch.target, scratch.engine, start="earliest", table="replace", dry_run=True),
    ):
        with raises("table-shared", "shop/views", "shop/app_views", "Fix: "):
            remove()
    reset(views, scratch.target, scratch.engine, start="now", table="keep", dry_run=True)


@pytest.mark.campaign
def test_a_run_appends_before_it_reads(scratch):
    streams = views, app_views, copy = declared()
    assert topological_order([copy, app_views, views]) == streams
    scratch.arrive(views, "events", records(WEB[0]))
    scratch.arrive(app_views, "events", records(APP[0]))
    assert [result.error for result in scratch.run_all([copy, app_views, views])] == [None] * 3
    assert scratch.rows(copy, "page", "n") == multiset([*WEB[0], *APP[0]])
    scratch.arrive(app_views, "events", records(APP[1]))
    outcomes = {result.stream: result.outcome for result in scratch.run_all(streams)}
    assert outcomes == {views.name: "idle", app_views.name: "updated", copy.name: "updated"}
    assert scratch.rows(copy, "page", "n") == multiset([*WEB[0], *APP[0], *APP[1]])


@pytest.mark.campaign
def test_a_stream_that_begins_to_append_during_a_rebuild_stops_it(scratch, monkeypatch):
    views, app_views, _ = declared()
    scratch.run(views, [records(WEB[0])])
    compute = staging.ensure_computed

    def computed(*arguments):
        operation = compute(*arguments)
        scratch.run(app_views, [records(APP[0])])
        return operation

    monkeypatch.setattr(staging, "ensure_computed", computed)
    with raises("table-shared", "shop/app_views"):
        rebuild(views, scratch.target, scratch.engine)
    assert scratch.rows(views, "page", "n") == multiset([*WEB[0], *APP[0]])


@pytest.mark.campaign
def test_records_that_pass_later_are_appended_too(scratch):
    views, app_views, _ = declared(rules={"known": "n IS NOT NULL"})
    scratch.run(views, [records(WEB[0])])
    scratch.run(app_views, [records([*APP[0], *APP[2]])])
    assert scratch.rows(views, "page", "n") == multiset([*WEB[0], *APP[0]])
    views, app_views, _ = declared()
    replay_quarantine(app_views, scratch.target, scratch.engine)
    assert scratch.rows(views, "page", "n") == multiset([*WEB[0], *APP[0], *APP[2]])
    for stream in (views, app_views):
        assert failed_checks(scratch, stream) == []


@pytest.mark.campaign
def test_a_commit_of_a_program_that_only_says_so_is_a_finding(scratch):
    streams = views, _, _ = declared()
    run_both(scratch, streams)
    spoofed = {"tidemill": {"appended_by": "shop/app_views"}}
    table = scratch.lake.table(views.name)
    rows = table.open().to_pyarrow_table().slice(0, 1)
    write_deltalake(
        table.uri,
        rows,
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps(spoofed)}),
    )
    checks = {check.name: check for check in evaluate(views, scratch.target, datetime.now(UTC))}
    assert "another program wrote it" in checks["exactly_once"].summary


def test_a_table_that_its_own_stream_has_not_written_is_worth_a_retry(scratch):
    views, app_views, _ = declared()
    with raises("shared-table-missing", "shop/app_views", "tidemill run shop/views") as raised:
        scratch.run(app_views, [records(APP[0])])
    assert isinstance(raised.value, TransientError)
    scratch.run(views, [records(WEB[0])])
    scratch.run(app_views)
    assert scratch.rows(views, "page", "n") == multiset([*WEB[0], *APP[0]])


def test_an_empty_table_that_its_own_stream_may_still_replace_is_not_shared(tmp_path):
    _, app_views, _ = declared()
    path = tmp_path / "views"
    DeltaTable.create(str(path), schema=pa.schema([("page", pa.string()), ("n", pa.int64())]))
    context = SinkContext(
        TableRef.at(tmp_path / "app_views"), SharedTable(TableRef.at(path), LocalStore(tmp_path))
    )
    with raises("shared-table-missing"):
        app_views.sinks[0].check(context, StructType())


@pytest.mark.parametrize(
    ("column", "code", "names"),
    [
        ("CAST(n AS INT) AS n", "column-type-changed", ("'n' is int", "bigint", "shop/views")),
        ("n, n AS more", "column-added", ("'more'", "shop/views")),
    ],
)
def test_columns_that_the_table_does_not_have_are_refused(scratch, column, code, names):
    views, _, _ = declared()
    scratch.run(views, [records(WEB[0])])
    feed = Feed("app", format=Json("page STRING, n BIGINT"))
    other = Pipeline("other").stream(source=feed, sink=DeltaAppend(into=views), name="other")(
        lambda events: events.selectExpr("page", *column.split(", "))
    )
    with raises(code, "other/other", "Fix: ", *names):
        scratch.run(other, [records(APP[0])])


def stream(pipeline, name, sink, source=None):
    feed = Feed(name, format=Json("id STRING, seq BIGINT"))
    return pipeline.stream(source=source or feed, sink=sink, name=name)(lambda events: events)


def test_what_it_stands_for():
    shop = Pipeline("shop")
    views = stream(shop, "views", DeltaAppend(partition_by=["id"]))
    more = stream(shop, "more", DeltaAppend(into=views))
    assert [sink.name for sink in more.sinks] == ["views", "main"]
    assert more.sinks[0].appends_into == views.name
    assert not more.main.has_rows
    both = stream(shop, "both", [DeltaAppend(), DeltaAppend(into=views, name="all")])
    assert [sink.name for sink in both.sinks] == ["all", "main"]
    assert both.main.has_rows


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (lambda _shop, _views: DeltaAppend(into="views"), "argument-invalid", "'views'"),
        (
            lambda _shop, views: DeltaAppend(into=views, partition_by=["id"]),
            "arguments-conflict",
            "shop/views",
        ),
        (
            lambda shop, _views: DeltaAppend(
                into=stream(shop, "merged", DeltaMerge(keys=["id"], sequence_by="seq"))
            ),
            "sink-unsuitable",
            "shop/merged",
        ),
        (
            lambda shop, views: DeltaAppend(into=stream(shop, "more", DeltaAppend(into=views))),
            "sink-unsuitable",
            "shop/more",
        ),
        (
            lambda shop, views: stream(shop, "again", DeltaAppend(into=views), views),
            "streams-in-a-cycle",
            "shop/views",
        ),
        (
            lambda shop, views: stream(
                shop, "again", DeltaAppend(into=views), stream(shop, "copy", DeltaAppend(), views)
            ),
            "streams-in-a-cycle",
            "shop/views",
        ),
    ],
)
def test_what_is_declared_wrongly_is_refused(declare, code, value):
    shop = Pipeline("shop")
    views = stream(shop, "views", DeltaAppend())
    with raises(code, value):
        declare(shop, views)
