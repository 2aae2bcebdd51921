"""Sinks that are no tables and are declared after the first runs: named by plan and by the run, until accepted."""

import json
import shutil
from datetime import UTC, datetime

import pytest

from tests.sinks.streams import Log, sales, sales_stream
from tests.sinks.test_file_sink import read
from tests.support.raising import raises
from tidemill import (
    BatchSink,
    ConsoleSink,
    DeltaAppend,
    DeltaMerge,
    FileSink,
    ForeachSink,
    JdbcSink,
    KafkaSink,
)
from tidemill.checks.evaluation import evaluate
from tidemill.operations.edits import new_sink
from tidemill.operations.edits.code_changes import code_changes
from tidemill.operations.edits.new_sink import accept_new_sink
from tidemill.operations.generations.rewind import rewind
from tidemill.records.manifest import Generation
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.preconditions import new_sinks
from tidemill.testing import multiset


def export(rows, batch):
    """Write nowhere."""


@pytest.fixture
def manifest_of(scratch):
    def read_manifest(stream):
        return StreamRecords(scratch.lake, stream.name).manifest()

    return read_manifest


def exactly_once(scratch, stream):
    (result,) = evaluate(stream, scratch.target, datetime.now(UTC), names=["exactly_once"])
    return result


def test_a_new_sink_that_is_no_table_is_named_until_it_is_accepted(scratch, tmp_path, manifest_of):
    before, folder = sales_stream(DeltaAppend()), tmp_path / "files"
    scratch.run(before, [sales(("a", 5))])
    assert manifest_of(before).active.external_sinks == {}
    later = sales_stream(FileSink(str(folder), "json"), DeltaAppend())
    for _ in range(2):
        with raises("sink-new", "FileSink 'files'", str(folder), "--new-sink files --fill") as raised:
            scratch.run(later, [sales(("b", 3))])
    assert "up to 0" in str(raised.value)
    [planned] = code_changes([later], scratch.target, scratch.engine)
    assert (planned.kind, planned.error.code) == ("refused", "sink-new")
    with raises("nothing-to-change", "files"):
        accept_new_sink(later, scratch.target, "main")
    change = accept_new_sink(later, scratch.target, "files")
    assert change.effects == ("It has no row of the batches up to 0.",)
    scratch.run(later)
    assert read(scratch, folder, "json", "shop", "amount") == multiset([("b", 3), ("b", 3)])
    assert manifest_of(later).active.external_sinks == {"files": {"folder": str(folder)}}
    assert exactly_once(scratch, later).passed
    moved = sales_stream(FileSink(str(tmp_path / "elsewhere"), "json"), DeltaAppend())
    with raises("sink-new", "FileSink 'files'", "elsewhere"):
        scratch.run(moved)
    accept_new_sink(moved, scratch.target, "files")
    assert exactly_once(scratch, moved).passed
    assert [result.outcome for result in scratch.run(before, [sales(("c", 7))])] == ["updated"]


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.campaign), True])
def test_a_new_sink_is_filled_with_the_rows_of_the_table_once(scratch, tmp_path, killed, monkeypatch):
    before, folder = sales_stream(DeltaMerge(keys=["shop"], sequence_by="amount")), tmp_path / "files"
    scratch.run(before, [sales(("a", 5), ("b", 1))])
    scratch.run(before, [sales(("a", 7))])
    assert exactly_once(scratch, before).passed  # the next check compares what is new
    later = sales_stream(
        FileSink(str(folder), "json"),
        DeltaAppend(name="copy"),
        DeltaMerge(keys=["shop"], sequence_by="amount"),
    )
    for name in ("copy", "files"):
        with raises("sink-new", f"--new-sink {name} --fill"):
            scratch.run(later)
        planned = accept_new_sink(later, scratch.target, name, engine=scratch.engine, dry_run=True)
        assert "gets the rows that the table of the stream has after batch 1" in planned.plan
        if killed:
            with monkeypatch.context() as patched:
                patched.setattr(new_sink, "pause_point", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    accept_new_sink(later, scratch.target, name, engine=scratch.engine)
        change = accept_new_sink(later, scratch.target, name, engine=scratch.engine)
        assert change.effects[0].endswith("2 rows.")
    assert exactly_once(scratch, later).passed
    scratch.run(later, [sales(("a", 9))])
    expected = multiset([("a", 7), ("b", 1), ("a", 9)])
    assert read(scratch, folder, "json", "shop", "amount") == expected
    assert scratch.table_rows(scratch.lake.table(later.name, "copy"), "shop", "amount") == expected
    assert scratch.rows(later, "shop", "amount") == multiset([("a", 9), ("b", 1)])
    assert exactly_once(scratch, later).passed


def interrupt(*_):
    raise KeyboardInterrupt


def test_the_check_expects_the_batches_of_a_new_table_from_its_first_one_on(scratch):
    before = sales_stream(DeltaAppend())
    scratch.run(before, [sales(("a", 5))])
    later = sales_stream(DeltaAppend(name="copy"), DeltaAppend())
    accept_new_sink(later, scratch.target, "copy")
    scratch.run(later, [sales(("b", 3))])
    assert exactly_once(scratch, later).passed
    table = scratch.lake.table(later.name, "copy")
    shutil.rmtree(table.uri)
    result = exactly_once(scratch, later)
    assert not result.passed
    assert f"{table.name} is missing" in result.summary


def test_a_rewind_to_before_a_sink_began_is_refused(scratch):
    before, later = sales_stream(DeltaAppend()), sales_stream(DeltaAppend(name="copy"), DeltaAppend())
    for batch in range(3):
        scratch.run(before, [sales(("a", batch))])
    accept_new_sink(later, scratch.target, "copy")
    scratch.run(later, [sales(("a", 3))])
    with raises("rewind-not-possible", "sales__copy", "tidemill rebuild shops/sales"):
        rewind(later, scratch.target, scratch.engine, to_batch=0)


def test_a_stream_without_a_table_of_its_own_has_no_rows_to_fill_a_sink_with(scratch, tmp_path):
    before = sales_stream(FileSink(str(tmp_path / "one"), "json"))
    scratch.run(before, [sales(("a", 5))])
    later = sales_stream(
        FileSink(str(tmp_path / "two"), "json", name="two"), FileSink(str(tmp_path / "one"), "json")
    )
    with raises("nothing-to-change", "leave --fill out"):
        accept_new_sink(later, scratch.target, "two", engine=scratch.engine, dry_run=True)


def test_sinks_of_a_manifest_that_an_older_release_wrote_are_not_new(scratch, tmp_path, manifest_of):
    stream = sales_stream(FileSink(str(tmp_path / "files"), "json"), DeltaAppend())
    scratch.run(stream, [sales(("a", 5))])
    control = StreamRecords(scratch.lake, stream.name).control
    content = json.loads(control.read("manifest.json"))
    for generation in content["generations"]:
        del generation["external_sinks"]
    control.replace("manifest.json", json.dumps(content).encode())
    assert manifest_of(stream).active.external_sinks is None
    scratch.run(stream, [sales(("b", 3))])
    assert set(manifest_of(stream).active.external_sinks) == {"files"}


@pytest.mark.parametrize(
    ("sink", "elsewhere"),
    [
        (BatchSink(export), None),
        (ForeachSink(Log("calls")), None),
        (FileSink("/files"), FileSink("/others")),
        (KafkaSink("sales"), KafkaSink("others")),
        (JdbcSink("a.sales"), JdbcSink("a.others")),
    ],
    ids=lambda sink: type(sink).__name__,
)
def test_each_kind_is_new_by_its_name_and_by_where_it_writes(sink, elsewhere):
    active = generation_of({})
    assert list(new_sinks(sales_stream(sink), active)) == [sink.name]
    active = generation_of({sink.name: dict(sink.identity)})
    assert new_sinks(sales_stream(sink), active) == {}
    if elsewhere is not None:
        assert list(new_sinks(sales_stream(elsewhere), active)) == [sink.name]


def test_a_sink_for_debugging_is_never_new():
    assert new_sinks(sales_stream(ConsoleSink(debug=True)), generation_of({})) == {}


def generation_of(external_sinks):
    """The first generation of a stream whose table was written."""
    return Generation(number=1, why="first run", sinks={"main": {}}, external_sinks=external_sinks)
