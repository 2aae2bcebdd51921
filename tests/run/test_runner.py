"""Runs of single streams: what arrives is in the table once, and what cannot be is said."""

import _thread
import json
import random
import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from tests.support.leases import held
from tests.support.raising import raises
from tidemill import (
    Csv,
    DeltaAppend,
    DeltaMerge,
    Expect,
    Feed,
    FileSource,
    Json,
    Pipeline,
    QueryOptions,
    Raw,
)
from tidemill.errors import (
    TerminalError,
    TidemillError,
)
from tidemill.operations.edits.accept import accept_version
from tidemill.records import lease
from tidemill.records.stream_records import StreamRecords
from tidemill.run.batch.writer import BatchWriter
from tidemill.run.decide.decision import decide_run
from tidemill.run.decide.status import status_of
from tidemill.run.execute import pipeline_run, stream_queries
from tidemill.run.execute import running_query as progress
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import FolderBinding
from tidemill.testing import multiset
from tidemill.text.names import StreamName

ORDERS = StreamName("shop", "orders")
ORDER = "order_id STRING, amount BIGINT, at TIMESTAMP"


def same(events):
    return events


def ingest(shop=None, function=same, *, value=None, sink=None, rules=None, **fields):
    shop = shop or Pipeline("shop")
    feed = Feed("orders", format=value or Json(ORDER), rules=rules or {})
    return shop.stream(source=feed, sink=sink or DeltaAppend(), name="orders", **fields)(function)


def order(number, amount=5, at="2026-01-01T00:00:00Z"):
    return {"order_id": f"o{number}", "amount": amount, "at": at}


class NoSessions:
    """Stands for Spark where nothing may start it."""

    def new(self):
        raise AssertionError("a session was asked for")

    def server(self):
        raise AssertionError("a session was asked for")

    def default_partitions(self):
        raise AssertionError("a session was asked for")

    def default_parallel(self):
        return 1

    def abort_start(self):
        raise AssertionError("a run was canceled")


def test_every_record_is_in_the_table_or_in_quarantine(scratch):
    orders = ingest(rules={"amount_positive": "amount > 0"})
    first = [order(1), order(2, 0), "{broken", '{"order_id": "o3", "amount": "five"}', "", "   "]
    second = [order(4), '{"order_id": null, "amount": null}', "[]"]
    results = scratch.run(orders, [first, second])
    assert scratch.rows(orders, "order_id", "amount") == multiset([("o1", 5), ("o4", 5)])
    assert scratch.quarantined(orders) == multiset(
        [
            (json.dumps(order(2, 0)), ("amount_positive",)),
            ("{broken", ("unparsable",)),
            ('{"order_id": "o3", "amount": "five"}', ("unparsable",)),
            ('{"order_id": null, "amount": null}', ("amount_positive",)),
            ("[]", ("unparsable",)),
        ]
    )
    assert [
        (r.total("rows_read"), r.total("rows_written"), r.total("rows_quarantined")) for r in results
    ] == [
        (4, 1, 3),
        (3, 1, 2),
    ]


def test_rows_carry_where_they_come_from(scratch):
    orders = ingest()
    scratch.run(orders, [[order(1)], [order(2)]])
    rows = scratch.rows(orders, "order_id", "_origin", "_batch")
    target = {row[0]: (dict(row[1])["file"].rsplit("/", 1)[1], dict(row[2])) for row in rows}
    assert target == {
        "o1": ("000001.json", {"generation": 1, "batch_id": 0}),
        "o2": ("000002.json", {"generation": 1, "batch_id": 1}),
    }


def test_an_empty_file_and_an_empty_folder_are_fine(scratch):
    orders = ingest()
    assert scratch.run(orders)[0].total("rows_read") == 0
    (scratch.landing / "orders" / "empty.json").write_text("")
    scratch.run(orders)
    scratch.run(orders, [[order(1)]])
    assert scratch.rows(orders, "order_id") == multiset([("o1",)])


