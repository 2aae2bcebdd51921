"""Files as a snapshot next to a stream: joins over runs between which they change, against plain Python."""

import json

import pytest

from tests.run.test_follow import followed, until
from tests.support.checked import failed_checks
from tests.support.raising import raises
from tidemill import DeltaAppend, FileSource, Pipeline
from tidemill import functions as F
from tidemill.operations.edits.code_changes import code_changes
from tidemill.operations.replay.backfill import backfill
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of
from tidemill.run.execute import follow as following
from tidemill.testing import multiset

ORDER, COUNTRY = "code STRING, amount BIGINT", "code STRING, name STRING"
FIRST, SECOND = [("de", 1), ("fr", 2), ("xx", 3)], [("de", 4), ("fr", 5), (None, 6)]
BEFORE, AFTER = {"de": "Deutschland", "fr": "France"}, {"de": "Germany", "xx": "Nowhere"}


class Files:
    """A folder of orders, which streams, and one of countries, which does not."""

    def __init__(self, folder):
        self.orders, self.countries = folder / "orders", folder / "countries"
        self.orders.mkdir()

    def order(self, number, rows):
        lines = [json.dumps({"code": code, "amount": amount}) for code, amount in rows]
        (self.orders / f"{number}.json").write_text("\n".join(lines))

    def replace_countries(self, names, *, number=1):
        self.countries.mkdir(exist_ok=True)
        for old in self.countries.iterdir():
            old.unlink()
        lines = [f"{code},{name}" for code, name in names.items()]
        (self.countries / f"{number}.csv").write_text("\n".join(lines))

    def stream(self, how="left", **declared):
        orders = FileSource(path=str(self.orders), format="json", schema=ORDER)
        given = {"path": str(self.countries), "format": "csv", "schema": COUNTRY} | declared
        countries = FileSource(**given).static()
        return Pipeline("shop").stream(
            source={"orders": orders, "countries": countries},
            sink=DeltaAppend(),
            name=how,
            backfill_by="day",
        )(
            lambda orders, countries: orders.join(countries, "code", how).select(
                "code", "amount", "name", F.to_date(F.lit("2026-01-02")).alias("day")
            )
        )


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def rows_of(scratch, stream):
    return scratch.rows(stream, "code", "amount", "name")


def joined(*runs, how="left"):
    """The rows of all runs: each has orders and the names that were there."""
    rows = [(code, amount, names.get(code)) for orders, names in runs for code, amount in orders]
    return multiset(row for row in rows if how == "left" or row[2] is not None)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_each_run_reads_the_files_that_are_there(scratch, files, how):
    stream = files.stream(how)
    files.order(1, FIRST)
    files.replace_countries(BEFORE)
    scratch.run(stream)
    files.replace_countries(AFTER, number=2)
    assert scratch.run(stream)[0].outcome == "idle", "other files of a snapshot start no run"
    files.order(2, SECOND)
    (result,) = scratch.run(stream)
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE), (SECOND, AFTER), how=how)
    assert result.batches[0].static_versions == {}
    assert result.lineage["name"] == (("countries", "name"),)
    assert status_of(stream, scratch.target).state == "idle"
    assert failed_checks(scratch, stream) == []
    (change,) = code_changes([stream], scratch.target, scratch.engine)
    assert change.kind == "nothing"


def test_inferred_columns_stay_those_of_the_first_run(scratch, files):
    stream = files.stream(schema="infer", options={"header": "true"})
    files.order(1, FIRST)
    files.countries.mkdir()
    with raises("schema-unknown", files.countries, "schema="):
        scratch.run(stream)
    files.replace_countries({"code": "name", **BEFORE})
    scratch.run(stream)
    numbers = {"code": "name", "de": "49", "fr": "33"}  # which would be inferred as integers now
    files.replace_countries(numbers)
    files.order(2, SECOND)
    scratch.run(stream)
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE), (SECOND, numbers))


