"""Which ranges were computed by which operation: the arithmetic of ranges, and what each kind of operation means."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tests.support.raising import raises
from tidemill.cli.change.backfill import app
from tidemill.errors import ConfigurationError
from tidemill.operations.replay.coverage import Span, coverage, covered
from tidemill.records.operation import new_operation
from tidemill.records.stream_records import StreamRecords

VALUES = "abcdefgh"
BOUNDS = st.none() | st.sampled_from(VALUES)
LAYERS = st.lists(
    st.tuples(BOUNDS, BOUNDS).filter(lambda ends: None in ends or ends[0] < ends[1]), max_size=8
).map(lambda ends: [Span(None, None, -1), *(Span(*pair, number) for number, pair in enumerate(ends))])


def has(span, value):
    """Whether a value is in a range, as plain Python says it."""
    return (span.begin is None or span.begin <= value) and (span.end is None or value < span.end)


@given(LAYERS)
def test_each_value_belongs_to_the_last_layer_that_has_it(layers):
    spans = covered(layers)
    # Also between two bounds, before the first, and after the last.
    for value in ("", *VALUES, *(f"{value}x" for value in VALUES), "zz"):
        (owner,) = [span.by for span in spans if has(span, value)]
        assert owner == [layer.by for layer in layers if has(layer, value)][-1]


@given(LAYERS)
def test_ranges_are_in_order_without_gaps_and_without_needless_cuts(layers):
    spans = covered(layers)
    assert (spans[0].begin, spans[-1].end) == (None, None)
    for one, next_one in itertools.pairwise(spans):
        assert one.end == next_one.begin is not None
        assert one.by != next_one.by
    assert all(span.begin is None or span.end is None or span.begin < span.end for span in spans)


MOMENTS = st.datetimes(timezones=st.just(UTC)) | st.datetimes().map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)


@given(MOMENTS, MOMENTS)
def test_times_have_the_order_of_their_strings(one, other):
    assert (one < other) == (one.isoformat(sep=" ") < other.isoformat(sep=" "))


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Shop:
    return Shop.make(tmp_path, monkeypatch)


class History:
    """Operations of the stream `orders`, a minute apart."""

    def __init__(self, shop):
        self.records = StreamRecords(shop.target.lake, ORDERS)
        self.ended = datetime(2026, 1, 1, tzinfo=UTC)

    def add(self, kind, arguments=None, *, decided=None, result=None):
        operation = new_operation(kind, arguments or {}, command=f"tidemill {kind}", decided=decided or {})
        operation = replace(operation, result=result or {})
        self.records.write_operation(operation)
        self.records.end_operation(operation)
        path = Path(self.records.control.uri()) / "operations" / f"{operation.id}.json"
        self.ended += timedelta(minutes=1)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"ended_at": self.ended.isoformat()}))
        return operation.id

    def backfill(self, begin, end, *, version=0, column="day", kind="date"):
        decided = {"column": column, "type": kind, "begin": begin, "end": end}
        return self.add(
            "backfill", decided=decided, result={"table_version": version, "code": f"code-{begin}"}
        )


def ranges(shop):
    [stream] = [stream for stream in shop.target.streams() if stream.name == ORDERS]
    result = coverage(stream, shop.target)
    spans = [(span.begin, span.end, None if span.by is None else span.by.id) for span in result.ranges]
    return spans, [operation.id for operation in result.other]


def test_a_later_backfill_covers_a_part_of_an_earlier_one(shop):
    history = History(shop)
    assert ranges(shop) == ([(None, None, None)], [])
    wide = history.backfill("2026-01-01", "2026-01-10")
    narrow = history.backfill("2026-01-04", "2026-01-05")
    assert ranges(shop)[0] == [
        (None, "2026-01-01", None),
        ("2026-01-01", "2026-01-04", wide),
        ("2026-01-04", "2026-01-05", narrow),
        ("2026-01-05", "2026-01-10", wide),
        ("2026-01-10", None, None),
    ]


def test_a_rebuild_covers_everything_before_it(shop):
    history = History(shop)
    history.backfill("2026-01-01", "2026-01-10")
    rebuilt = history.add("rebuild")
    after = history.backfill("2026-01-02", "2026-01-03")
    assert ranges(shop)[0] == [
        (None, "2026-01-02", rebuilt),
        ("2026-01-02", "2026-01-03", after),
        ("2026-01-03", None, rebuilt),
    ]


def test_a_rewind_takes_back_the_backfills_after_the_version_that_it_restores(shop):
    history = History(shop)
    kept = history.backfill("2026-01-01", "2026-01-02", version=4)
    history.backfill("2026-01-05", "2026-01-06", version=5)
    history.add("rewind", decided={"versions": {"main": 5}})
    assert ranges(shop)[0] == [
        (None, "2026-01-01", None),
        ("2026-01-01", "2026-01-02", kept),
        ("2026-01-02", None, None),
    ]


@pytest.mark.parametrize(("table", "rest"), [("keep", 3), ("replace", 1), ("new", 1)])
def test_a_reset_that_replaces_the_table_takes_back_everything(shop, table, rest):
    history = History(shop)
    history.backfill("2026-01-01", "2026-01-02")
    history.add("reset", {"table": table})
    assert len(ranges(shop)[0]) == rest


def test_backfills_by_another_column_or_type_are_listed_apart(shop):
    history = History(shop)
    column = history.backfill("2026-01-01", "2026-01-02", column="at")
    kind = history.backfill("2026-01-01", "2026-01-02", kind="string")
    now = history.backfill("2026-01-03", "2026-01-04")
    spans, other = ranges(shop)
    assert [by for *_, by in spans] == [None, now, None]
    assert other == [column, kind]


def test_an_unfinished_operation_covers_nothing(shop):
    history = History(shop)
    decided = {"column": "day", "type": "date", "begin": "2026-01-01", "end": "2026-01-02"}
    history.records.write_operation(new_operation("backfill", {}, command="", decided=decided))
    assert ranges(shop)[0] == [(None, None, None)]


def test_a_stream_without_the_column_has_no_ranges(shop):
    [_, unique] = shop.target.streams()
    with raises("backfill-by-missing"):
        coverage(unique, shop.target)


def invoked(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_the_command_prints_the_ranges_and_keeps_its_own_flags(shop):
    operation = History(shop).backfill("2026-01-01", "2026-01-02")
    table = invoked("status").stdout
    assert [line.split()[2:5] for line in table.splitlines()[1:]] == [
        ["first", "2026-01-01", "its"],
        ["2026-01-01", "2026-01-02", operation],
        ["2026-01-02", "last", "its"],
    ]
    [stream] = json.loads(invoked("status", "shop", "--json").stdout)["streams"]
    assert [span["code"] for span in stream["ranges"]] == [None, "code-2026-01-01", None]
    assert isinstance(invoked("status", "shop/unique").exception, ConfigurationError)
    own = invoked("shop/orders", "--from", "2026-01-01", "--to", "2026-01-02", "--dry-run")
    assert "it has read nothing so far" in str(own.exception)
    assert "Missing option" in invoked("shop/orders").output
    help_text = " ".join(invoked("--help").output.split())
    assert "--from" in help_text
    assert "tidemill backfill status" in help_text