def test_csv_and_raw_feeds(scratch):
    lines = ["o1,5", "o2,x"]
    orders = ingest(value=Csv("order_id STRING, amount BIGINT"))
    scratch.run(orders, [lines])
    assert scratch.rows(orders, "order_id", "amount") == multiset([("o1", 5)])
    raw_lines = Pipeline("lines").stream(
        source=Feed("orders", format=Raw()), sink=DeltaAppend(), name="lines"
    )(same)
    scratch.run(raw_lines)
    assert scratch.rows(raw_lines, "value") == multiset([("o1,5",), ("o2,x",)])


@pytest.mark.campaign
def test_files_of_all_formats(scratch, engine, tmp_path):
    rows = [(1, "a"), (2, "b")]
    frame = engine.new().createDataFrame(rows, "id INT, name STRING")
    for kind in ("json", "csv", "parquet", "orc"):
        frame.write.format(kind).save(str(tmp_path / kind))
        source = FileSource(path=str(tmp_path / kind), format=kind, schema="id INT, name STRING")
        stream = Pipeline("formats").stream(source=source, sink=DeltaAppend(), name=kind)(same)
        scratch.run(stream)
        assert scratch.rows(stream) == multiset(rows)


@pytest.mark.parametrize("native", [True, False], ids=["native sink", "feed"])
def test_expectations_warn_drop_and_fail(scratch, native):
    shop = Pipeline("shop")
    rules = [Expect("small", "amount < 100"), Expect("known", "amount IS NOT NULL", on_violation="drop")]
    stream = ingest(shop) if native else ingest(shop, expect=rules)
    arriving = [order(1), order(2, 500), order(3, None)]
    if native:
        scratch.run(stream, [arriving])
        stream = shop.stream(source=stream, sink=DeltaAppend(), name="checked", expect=rules)(same)
        result = scratch.run(stream)[0]
    else:
        result = scratch.run(stream, [arriving])[0]
    assert scratch.rows(stream, "order_id") == multiset([("o1",), ("o2",)])
    assert result.total("rows_dropped") == 1
    # A rule that evaluates to NULL is violated.
    assert result.batches[0].violations == {"small": 2, "known": 1}


def test_a_failed_expectation_writes_nothing_and_loses_nothing(scratch):
    strict = [Expect("positive", "amount > 0", on_violation="fail")]
    with raises("expectation-violated", "shop/orders", "'positive' (amount > 0)") as raised:
        scratch.run(ingest(expect=strict), [[order(1), order(2, -1)]])
    assert "No data was lost" in str(raised.value)
    lenient = ingest()
    assert scratch.rows(lenient) == Counter()
    scratch.run(lenient)
    assert scratch.rows(lenient, "order_id") == multiset([("o1",), ("o2",)])


def test_a_new_column_is_added_and_readers_go_on(scratch):
    shop = Pipeline("shop")
    orders = ingest(shop)
    copy = shop.stream(source=orders, sink=DeltaAppend(), name="copy")(same)
    scratch.run(orders, [[order(1)]])
    scratch.run(copy)
    shop = Pipeline("shop")
    wider = ingest(shop, lambda events: events.withColumn("currency", F.lit("EUR")))
    copy = shop.stream(source=wider, sink=DeltaAppend(), name="copy")(same)
    scratch.run(wider, [[order(2)]])
    scratch.run(copy)
    for stream in (wider, copy):
        assert scratch.rows(stream, "order_id", "currency") == multiset([("o1", None), ("o2", "EUR")])


@pytest.mark.parametrize(
    ("change", "sink", "code", "value"),
    [
        (
            lambda events: events.withColumn("amount", F.lit("x")),
            DeltaAppend(),
            "column-type-changed",
            "bigint",
        ),
        (lambda events: events.drop("amount"), DeltaAppend(), "column-removed", "'amount'"),
        (
            lambda events: events.withColumn("x", F.lit(1)),
            DeltaAppend(merge_schema=False),
            "column-added",
            "merge_schema=False",
        ),
    ],
)
def test_any_other_change_of_the_columns_is_refused_before_the_run(scratch, change, sink, code, value):
    scratch.run(ingest(), [[order(1)]])
    with raises(code, value):
        scratch.run(ingest(function=change, sink=sink), [[order(2)]])
    scratch.run(ingest())
    assert scratch.rows(ingest(), "order_id") == multiset([("o1",), ("o2",)])


