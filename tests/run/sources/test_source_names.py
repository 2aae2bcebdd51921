"""Names of sources: a renamed argument never reads its source again, and a person decides what a new name means."""

import inspect
import json
import shutil
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.checkpoint.recognized import verify
from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, FileSource, Pipeline, Raw
from tidemill.checkpoint import read_tail
from tidemill.operations.edits.accept import accept_new_source
from tidemill.operations.edits.new_sink import accept_new_sink
from tidemill.operations.edits.rename_source import rename_source
from tidemill.records.stream_records import StreamRecords


class Folders:
    """A stream over folders of text files; each argument of its function is the name of a folder."""

    def __init__(self, scratch, root) -> None:
        self.scratch, self.root = scratch, root
        self.expected = Counter()

    def stream(self, *names: str, **folders: str):
        """The union of the folders, under these names: `stream("a", b="a")` reads the folder a twice."""
        read = {name: name for name in names} | folders

        def union(*frames: DataFrame) -> DataFrame:
            return reduce(DataFrame.unionByName, frames)

        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in read]
        union.__signature__ = inspect.Signature(parameters)
        sources = {name: FileSource(path=str(self.root / of), format="text") for name, of in read.items()}
        return Pipeline("shop").stream(source=sources, sink=DeltaAppend(), name="all")(union)

    def write(self, folder: str, *lines: str, times: int = 1) -> None:
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for line in lines:
            (self.root / folder / f"{line}.txt").write_text(f"{line}\n")
            self.expected[(line,)] += times

    def records(self):
        return StreamRecords(self.scratch.lake, self.stream("a").name)

    def untouched(self):
        """Every file of the lake with its content."""
        return {path: path.read_bytes() for path in Path(self.scratch.lake.uri).rglob("*") if path.is_file()}


@pytest.fixture
def folders(scratch, tmp_path):
    return Folders(scratch, tmp_path / "in")


def forget_commit(folders, *, written=True):
    """As if the last run had been killed before the commit of its last batch.

    Args:
        written: Whether the batch is in the table.
    """
    if not written:
        table = Path(folders.scratch.lake.table(folders.stream("a").name).uri)
        for file in (table / "_delta_log").glob(f"*{DeltaTable(str(table)).version():020d}.*"):
            file.unlink()
    checkpoint = Path(folders.records().snapshot().checkpoint.uri())
    last = read_tail(checkpoint).latest_commit.batch_id
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_a_renamed_argument_is_refused_with_the_two_commands(scratch, folders):
    folders.write("a", "1", "2")
    folders.write("b", "3")
    scratch.run(folders.stream("a", "b"))
    before = folders.untouched()

    commands = ("tidemill rename-source shop/all a first", "tidemill accept shop/all --new-source first")
    with raises("source-name-changed", "'a'", "'first'", *commands):
        scratch.run(folders.stream("b", first="a"))
    assert folders.untouched() == before
    assert scratch.rows(folders.stream("a")) == folders.expected


def test_files_in_the_place_of_a_table_are_refused_without_a_rebind(scratch, folders):
    folders.write("a", "1")
    scratch.run(folders.stream("a"))
    shop = Pipeline("shop")
    lines = shop.stream(source=Feed("lines", format=Raw()), sink=DeltaAppend(), name="lines")(lambda a: a)
    scratch.run(lines, [["2"]])
    table = shop.stream(source={"a": lines}, sink=DeltaAppend(), name="all")(lambda a: a.select("value"))
    with raises("binding-changed", "'file'"):
        scratch.run(table)


def test_a_plan_that_spark_refuses_leaves_everything_as_it_was(scratch, folders):
    """A removed source, a new column and a new sink come with an operation that Spark does not stream."""
    folders.write("a", "1")
    folders.write("b", "2")
    scratch.run(folders.stream("a", "b"))
    folders.write("b", "3")
    reading = FileSource(path=str(folders.root / "b"), format="text")
    sinks = [DeltaAppend(name="copy"), DeltaAppend()]
    wrong = Pipeline("shop").stream(source={"b": reading}, sink=sinks, name="all")(
        lambda b: b.withColumn("n", F.lit(1)).orderBy("n")
    )
    accept_new_sink(wrong, scratch.target, "copy")
    before = folders.untouched()
    with raises("operation-unsupported", "a sort, as in orderBy"):
        scratch.run(wrong)

    after = folders.untouched()
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert {path.name for path in changed if "lease" not in path.parts} == {
        "manifest.json"
    }  # the last result
    assert folders.records().manifest().active.sources["a"].stopped_at is None
    scratch.run(folders.stream("a", "b"))
    assert scratch.rows(folders.stream("a")) == folders.expected


def test_a_rename_continues_the_source(scratch, folders):
    folders.write("a", "1", "2")
    folders.write("b", "3")
    scratch.run(folders.stream("a", "b"))
    folders.write("b", "4")
    scratch.run(folders.stream("a", "b"))

    renamed = folders.stream("b", first="a")
    plan = rename_source(renamed, scratch.target, "a", "first", dry_run=True)
    assert plan.copies is None
    done = rename_source(renamed, scratch.target, "a", "first")
    assert done.copies is not None
    assert {path.name for path in (Path(done.copies) / "offsets").iterdir() if path.name[0] != "."} == {
        "0",
        "1",
    }
    assert verify(folders.records().snapshot().checkpoint, level="quick").findings == ()
    folders.write("a", "5")
    scratch.run(renamed)
    assert scratch.rows(renamed) == folders.expected
    assert set(folders.records().manifest().active.sources) == {"first", "b"}

    # The guard of the binding has followed.
    with raises("binding-changed", "'first'", folders.root / "b"):
        scratch.run(folders.stream("b", first="b"))


