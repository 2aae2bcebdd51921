"""The stateful rows of the table: five runs whose inputs take turns, one of them killed, here and on a warm server."""

import json
import os
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from tests.conformance import stateful_oracle as oracle
from tests.conformance.stateful import stateful, with_two_tables
from tests.killed import killed_when
from tests.small import SMALL
from tests.spark_of_tests import ROOT
from tidemill.engines.engine import SparkEngine
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.target.server_home import ServerHome
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

pytestmark = [pytest.mark.jvm, pytest.mark.campaign, pytest.mark.timeout(3000)]
NAMES = [stream.name.stream for stream in stateful(Path("landing"))]
KILLED = 3
"""The run that is killed, when each stream has written its first batch and not committed it."""


def arrive(landing, files, inputs):
    for name, arriving in inputs.items():
        (landing / name).mkdir(parents=True, exist_ok=True)
        for rows in arriving:
            number = next(files)
            path, made = landing / name / f"{number}.json", landing / f"{number}.json"
            made.write_text("\n".join(json.dumps(row, default=datetime.isoformat) for row in rows))
            os.utime(made, (1_700_000_000 + number, 1_700_000_000 + number))
            made.replace(path)


def streams_run(folder, engine, *, kill):
    """Run all streams after each arrival, and return the lake, and the watermarks after each run."""
    scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
    files, watermarks = count(), []
    for name in ("views", "clicks", "buys"):
        (scratch.landing / name).mkdir(parents=True)
    pipeline = stateful(scratch.landing)
    streams = with_two_tables(pipeline) if kill else list(pipeline)
    for number, inputs in enumerate(oracle.ARRIVALS):
        arrive(scratch.landing, files, inputs)
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
    settings = SparkSettings(
        mode="warm",
        master="local[2]",
        idle_timeout=timedelta(seconds=20),
        server=ServerHome("conformance", ROOT, folder / "server"),
        conf=SMALL,
        driver_memory="1g",
        shuffle_partitions=2,
    )
    warm = SparkEngine(settings)
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