@pytest.mark.campaign
def test_several_targets_get_the_same_rows(scratch):
    sinks = [
        DeltaAppend(),
        DeltaAppend(name="archive"),
        DeltaMerge(keys=["order_id"], sequence_by="at", name="latest"),
    ]
    orders = ingest(sink=sinks)
    scratch.run(orders, [[order(1), order(2)], [order(1, 7, "2026-01-02T00:00:00Z")]])
    everything = multiset([("o1", 5), ("o2", 5), ("o1", 7)])
    assert scratch.rows(orders, "order_id", "amount") == everything
    archive, latest = (Path(scratch.lake.table(orders.name, target).uri) for target in ("archive", "latest"))
    assert scratch.table_rows(TableRef.at(archive), "order_id", "amount") == everything
    assert scratch.table_rows(TableRef.at(latest), "order_id", "amount") == multiset([("o1", 7), ("o2", 5)])


CHANGE = "id STRING, name STRING, op STRING, seq BIGINT, at BIGINT"


def changes_of(seed, keys=4, number=60):
    generator = random.Random(seed)
    changes = [
        {
            "id": f"k{generator.randrange(keys)}",
            "name": f"n{seq}",
            "op": "delete" if generator.random() < 0.25 else "upsert",
            "seq": seq,
            "at": seq * 10,
        }
        for seq in range(number)
    ]
    changes += generator.sample(changes, 10)  # sent again
    generator.shuffle(changes)
    cuts = sorted(generator.sample(range(len(changes)), 3))
    return [changes[a:b] for a, b in zip([0, *cuts], [*cuts, len(changes)], strict=True)]


def merge_stream(scd_type, **fields):
    return Pipeline("shop").stream(
        source=Feed("changes", format=Json(CHANGE)),
        sink=DeltaMerge(
            keys=["id"],
            sequence_by="seq",
            apply_as_deletes="op = 'delete'",
            except_columns=["op"],
            scd_type=scd_type,
            **fields,
        ),
        name="customers",
    )(same)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1, 2])
def test_scd_1_keeps_the_current_row_whatever_the_order(scratch, seed):
    runs = changes_of(seed)
    stream = merge_stream(1)
    scratch.run(stream, runs)
    newest = {}
    for change in (change for run in runs for change in run):
        if change["seq"] >= newest.get(change["id"], change)["seq"]:
            newest[change["id"]] = change
    expected = multiset((c["id"], c["name"], c["seq"]) for c in newest.values() if c["op"] == "upsert")
    assert scratch.rows(stream, "id", "name", "seq") == expected


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [3, 4])
def test_scd_2_keeps_every_version_with_its_validity(scratch, seed):
    runs = changes_of(seed)
    stream = merge_stream(2, valid_by="at")
    scratch.run(stream, runs)
    by_key = {}
    for change in {c["seq"]: c for run in runs for c in run}.values():
        by_key.setdefault(change["id"], []).append(change)
    expected = Counter()
    for versions in by_key.values():
        versions.sort(key=lambda c: c["seq"])
        ends = [following["at"] for following in versions[1:]] + [None]
        for change, end in zip(versions, ends, strict=True):
            if change["op"] == "upsert":
                expected[(change["id"], change["name"], change["at"], end)] += 1
    assert scratch.rows(stream, "id", "name", "__START_AT", "__END_AT") == expected


def test_a_change_without_a_key_is_refused(scratch):
    change = {"id": None, "name": "x", "op": "upsert", "seq": 1, "at": 1}
    with raises("merge-key-null", "id, seq"):
        scratch.run(merge_stream(1), [[change]])