def test_a_backfill_reads_the_files_of_today_with_the_columns_of_the_first_run(scratch, files):
    stream = files.stream(schema="infer", options={"header": "true"})
    files.order(1, FIRST)
    files.replace_countries({"code": "name", **BEFORE})
    scratch.run(stream)
    numbers = {"code": "name", "de": "49", "fr": "33"}
    files.replace_countries(numbers)
    backfill(stream, scratch.target, scratch.engine, begin="2026-01-02", end="2026-01-03")
    assert rows_of(scratch, stream) == joined((FIRST, numbers))


def test_a_batch_that_failed_is_repeated_with_the_files_of_then(scratch, files):
    stream = files.stream(options={"mode": "FAILFAST"})
    files.order(1, FIRST)
    files.replace_countries(BEFORE)
    scratch.run(stream)
    files.order(2, SECOND)
    files.replace_countries({"de": "a,b,c"})
    assert scratch.run_all([stream])[0].error is not None
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE))
    files.replace_countries(AFTER)
    scratch.run(stream)
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE), (SECOND, AFTER))


def test_a_batch_that_the_table_has_is_not_written_again_with_other_files(scratch, files):
    stream = files.stream()
    files.order(1, FIRST)
    files.replace_countries(BEFORE)
    scratch.run(stream)
    commits = scratch.checkpoint(stream.name) / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    files.replace_countries(AFTER)
    files.order(2, SECOND)
    scratch.run(stream)
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE), (SECOND, AFTER))


def test_a_missing_folder_is_one_error_with_its_fix(scratch, files):
    stream = files.stream()
    files.order(1, FIRST)
    with raises("folder-missing", "shop/left", str(files.countries), "mkdir -p"):
        scratch.run(stream)
    files.replace_countries(BEFORE)
    scratch.run(stream)
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE))


def test_a_pattern_that_no_folder_has_is_one_error_with_its_fix(scratch, files):
    stream = files.stream(path=str(files.countries / "day=*"))
    files.order(1, FIRST)
    with raises("folder-missing", "shop/left", "day=*", "create the folder"):
        scratch.run(stream)


def test_a_run_that_follows_reads_other_files_of_a_snapshot(scratch, files, monkeypatch):
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.2)
    stream = files.stream()
    files.order(1, FIRST)
    files.replace_countries(BEFORE)
    scratch.run(stream)
    with followed(scratch, stream) as results:
        files.order(2, SECOND)
        until(lambda: scratch.rows(stream).total() == len(FIRST + SECOND))
        files.replace_countries(AFTER, number=2)
        records = StreamRecords(scratch.lake, stream.name)
        until(lambda: records.pins().first_batch == 2)  # another query has begun
        files.order(3, FIRST)
        until(lambda: scratch.rows(stream).total() == len(FIRST + SECOND + FIRST))
    assert [result.error for result in results] == [None]
    assert rows_of(scratch, stream) == joined((FIRST, BEFORE), (SECOND, BEFORE), (FIRST, AFTER))


@pytest.mark.parametrize(
    ("declared", "code", "value"),
    [
        ({"options": {"cleanSource": "delete"}}, "snapshot-not-streamed", "cleanSource"),
        ({"options": {"maxFileAge": "1d"}}, "snapshot-not-streamed", "maxFileAge"),
        ({"mode": "changes"}, "argument-invalid", "append or static"),
    ],
)
def test_what_only_a_stream_of_files_has_is_refused(declared, code, value):
    with raises(code, "FileSource '/in'", value):
        FileSource(path="/in", format="csv", schema=COUNTRY, **declared).static()


def test_a_snapshot_of_files_has_no_watermark_and_starts_no_stream():
    files = FileSource(path="/in", format="csv", schema="at TIMESTAMP").static()
    assert (files.streaming, files.describe()) == (False, "csv files in /in (static)")
    with raises("snapshot-not-streamed", "csv files in /in"):
        files.with_watermark("at", "1 hour")
    with raises("no-streaming-source", "shop/rows"):
        Pipeline("shop").stream(source=files, sink=DeltaAppend(), name="rows")(lambda rows: rows)
