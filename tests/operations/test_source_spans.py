"""What a backfill with a lookback reads of each source, without a JVM."""

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, DeltaSource, Feed, Pipeline, Raw
from tidemill.checkpoint import SourceFile, SourceOffset
from tidemill.connectors.answers import Period
from tidemill.connectors.delta.span import table_span
from tidemill.connectors.files.addresses import file_address
from tidemill.connectors.files.span import files_span
from tidemill.connectors.kafka.span import messages_span
from tidemill.operations.replay.backfill_range import BackfillRange
from tidemill.operations.replay.lookback import Lookback, lookback_of, period_around
from tidemill.storage.lake import Lake
from tidemill.text.durations import format_duration, parse_duration

DAY = 24 * 3600 * 1000
PERIOD = Period(10 * DAY, 13 * DAY)


def ms(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def berlin(monkeypatch):
    """A machine whose clocks change on 2026-03-29."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("span", "period"),
    [
        (
            BackfillRange("day", "date", "2026-03-29", "2026-03-30"),
            Period(ms("2026-03-27T00:00"), ms("2026-04-01T00:00")),
        ),
        (
            BackfillRange("at", "timestamp", "2026-03-29 02:30:00+00:00", "2026-03-29 03:30:00.000001+00:00"),
            Period(ms("2026-03-27T02:30"), ms("2026-03-31T03:30:00.001")),
        ),
    ],
)
def test_a_period_is_in_utc_where_clocks_change_as_well(span, period):
    assert period_around(span, timedelta(days=2)) == period


@pytest.mark.parametrize(
    "text", ["2 days", "1 day 12 hours", "90 minutes", "1 week", "7 milliseconds", "0 seconds"]
)
def test_a_length_of_time_is_written_as_it_is_read(text):
    length = parse_duration(text, field="lookback")
    assert parse_duration(format_duration(length), field="lookback") == length


def test_files_at_both_ends_are_read(tmp_path):
    times = {"before": 10 * DAY - 1, "first": 10 * DAY, "last": 13 * DAY, "after": 13 * DAY + 1}
    for name in ("before", "first", "after"):
        (tmp_path / name).touch()
    logged = [SourceFile(file_address(str(tmp_path / name)), at, 0) for name, at in times.items()]
    span = files_span(Feed("clicks", format=Raw()), logged, PERIOD, Lake.at("/no lake"))
    assert [file.path.rsplit("/", 1)[1] for file in span.files or ()] == ["first", "last"]
    assert span.reads == "2 of 4 files of feed clicks"
    assert span.missing == ("1 file of feed clicks are missing: last.",)
    empty = files_span(Feed("clicks", format=Raw()), logged[:1], PERIOD, Lake.at("/no lake"))
    assert (empty.files, empty.is_empty, empty.is_part) == ((), True, True)


CASES = {
    "in the middle": ({"read": 100, "begins": 20, "ends": 60}, (20, 60)),
    "not beyond what was read": ({"read": 50, "begins": 20, "ends": 60}, (20, 50)),
    "later than what was read": ({"read": 10, "begins": 20, "ends": 60}, (10, 10)),
    "no later message": ({"read": 100, "begins": 20}, (20, 100)),
    "only older messages": ({"read": 100}, (100, 100)),
    "only newer messages": ({"read": 100, "begins": 0, "ends": 0}, (0, 0)),
    "not before where the stream began": ({"read": 100, "started": 30, "begins": 20, "ends": 60}, (30, 60)),
    "not before what the topic has": ({"read": 100, "firsts": 40, "begins": 40, "ends": 60}, (40, 60)),
    "nothing is left": ({"read": 100, "firsts": 120, "heads": 120}, (120, 120)),
}


def messages(**offsets):
    names = ("read", "started", "firsts", "heads", "begins", "ends")
    given = {name: at for name, at in ({"firsts": 0, "heads": 200} | offsets).items() if at is not None}
    return messages_span(**{name: {("t", 0): given[name]} if name in given else {} for name in names})


@pytest.mark.parametrize(("offsets", "bounds"), CASES.values(), ids=CASES)
def test_messages_are_read_between_the_first_of_the_period_and_the_first_after_it(offsets, bounds):
    span = messages(**offsets)
    assert (span.begins, span.ends) == ({("t", 0): bounds[0]}, {("t", 0): bounds[1]})
    assert span.end == json.dumps({"t": {"0": bounds[1]}}, separators=(",", ":"))
    assert span.is_empty == (bounds[0] == bounds[1])


@pytest.mark.parametrize(
    ("offsets", "missing"),
    [
        ({"read": 100, "firsts": 40, "begins": 40, "ends": 60}, "Messages 0 to 39 of t-0 are missing"),
        ({"read": 100, "firsts": 40, "begins": 50, "ends": 60}, None),
        ({"read": 100, "firsts": 40}, None),
        ({"read": 100, "firsts": 120, "heads": 120}, "Messages 0 to 99 of t-0 are missing"),
        ({"read": 100, "started": 40, "firsts": 40, "begins": 40}, None),
        ({"read": 100, "firsts": None, "heads": None}, "Partition t-0 is missing."),
    ],
)
def test_removed_messages_are_missing_where_they_may_be_of_the_period(offsets, missing):
    (*sentences,) = messages(**offsets).missing
    assert [sentence.split(",")[0] for sentence in sentences] == ([missing] if missing else [])


def test_partitions_without_messages_in_the_period_are_not_named():
    span = messages_span(
        read={("t", 0): 900, ("t", 1): 5, ("u", 10): 9, ("u", 2): 9},
        started={},
        firsts={("t", 0): 0, ("t", 1): 0, ("u", 10): 0, ("u", 2): 0},
        heads={},
        begins={("t", 0): 120, ("u", 2): 1, ("u", 10): 1},
        ends={("t", 0): 951, ("u", 2): 4, ("u", 10): 4},
    )
    assert span.reads == "messages 120 to 899 of t-0, 1 to 3 of u-2, 1 to 3 of u-10"
    assert span.end == '{"t":{"0":900,"1":5},"u":{"2":4,"10":4}}'


def commit(table, version, day, *, remove=False, operation=None, data_change=True):
    """Write a commit of the middle of a day that adds a file."""
    info = {"timestamp": day * DAY + DAY // 2, "operation": "WRITE"}
    if operation is not None:
        info["userMetadata"] = json.dumps({"tidemill": {"operation": operation}})
    actions = [{"commitInfo": info}, {"add": {"path": f"{version}.parquet", "dataChange": data_change}}]
    if remove:
        actions.append({"remove": {"path": "0.parquet", "dataChange": data_change}})
    log = table / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    (table / f"{version}.parquet").touch()


def read_to(version, index=-1):
    fields = {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": version, "index": index}
    return SourceOffset.parse("", "rows", None, json.dumps(fields | {"isStartingVersion": False}))


@pytest.fixture
def table(tmp_path):
    """A table with a commit on each of the days 5 to 15: the versions 0 to 10."""
    for version in range(11):
        commit(tmp_path, version, 5 + version)
    return tmp_path


def span_of(table, offset, period=PERIOD, **options):
    source = DeltaSource(path=str(table), options=options)
    return table_span(source, Lake.at("/no lake"), offset, period)


@pytest.mark.parametrize(
    ("offset", "period", "begin", "end"),
    [
        (read_to(11), PERIOD, 5, 8),
        (read_to(7), PERIOD, 5, 7),
        (read_to(6, 3), PERIOD, 5, 6),
        (read_to(11), Period(0, 100 * DAY), 0, 11),
        (read_to(11), Period(10 * DAY, 10 * DAY + DAY // 4), 5, 5),
        (read_to(11), Period(99 * DAY, 100 * DAY), 10, 10),
    ],
)
def test_versions_are_read_by_the_times_of_their_commits(table, offset, period, begin, end):
    span = span_of(table, offset, period)
    fields = json.loads(span.end)
    assert (span.first_version, fields["reservoirVersion"]) == (begin, end)
    assert span.is_empty == (begin == end)
    assert fields["index"] == (3 if end == 6 else -1), "a version that was read in part is read as far"


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (lambda table: commit(table, 9, 14, remove=True), "version 9 removed or changed rows"),
        (lambda table: commit(table, 9, 14, operation="backfill-1"), "an operation wrote version 9"),
        (lambda table: (table / "6.parquet").unlink(), "a file of version 6 was removed"),
        (lambda table: (table / "_delta_log" / f"{8:020d}.json").unlink(), "its log is incomplete"),
        (lambda table: commit(table, 3, 8, remove=True), None),
        (lambda table: commit(table, 9, 14, remove=True, data_change=False), None),
    ],
)
def test_a_table_that_was_rewritten_since_is_read_as_a_whole(table, change, because):
    change(table)
    span = span_of(table, read_to(11))
    assert span.is_part == (because is None)
    assert span.reads.endswith(f"because {because}") == (because is not None)


def test_a_table_that_is_not_read_from_its_beginning_is_read_as_declared(table):
    assert not span_of(table, read_to(11), startingVersion="3").is_part


def test_a_lookback_needs_an_append_table_and_a_column_with_times():
    shop = Pipeline("shop")
    feed = Feed("clicks", format=Raw())
    merge = DeltaMerge(keys=["value"], sequence_by="value")
    with raises("backfill-by-missing"):
        shop.stream(source=feed, sink=DeltaAppend(), lookback="1 day", name="one")(lambda rows: rows)
    with raises("lookback-unused"):
        shop.stream(source=feed, sink=merge, backfill_by="at", lookback="1 day", name="two")(
            lambda rows: rows
        )
    with raises("argument-invalid", "lookback is 'soon'"):
        shop.stream(source=feed, sink=DeltaAppend(), backfill_by="at", lookback="soon", name="three")(
            lambda rows: rows
        )
    merged = shop.stream(source=feed, sink=merge, backfill_by="at", name="four")(lambda rows: rows)
    with raises("lookback-unused"):
        lookback_of(merged, "1 day")
    clicks = shop.stream(
        source=feed, sink=DeltaAppend(), backfill_by="value", lookback="2 days", name="five"
    )(lambda rows: rows)
    assert lookback_of(clicks, None) == timedelta(days=2)
    assert lookback_of(clicks, "1 day") == timedelta(days=1)
    by_string = BackfillRange("value", "string", "a", "b")
    reading = Lookback(clicks, None, None, by_string, timedelta(days=2))  # type: ignore[arg-type]
    with raises("backfill-by-unsuitable", "'value' is a string"):
        reading.spans(SimpleNamespace())  # type: ignore[arg-type]