@pytest.mark.campaign
def test_changes_of_a_merge_table_stream_without_tombstones(scratch):
    shop = Pipeline("shop")
    customers = shop.stream(
        source=Feed("changes", format=Json(CHANGE)),
        sink=DeltaMerge(keys=["id"], sequence_by="seq", apply_as_deletes="op = 'delete'"),
        name="customers",
    )(same)
    log = shop.stream(source=customers.changes(), sink=DeltaAppend(), name="log")(
        lambda changes: changes.select("id", "seq", F.col("_change_type").alias("change"))
    )
    upsert = {"id": "a", "name": "x", "op": "upsert", "seq": 1, "at": 1}
    for arriving in ([upsert], [{**upsert, "seq": 2}], [{**upsert, "seq": 3, "op": "delete"}]):
        scratch.run(customers, [arriving])
        scratch.run(log)
    assert scratch.rows(log) == multiset(
        [
            ("a", 1, "insert"),
            ("a", 1, "update_preimage"),
            ("a", 2, "update_postimage"),
            ("a", 2, "delete"),
        ]
    )


def test_a_snapshot_is_pinned_and_recorded(scratch):
    shop = Pipeline("shop")
    orders = ingest(shop)
    names = shop.stream(
        source=Feed("names", format=Json("order_id STRING, name STRING")),
        sink=DeltaAppend(),
        name="names",
    )(same)
    joined = shop.stream(
        source={"orders": orders, "names": names.static()}, sink=DeltaAppend(), name="joined"
    )(lambda orders, names: orders.join(names, "order_id", "left").select("order_id", "name"))
    scratch.run(names, [[{"order_id": "o1", "name": "first"}]])
    scratch.run(orders, [[order(1)]])
    scratch.run(joined)
    scratch.run(names, [[{"order_id": "o2", "name": "second"}]])
    scratch.run(orders, [[order(2), order(3)]])
    result = scratch.run(joined)[0]
    assert scratch.rows(joined) == multiset([("o1", "first"), ("o2", "second"), ("o3", None)])
    version = scratch.lake.table(names.name).log.latest_version()
    assert result.batches[0].static_versions == {"names": version}
    *_, commit = scratch.lake.table(joined.name).log.commits(0)
    assert commit_metadata(commit)["static_versions"] == {"names": version}


def test_a_function_that_starts_a_query_is_refused_and_the_query_stopped(scratch, tmp_path):
    own = tmp_path / "own"

    def console(events):
        writer = events.writeStream.format("noop").option("checkpointLocation", str(own))
        writer.queryName("mine").start()
        return events

    with raises("function-starts-query", "shop/orders", "mine"):
        scratch.run(ingest(function=console), [[order(1)]])
    written = set(own.rglob("*"))
    scratch.drop_file("orders", [order(2)])
    time.sleep(3)
    assert written == set(own.rglob("*")) != set(), "nothing reads what arrives later"
    assert scratch.lake.table(ORDERS).log.latest_version() is None


def test_a_join_in_a_function_of_a_feed_is_refused(scratch):
    orders = ingest(function=lambda events: events.join(events.sparkSession.range(3), F.col("id") == 1))
    with raises("feed-not-alone", ".static()"):
        scratch.run(orders)


def test_a_stateful_function_on_a_feed_is_refused(scratch):
    orders = ingest(function=lambda events: events.groupBy("order_id").count())
    with raises("feed-with-state", "'Aggregate'"):
        scratch.run(orders, [[order(1)]])


def test_a_batch_to_repeat_is_not_committed_without_its_files(scratch, tmp_path, monkeypatch):
    orders = ingest()
    with monkeypatch.context() as patched:

        def fail(*_):
            raise TerminalError("it was stopped in the middle of the batch.")

        patched.setattr(BatchWriter, "__call__", fail)
        with pytest.raises(TidemillError):
            scratch.run(orders, [[order(1)]])
    (file,) = (scratch.landing / "orders").iterdir()
    kept = file.rename(tmp_path / "kept")
    scratch.drop_file("orders", [order(2)])
    with raises("planned-files-missing", "1 file", file):
        scratch.run(orders)
    kept.rename(file)
    scratch.run(orders)
    assert scratch.rows(orders, "order_id") == multiset([("o1",), ("o2",)])


