"""How far a run is while it runs."""

import io
from types import SimpleNamespace

import pytest
from dagster import AssetKey
from rich.console import Console

from tidemill import DeltaAppend, DeltaSource, Feed, KafkaSource, Pipeline, Raw
from tidemill.cli.shared.live_view import LINE_SECONDS, LiveView
from tidemill.connectors.backlog import Backlog
from tidemill.orchestration.assets.observations import LiveObservations
from tidemill.run.execute.progress import Live, LiveStream, expected_batches, length
from tidemill.text.names import StreamName

NAME = StreamName("shop", "orders")


@pytest.mark.parametrize(
    ("source", "backlog", "expected"),
    [
        (Feed("a", format=Raw(), max_files_per_batch=10), Backlog(25, "files"), 3),
        (Feed("a", format=Raw(), max_records_per_batch=1_000), Backlog(1_000, "messages"), 1),
        (Feed("a", format=Raw(), max_records_per_batch=None), Backlog(1_000, "messages"), None),
        (KafkaSource(subscribe="a", max_records_per_batch=400), Backlog(1_000, "messages"), 3),
        (DeltaSource(path="/t"), Backlog(5, "versions"), None),
        (Feed("a", format=Raw()), Backlog(0, "files"), None),
    ],
)
def test_the_limits_of_a_source_tell_about_how_many_batches_come(source, backlog, expected):
    assert expected_batches({"a": source}, {"a": backlog}) == expected


def test_rate_and_time_left_follow_from_the_batches_that_have_ended():
    running = LiveStream(
        stream=NAME, phase="running", batches=20, expected_batches=80, rows_read=400_000, seconds=100
    )
    assert running.rows_per_second == 4_000
    assert running.batches_left == 60
    assert running.seconds_left == 300
    assert str(running) == ("shop/orders: batch 21 of about 80, 400,000 rows, 4,000 rows/s, about 5 min left")
    first = LiveStream(stream=NAME, phase="running")
    assert (first.rows_per_second, first.seconds_left, str(first)) == (
        None,
        None,
        "shop/orders: batch 1, 0 rows",
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.4, "4 s"), (89, "89 s"), (300, "5 min"), (12_000, "3 h 20 min")]
)
def test_a_length_of_time_for_people(seconds, text):
    assert length(seconds) == text


def test_a_terminal_shows_the_start_of_spark_and_then_a_table():
    live, out = Live(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    live.enter(NAME, "starting Spark")
    with LiveView(console, live.streams) as view:
        view.update()
        assert "starting Spark" in shown(view, console)
        live.enter(NAME, "running", expected_batches=8)
        live.add(NAME, batches=2, rows_read=500)
        view.update()
        table = shown(view, console)
    assert "3 of about 8" in table
    assert "500" in table
    assert "about 6" in table


def shown(view, console):
    with console.capture() as captured:
        console.print(view._live.renderable)
    return captured.get()


def test_without_a_terminal_a_line_per_stream_is_printed_now_and_then():
    live, out, now = Live(), io.StringIO(), [0.0]
    live.enter(NAME, "running")
    with LiveView(Console(file=out, width=200), live.streams, clock=lambda: now[0]) as view:
        for second in (1, LINE_SECONDS, LINE_SECONDS + 1, 2 * LINE_SECONDS):
            now[0] = second
            view.update()
    assert out.getvalue().splitlines() == ["shop/orders: batch 1, 0 rows"] * 2


def test_a_run_shows_its_batches_and_ends_with_nothing(scratch):
    shop = Pipeline("shop")
    stream = shop.stream(
        source=Feed("orders", format=Raw(), max_files_per_batch=1), sink=DeltaAppend(), name="orders"
    )(lambda rows: rows)
    for number in range(3):
        scratch.drop_file("orders", [f"line {number}"])
    run, views = scratch.start([stream]), []
    for result in run.iter_results(on_wait=lambda: views.extend(run.live.streams())):
        assert result.outcome == "updated"
    assert {view.phase for view in views} >= {"preparing", "running"}
    assert {view.expected_batches for view in views if view.phase == "running"} == {3}
    assert run.live.streams() == []


def test_dagster_records_a_running_stream_at_most_every_30_seconds():
    live, now, recorded = Live(), [0.0], []
    live.enter(NAME, "running", expected_batches=4)
    live.add(NAME, batches=1, rows_read=10)
    context = SimpleNamespace(log_event=recorded.append)
    key = AssetKey(["shop", "orders"])
    observed = LiveObservations(context, live.streams, {NAME: key}, clock=lambda: now[0])
    for second in range(0, 100, 5):
        now[0] = float(second)
        observed.update()
    assert [observation.asset_key for observation in recorded] == [key] * 3
    assert recorded[0].metadata["tidemill/running_batch"].value == 2
    assert recorded[0].metadata["tidemill/expected_batches"].value == 4
