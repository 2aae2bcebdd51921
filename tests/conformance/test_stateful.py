"""The stateful rows of the table: five runs whose inputs take turns, one of them killed, here and on a warm server."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conformance import stateful_oracle as oracle
from tests.conformance.stateful import stateful, with_two_tables
from tests.killed import killed_when
from tests.run.warm_streams import settings
from tidemill.engines.engine import SparkEngine
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch

pytestmark = [pytest.mark.jvm, pytest.mark.campaign, pytest.mark.timeout(3000)]
NAMES = [stream.name.stream for stream in stateful(Path("landing"))]
KILLED = 3
"""The run that is killed, when each stream has written its first batch and not committed it."""


def as_json(row):
    """A row whose times are strings."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def streams_run(folder, engine, *, kill):
    """Run all streams after each arrival, and return the lake, and the watermarks after each run."""
    scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
    watermarks = []
    for name in ("views", "clicks", "buys"):
        (scratch.landing / name).mkdir(parents=True)
    pipeline = stateful(scratch.landing)
    streams = with_two_tables(pipeline) if kill else list(pipeline)
    for number, inputs in enumerate(oracle.ARRIVALS):
        for name, files in inputs.items():
            for rows in files:
                scratch.drop_file(name, [*map(as_json, rows)])
        if kill and number == KILLED:
            module = ["tests.conformance.stateful", scratch.lake.uri, str(scratch.landing)]
            points = [f"{stream.name}:after-sink" for stream in streams]
            killed_when(module, folder, point=" ".join(points), every=len(points))
        results = scratch.run_all(streams)
        assert [str(result.error) for result in results if result.error] == []
        watermarks.append({result.stream.stream: result.watermark_ms for result in results})
    return scratch, pipeline, watermarks


@pytest.fixture(scope="module")
def killed_and_repeated(engine, tmp_path_factory):
    return streams_run(tmp_path_factory.mktemp("local"), engine, kill=True)


@pytest.fixture(scope="module")
def on_a_warm_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("warm")
    warm = SparkEngine(settings(folder, idle_timeout=timedelta(seconds=20)))
    yield streams_run(folder, warm, kill=False)
    warm.stop()


def without_end(rows):
    """Leave out what the last event of an input is part of."""
    return type(rows)(
        {
            row: n
            for row, n in rows.items()
            if "end" not in row
            and not any(
                isinstance(value, datetime) and value >= oracle.END - timedelta(hours=1) for value in row
            )
        }
    )


@pytest.mark.parametrize("where", ["killed_and_repeated", "on_a_warm_server"])
@pytest.mark.parametrize("name", NAMES)
def test_row(name, where, request):
    scratch, pipeline, watermarks = request.getfixturevalue(where)
    stream = pipeline[name]
    expected = getattr(oracle, name)()
    assert expected
    assert without_end(scratch.rows(stream)) == expected
    if name.startswith("wm_multi"):
        views, clicks = (
            max(
                row[column] for inputs in oracle.ARRIVALS[:3] for file in inputs.get(kind, []) for row in file
            )
            for kind, column in (("views", "at"), ("clicks", "clicked_at"))
        )
        newest = max(views, clicks) if name.endswith("max") else min(views, clicks)
        assert watermarks[2][name] == (newest - timedelta(hours=1)).timestamp() * 1000
    if name == "wm_clean":
        lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
        rows = [line.state_rows for line in sorted(lines, key=lambda line: line.batch_id)]
        assert max(rows) > 2, "windows were in the state"
        assert rows[-1] == 1, "and left it behind the watermark, but for that of the last event"