def copied(scratch):
    """A stream of two orders, and another one that has read them."""
    shop = Pipeline("shop")
    orders = ingest(shop)
    copy = shop.stream(source=orders, sink=DeltaAppend(), name="copy")(same)
    scratch.run(orders, [[order(1), order(2)]])
    scratch.run(copy)
    return orders, copy


def test_rows_of_an_upstream_that_are_removed_when_the_run_has_looked_stop_its_readers(scratch, monkeypatch):
    """Between the look of the guard and the start of the query, another program may commit."""
    orders, copy = copied(scratch)
    scratch.run(orders, [[order(3)]])
    table = DeltaTable(scratch.lake.table(orders.name).uri)
    with monkeypatch.context() as patched:
        patched.setattr(stream_queries.relocation, "follow", lambda *_: table.delete("order_id = 'o1'"))
        with raises("upstream-rows-changed", "DELETE"):
            scratch.run(copy)
    for _ in range(2):
        with raises("upstream-rows-changed", "DELETE"):
            scratch.run(copy)
    version = scratch.lake.table(orders.name).log.latest_version()
    accept_version(copy, scratch.target, orders.name, version)
    scratch.run(orders, [[order(4)]])
    scratch.run(copy)
    assert scratch.rows(copy, "order_id") == multiset([(f"o{n}",) for n in (1, 2, 3, 4)])


def test_a_run_that_passes_an_accepted_commit_does_not_pass_the_next_one_unseen(scratch, monkeypatch):
    orders, copy = copied(scratch)
    table = DeltaTable(scratch.lake.table(orders.name).uri)
    table.delete("order_id = 'o1'")
    accept_version(copy, scratch.target, orders.name, table.version())
    scratch.run(orders, [[order(3)]])
    monkeypatch.setattr(
        stream_queries.relocation, "follow", lambda *_: DeltaTable(table.table_uri).delete("order_id = 'o2'")
    )
    with raises("upstream-rows-changed", "version", "DELETE"):
        scratch.run(copy)


def test_removed_rows_of_an_upstream_stop_its_readers(scratch, engine):
    orders, copy = copied(scratch)
    table = Path(scratch.lake.table(orders.name).uri)
    engine.new().sql(f"DELETE FROM delta.`{table}` WHERE order_id = 'o1'")  # noqa: S608 - a path of the test
    with raises(
        "upstream-rows-changed",
        f"version {TableRef.at(table).log.latest_version()} of shop/orders (DELETE)",
    ):
        scratch.run(copy)
    assert scratch.rows(copy, "order_id") == multiset([("o1",), ("o2",)])


def test_a_compaction_of_an_upstream_is_nothing(scratch, engine):
    shop = Pipeline("shop")
    orders = ingest(shop)
    copy = shop.stream(source=orders, sink=DeltaAppend(), name="copy")(same)
    scratch.run(orders, [[order(1)], [order(2)]])
    engine.new().sql(f"OPTIMIZE delta.`{scratch.lake.table(orders.name)}`")
    scratch.run(orders, [[order(3)]])
    scratch.run(copy)
    assert scratch.rows(copy, "order_id") == multiset([("o1",), ("o2",), ("o3",)])


def _without_checkpoint(scratch, name):
    shutil.rmtree(scratch.checkpoint(name))


def _without_table(scratch, name):
    shutil.rmtree(Path(scratch.lake.table(name).uri))


def _without_control(scratch, name):
    shutil.rmtree(Path(scratch.lake.records(name).uri()))


def _without_control_and_checkpoint(scratch, name):
    _without_control(scratch, name)
    shutil.rmtree(scratch.checkpoint(name).parent)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_without_checkpoint, "checkpoint-missing"),
        (_without_table, "table-replaced"),
        (_without_control, "control-folder-missing"),
        (_without_control_and_checkpoint, "records-missing"),
    ],
)
def test_a_missing_part_is_an_error_and_not_a_second_start(scratch, damage, code):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    rows = scratch.rows(orders)
    damage(scratch, orders.name)
    with raises(code):
        scratch.run(orders, [[order(2)]])
    if damage is not _without_table:
        assert scratch.rows(orders) == rows


