"""The stateful rows of the table: five runs whose inputs take turns, one of them killed, here and on a warm server."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conformance.streams import stateful_oracle as oracle
from tests.conformance.streams.runs import on_a_warm_server, scratch_in, stateful_runs
from tests.conformance.streams.stateful import stateful
from tidemill.records.stream_records import StreamRecords

pytestmark = [pytest.mark.jvm, pytest.mark.campaign, pytest.mark.timeout(3000)]
BOUNDED = ("win_", "wm_", "join_", "dedup_key_time", "dedup_wm", "stateful_pandas")
NAMES = [stream.name.stream for stream in stateful(Path("landing"))]


@pytest.fixture(scope="module")
def killed_and_repeated(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    scratch = scratch_in(folder, engine)
    return scratch, stateful_runs(scratch, kills_in=folder)


@pytest.fixture(scope="module")
def on_warm_spark(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("warm")
    return scratch_in(folder, engine), on_a_warm_server("stateful", folder)


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


def assert_state_is_kept_in(scratch, stream):
    """Expect the provider that a stream declares in the offsets of its checkpoint, and that one's files."""
    provider, suffix = {"hdfs": ("HDFSBacked", ".delta"), "rocksdb": ("RocksDB", ".changelog")}[
        stream.query.state_store
    ]
    confs = StreamRecords(scratch.lake, stream.name).snapshot().tail.committed_offsets.conf
    assert provider in confs["spark.sql.streaming.stateStore.providerClass"]
    folder = scratch.checkpoint(stream.name) / "state" / "0" / "0"
    assert any(path.suffix == suffix for path in folder.iterdir())


def partitions_of(scratch, name):
    state = scratch.checkpoint(stateful(scratch.landing)[name].name) / "state" / "0"
    return len([path for path in state.iterdir() if path.name.isdigit()])


@pytest.mark.parametrize("where", ["killed_and_repeated", "on_warm_spark"])
@pytest.mark.parametrize("name", NAMES)
def test_row(name, where, request):
    scratch, reported = request.getfixturevalue(where)
    stream = stateful(scratch.landing)[name]
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
        assert reported[2][name]["watermark_ms"] == (newest - timedelta(hours=1)).timestamp() * 1000
    if name == "wm_late":
        assert [run[name]["late"] for run in reported] == [len(late) for late in oracle.late_visits()]
        assert [len(late) for late in oracle.late_visits()] == [0, 0, 2, 1, 0]
    if name.startswith("store_"):
        assert_state_is_kept_in(scratch, stream)
    if name == "store_partitions":
        first, *later = (" ".join(run[name]["warnings"]) for run in reported)
        assert "shuffle_partitions" not in first
        assert all("shuffle_partitions is declared as 7" in warnings for warnings in later)
        assert partitions_of(scratch, name) == partitions_of(scratch, "op_agg")
    if name.startswith(BOUNDED):
        lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
        rows = [line.state_rows for line in sorted(lines, key=lambda line: line.batch_id)]
        assert rows[-1] <= max(rows) / 2, "the last event has moved the watermark past all others"
        if name == "wm_clean":
            assert rows[-1] == 1