def test_a_rename_is_finished_after_a_kill(scratch, folders):
    folders.write("a", "1")
    scratch.run(folders.stream("a"))
    manifest = folders.records().manifest()
    renamed = folders.stream(first="a")
    rename_source(renamed, scratch.target, "a", "first")
    folders.records().write_manifest(manifest)  # as if it had been killed just before the manifest
    rename_source(renamed, scratch.target, "a", "first")
    folders.write("a", "2")
    scratch.run(renamed)
    assert scratch.rows(renamed) == folders.expected


def test_a_rename_while_a_batch_must_be_repeated(scratch, folders):
    folders.write("a", "1")
    scratch.run(folders.stream("a"))
    folders.write("a", "2")
    scratch.run(folders.stream("a"))
    forget_commit(folders)
    folders.write("a", "3")

    renamed = folders.stream(first="a")
    with raises("source-name-changed", "tidemill rename-source"):
        scratch.run(renamed)
    rename_source(renamed, scratch.target, "a", "first")
    scratch.run(renamed)
    assert scratch.rows(renamed) == folders.expected


def test_another_source_is_read_from_its_beginning(scratch, folders):
    folders.write("a", "1", "2")
    folders.write("c", "1")
    scratch.run(folders.stream("a"))
    other = folders.stream("c")
    accept_new_source(other, scratch.target, "c")
    scratch.run(other)
    folders.write("c", "4")
    scratch.run(other)
    assert scratch.rows(other) == folders.expected
    assert not folders.records().manifest().active.sources["c"].accepted_as_new


@pytest.mark.parametrize("decision", ["continue", pytest.param("again", marks=pytest.mark.campaign)])
def test_a_source_that_comes_back(scratch, folders, decision):
    folders.write("a", "1", "2")
    folders.write("b", "3")
    both, one = folders.stream("a", "b"), folders.stream("b")
    scratch.run(both)
    folders.write("b", "4")
    scratch.run(one)  # only removed: fine
    folders.write("a", "5")
    folders.write("b", "6")
    scratch.run(one)
    with raises("source-returned", "'a'", "tidemill rename-source shop/all a a"):
        scratch.run(both)

    if decision == "continue":
        rename_source(both, scratch.target, "a", "a")
    else:
        accept_new_source(both, scratch.target, "a")
        folders.expected += Counter([("1",), ("2",)])
    scratch.run(both)
    folders.write("a", "7")
    scratch.run(both)
    assert scratch.rows(both) == folders.expected
    assert verify(folders.records().snapshot().checkpoint, level="quick").findings == ()


@pytest.mark.parametrize("written", [True, pytest.param(False, marks=pytest.mark.campaign)])
def test_a_source_that_is_removed_while_a_batch_must_be_repeated(scratch, folders, written):
    folders.write("a", "1")
    folders.write("b", "2")
    both, one = folders.stream("a", "b"), folders.stream("b")
    scratch.run(both)
    folders.write("a", "3")
    folders.write("b", "4")
    scratch.run(both)
    forget_commit(folders, written=written)
    folders.write("b", "5")
    scratch.run(one)
    folders.write("a", "6")
    rename_source(both, scratch.target, "a", "a")
    assert verify(folders.records().snapshot().checkpoint, level="quick").findings == ()
    scratch.run(both)
    assert scratch.rows(both) == folders.expected


@pytest.mark.parametrize(
    ("names", "code", "value"),
    [
        (("a", "c"), "source-not-declared", "'c'"),
        (("x", "b"), "source-never-read", "'x'"),
        (("a", "b"), "source-still-declared", "'a'"),
        (("a", "a"), "nothing-to-change", "'a'"),
    ],
)
def test_a_rename_that_makes_no_sense_changes_nothing(scratch, folders, names, code, value):
    folders.write("a", "1")
    folders.write("b")
    scratch.run(folders.stream("a"))
    before = folders.untouched()
    with raises(code, value):
        rename_source(folders.stream("a", "b"), scratch.target, *names)
    changed = {path for path, content in folders.untouched().items() if before.get(path) != content}
    assert all("lease" in path.parts for path in changed)


def test_a_manifest_of_the_version_before(scratch, folders):
    folders.write("a", "1")
    stream = folders.stream("a")
    scratch.run(stream)
    path = Path(folders.records().control.uri()) / "manifest.json"
    content = json.loads(path.read_text())
    del content["generations"][0]["sources"]
    content["generations"][0]["bindings"] = {"a": "/somewhere"}
    path.write_text(json.dumps({**content, "schema_version": 1}))
    folders.write("a", "2")
    scratch.run(stream)
    assert scratch.rows(stream) == folders.expected
    assert folders.records().manifest().active.sources["a"].binding["path"] == str(folders.root / "a")
    shutil.copytree(folders.root / "a", folders.root / "copy")
    with raises("binding-changed", folders.root / "copy"):
        scratch.run(folders.stream(a="copy"))