def test_an_older_copy_of_the_checkpoint_is_refused(scratch):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    checkpoint = scratch.checkpoint(orders.name)
    shutil.copytree(checkpoint, checkpoint.with_name("copy"))
    scratch.run(orders, [[order(2)]])
    shutil.rmtree(checkpoint)
    checkpoint.with_name("copy").rename(checkpoint)
    with raises("checkpoint-not-sound", "batch 1", "batch 0", "sink-ahead"):
        scratch.run(orders, [[order(3)]])


def test_an_older_copy_of_the_table_is_refused_and_both_batches_are_named(scratch):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    table = Path(scratch.lake.table(orders.name).uri)
    shutil.copytree(table, table.with_name("copy"))
    scratch.run(orders, [[order(2)]])
    shutil.rmtree(table)
    table.with_name("copy").rename(table)
    with raises("checkpoint-not-sound", "Batch 1", "is 0", "sink-behind"):
        scratch.run(orders)
    assert status_of(orders, scratch.target).state == "corrupt"


def test_a_changed_binding_is_refused_with_the_way_around(scratch, tmp_path):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    (tmp_path / "elsewhere").mkdir()
    scratch.bindings["orders"] = FolderBinding(tmp_path / "elsewhere")
    with raises("binding-changed", "'events'", tmp_path / "elsewhere"):
        scratch.run(orders)


def test_a_table_that_forgets_transactions_is_refused(scratch, engine):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    table = Path(scratch.lake.table(orders.name).uri)
    engine.new().sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = '1 day')"
    )
    with raises("transactions-expire", "UNSET TBLPROPERTIES"):
        scratch.run(orders, [[order(2)]])


def test_nothing_new_starts_nothing(scratch):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    before = sorted(path for path in Path(scratch.lake.uri).rglob("*"))
    scratch.engine = NoSessions()
    assert [result.outcome for result in scratch.run(orders)] == ["idle"]
    assert sorted(path for path in Path(scratch.lake.uri).rglob("*")) == before


def test_a_stream_that_is_held_is_busy_and_untouched(scratch):
    orders = ingest()
    scratch.run(orders, [[order(1)]])
    scratch.arrive(orders, "events", [order(2)])
    folder = Path(scratch.lake.records(orders.name).uri()) / "lease"
    with held(folder, orders.name, "the-other-run"):
        scratch.engine, engine = NoSessions(), scratch.engine
        [result] = scratch.run(orders)
        assert (result.outcome, result.batches) == ("busy", ())
        assert "the-other-run" in result.reason
    scratch.engine = engine
    scratch.run(orders)
    assert scratch.rows(orders, "order_id") == multiset([("o1",), ("o2",)])


def test_a_failed_stream_skips_what_depends_on_it_and_nothing_else(scratch):
    shop = Pipeline("shop")
    bad = F.raise_error(F.lit("broken on purpose")).cast("string")
    orders = ingest(shop, lambda events: events.withColumn("bad", bad))
    shop.stream(source=orders, sink=DeltaAppend(), name="copy")(same)
    other = shop.stream(source=Feed("names", format=Raw()), sink=DeltaAppend(), name="names")(same)
    scratch.arrive(orders, "events", [order(1)])
    scratch.arrive(other, "events", ["x"])
    results = {result.stream.stream: result for result in scratch.run_all(shop)}
    assert {name: result.outcome for name, result in results.items()} == {
        "orders": "failed",
        "copy": "skipped",
        "names": "updated",
    }
    assert results["orders"].error.error_class == "USER_RAISED_EXCEPTION"
    assert "broken on purpose" in str(results["orders"].error)
    assert "\n" not in str(results["orders"].error)


@dataclass(frozen=True)
class FailingSink(DeltaAppend):
    def commit(self, *_):
        raise _error_of("sink")


class SilentError(Exception):
    pass


def _error_of(place):
    return {"udf": ValueError("no place\nfor it"), "sink": KeyError("column"), "silent": SilentError()}[place]


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [
        ("udf", "ValueError", "ValueError: no place"),
        ("sink", "KeyError", "KeyError: 'column'"),
        ("silent", "SilentError", "SilentError"),
    ],
)
def test_an_error_of_python_is_named_wherever_it_was_raised(scratch, place, kind, message):
    scratch.engine.new()  # `udf` asks for the session that is there

    def raise_error(_):
        raise _error_of(place)

    failing = F.udf(raise_error, "string")
    if place == "sink":
        orders = ingest(sink=FailingSink())
    else:
        orders = ingest(function=lambda events: events.withColumn("more", failing("order_id")))
    with pytest.raises(TerminalError) as raised:
        scratch.run(orders, [[order(1)]])
    assert raised.value.error_class.split(".")[-1] == kind
    text = str(raised.value)
    assert re.search(
        rf"{message} \(\S*test_runner\.py:\d+\)\. No data was lost\. Fix: correct the cause;", text
    )
    assert "\n" not in str(raised.value)


def test_an_interrupt_stops_the_query_and_frees_the_stream(scratch):
    scratch.engine.new()  # `udf` asks for the session that is there
    slow = F.udf(lambda text: time.sleep(30) or text, "string")
    orders = ingest(function=lambda events: events.withColumn("slow", slow("order_id")))
    scratch.arrive(orders, "events", [order(1)])
    running = scratch.start([orders])
    results = running.iter_results()
    timer_started = time.monotonic()
    offsets = scratch.checkpoint(orders.name) / "offsets" / "0"
    Thread(target=_interrupt_after, args=(offsets,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert time.monotonic() - timer_started < 60
    assert [result.outcome for result in running.finished] == ["canceled"]
    deadline = time.monotonic() + 60  # the lease is free when the query has really stopped
    while lease.holder_of(scratch.lake.records(orders.name).below("lease")) and time.monotonic() < deadline:
        time.sleep(0.05)
    fast = ingest(function=lambda events: events.withColumn("slow", F.col("order_id")))
    scratch.run(fast)
    assert scratch.rows(fast, "order_id") == multiset([("o1",)])


def test_a_lease_is_held_until_the_query_has_really_stopped(scratch, monkeypatch):
    monkeypatch.setattr(progress, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(pipeline_run, "CANCEL_SECONDS", 0.3)
    scratch.engine.new()  # `udf` asks for the session that is there
    slow = F.udf(lambda text: time.sleep(8) or text, "string")
    orders = ingest(function=lambda events: events.withColumn("slow", slow("order_id")))
    scratch.arrive(orders, "events", [order(1)])
    running = scratch.start([orders])
    timer = Thread(target=_interrupt_after, args=(scratch.checkpoint(orders.name) / "offsets" / "0",))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(running.iter_results())
    [query] = list(running._stream_runs.values())
    records = StreamRecords(scratch.lake, orders.name)
    while not query.stopped.is_set():
        assert records.holder() is not None or query.stopped.wait(0.5)
        time.sleep(0.05)
    deadline = time.monotonic() + 10
    while records.holder() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _interrupt_after(path):
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    _thread.interrupt_main()


def _a_b(a, b):
    return a.unionByName(b)


def _b_a(b, a):
    return b.unionByName(a)


def _c_b_a(c, b, a):
    return c.unionByName(b).unionByName(a)


def _c_a(c, a):
    return c.unionByName(a)


@pytest.mark.campaign  # test_kafka_streams.py has one source of each kind; these are of one kind
def test_named_sources_can_be_reordered_added_and_removed(scratch):
    expected = Counter()
    for round_, union in enumerate((_a_b, _b_a, _c_b_a, _c_a)):
        shop = Pipeline("shop")
        value = Json("id STRING")
        feeds = {
            name: shop.stream(source=Feed(name, format=value), sink=DeltaAppend(), name=name)(same)
            for name in ("a", "b", "c")
        }
        names = union.__code__.co_varnames
        stream = shop.stream(source={n: feeds[n] for n in names}, sink=DeltaAppend(), name="all")(union)
        for name in names:
            row = {"id": f"{name}{round_}"}
            scratch.run(feeds[name], [[row]])
            expected[(row["id"],)] += 1
        scratch.run(stream)
        assert scratch.rows(stream, "id") == expected


def test_each_stream_has_its_own_confs(scratch):
    shop = Pipeline("shop")
    orders = ingest(shop)
    scratch.run(orders, [[order(1)]])

    def counted(query, name):
        return shop.stream(
            source=orders,
            sink=DeltaMerge(keys=["order_id"], sequence_by="count"),
            query=query,
            name=name,
        )(lambda events: events.groupBy("order_id").count())

    one = counted(QueryOptions(output_mode="update", shuffle_partitions=3, state_store="hdfs"), "one")
    two = counted(QueryOptions(output_mode="update", shuffle_partitions=1), "two")
    assert {result.outcome for result in scratch.run_all([one, two])} == {"updated"}
    for stream, partitions, provider in ((one, 3, "HDFSBacked"), (two, 1, "RocksDB")):
        state = scratch.checkpoint(stream.name) / "state" / "0"
        assert len([path for path in state.iterdir() if path.name.isdigit()]) == partitions
        conf = json.loads((scratch.checkpoint(stream.name) / "offsets" / "0").read_text().splitlines()[1])[
            "conf"
        ]
        assert provider in conf["spark.sql.streaming.stateStore.providerClass"]


def test_a_run_of_limited_length_is_continued_by_the_next(scratch, monkeypatch):
    monkeypatch.setattr(progress, "STOP_SECONDS", 0.0)  # it waits for a query that takes longer to stop
    feed = Feed("orders", format=Json(ORDER), max_files_per_batch=1)
    query = QueryOptions(max_run="1 millisecond")
    orders = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), query=query, name="orders")(same)
    for number in range(6):
        scratch.arrive(orders, "events", [order(number)])
    results = scratch.run(orders)
    assert len(results[0].batches) < 6
    while not decide_run(orders, scratch.target).idle:
        results += scratch.run(orders)
    # None is busy: the query before has ended. One that was stopped before its first batch has updated nothing.
    assert {(result.outcome, result.error) for result in results} <= {("updated", None), ("idle", None)}
    assert scratch.rows(orders, "order_id") == multiset((f"o{number}",) for number in range(6))
    # Fewer than six where a stop prevented a batch whose file Spark had logged: the next one reads that file as well.
    records = StreamRecords(scratch.lake, orders.name)
    last = records.snapshot().last_commit
    assert sorted(line.batch_id for line in records.ledger.lines()) == list(range(last + 1))
    assert sum(line.rows_read or 0 for line in records.ledger.lines()) == 6


def test_the_ledger_has_a_line_for_every_batch(scratch):
    orders = ingest(rules={"amount_positive": "amount > 0"})
    results = scratch.run(orders, [[order(1)], [order(2), order(3, 0)]])
    lines = sorted(StreamRecords(scratch.lake, orders.name).ledger.lines(), key=lambda line: line.batch_id)
    assert [line for result in results for line in result.batches] == lines
    first, second = lines
    assert (first.batch_id, second.batch_id) == (0, 1)
    assert (second.rows_read, second.rows_written, second.rows_quarantined) == (2, 1, 1)
    assert second.start_offsets == {"events": {"logOffset": 0}}
    assert second.end_offsets == {"events": {"logOffset": 1}}
    assert second.delta_version == scratch.lake.table(orders.name).log.latest_version()
    assert not second.reconstructed
    assert second.milliseconds["triggerExecution"] > 0


def test_a_setting_that_the_checkpoint_keeps_is_a_warning_in_the_run_and_in_the_status(scratch):
    orders = ingest(query=QueryOptions(shuffle_partitions=1))
    assert scratch.run(orders, [[order(1)]])[0].warnings == ()
    changed = ingest(query=QueryOptions(shuffle_partitions=3))
    [result] = scratch.run(changed, [[order(2)]])
    assert len(result.warnings) == 1
    assert "shuffle_partitions is declared as 3 and the checkpoint keeps 1" in result.warnings[0]
    assert status_of(changed, scratch.target).warnings == result.warnings
    assert scratch.rows(changed, "order_id") == multiset([("o1",), ("o2",)])
