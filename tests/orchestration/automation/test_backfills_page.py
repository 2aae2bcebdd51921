"""What the Backfills page of the UI starts, with a real webserver, daemon and runs."""

import os
import subprocess
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterRunStatus

from tests.orchestration.live_dagster import BIN, ROOT, LiveDagster, table_rows
from tests.support.small import small_target
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.text.names import StreamName

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(900)]

PIPELINE = '''
from pathlib import Path

from tidemill import BackfillBy, DeltaAppend, Feed, Pipeline, Json
from tidemill import functions as F

shop = Pipeline("shop")
HOLD = Path(__file__).with_name("hold")


@shop.stream(
    source=Feed("orders", Json("n INT, day DATE")),
    sink=DeltaAppend(),
    backfill_by=BackfillBy("day", every="day", since="2026-01-01"),
)
def orders(events):
    """Every order."""
    if HOLD.exists():  # a batch that takes very long
        return events.where(F.expr("reflect('java.lang.Thread', 'sleep', 600000L) IS NULL"))
    return events{change}
'''
LAUNCH = """
mutation Launch($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
FOR_RUN = 300
ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
ASSET = ["backfill", "shop", "orders"]


class Shop:
    """Six orders of six days that were read, and then code that adds a hundred to each."""

    def __init__(self, folder):
        self.folder = folder
        self.write("")
        (folder / "tidemill.toml").write_text(small_target("paged_shop:shop"))
        landing = folder / "landing" / "orders"
        landing.mkdir(parents=True)
        lines = [f'{{"n": {day}, "day": "2026-01-0{day}"}}\n' for day in range(1, 7)]
        (landing / "a.json").write_text("".join(lines))
        environment = os.environ | {
            "TIDEMILL_CONFIG": str(folder / "tidemill.toml"),
            "PYTHONPATH": f"{ROOT}:{folder}",
        }
        subprocess.run([BIN / "tidemill", "run"], cwd=ROOT, env=environment, check=True)
        self.write('.withColumn("n", events["n"] + 100)')

    def write(self, change):
        (self.folder / "paged_shop.py").write_text(PIPELINE.replace("{change}", change))

    def has_changed(self, *days):
        """Return whether exactly these days have the numbers of the changed code."""
        expected = [day + 100 if day in days else day for day in range(1, 7)]
        return sorted(row["n"] for row in table_rows(self.folder, "orders")) == sorted(expected)


def launch(dagster, days):
    """Start a backfill of these days as the Backfills page does; return its id."""
    params = {
        "assetSelection": [{"path": ASSET}],
        "partitionNames": [f"2026-01-0{day}" for day in days],
    }
    return dagster.graphql(LAUNCH, params=params)["launchPartitionBackfill"]["backfillId"]


def ended(dagster, number):
    """Wait until as many runs have ended; return them."""

    def those_ended():
        runs = [run for run in dagster.instance.get_runs() if run.status in ENDED]
        return runs if len(runs) == number else None

    return dagster.wait_for(those_ended, FOR_RUN)


@pytest.mark.parametrize(("days", "runs"), [((2, 3, 4), 1), ((2, 4, 6), 3)])
def test_days_in_a_row_are_one_run_and_those_with_gaps_wait_for_each_other(tmp_path, days, runs):
    shop = Shop(tmp_path)
    with LiveDagster(tmp_path, module="orchestration.definitions") as dagster:
        dagster.start_daemon()
        backfill = launch(dagster, days)
        done = ended(dagster, runs)
        assert {run.status for run in done} == {DagsterRunStatus.SUCCESS}, dagster.log.read_text()[-4000:]
        assert {run.tags["tidemill/cause"] for run in done} == {f"backfill:{backfill}"}
        assert len(dagster.instance.get_runs()) == runs
        materialized = dagster.instance.fetch_materializations(AssetKey(ASSET), limit=10).records
        assert sorted(record.partition_key for record in materialized) == [f"2026-01-0{day}" for day in days]
    assert shop.has_changed(*days)


def test_a_terminated_backfill_has_changed_nothing_and_the_next_one_is_whole(tmp_path):
    shop = Shop(tmp_path)
    hold = tmp_path / "hold"
    hold.touch()
    records = StreamRecords(Lake.at(tmp_path / "lake"), StreamName("shop", "orders"))
    with LiveDagster(tmp_path, module="orchestration.definitions") as dagster:
        dagster.start_daemon()
        launch(dagster, [2])
        staging = Path(records.lake.uri) / records.lake.staging(records.stream)
        dagster.wait_for(lambda: list(staging.rglob("lease/*.json")), FOR_RUN)
        dagster.wait_for(lambda: list(staging.rglob("offsets/0")), FOR_RUN)
        [run] = dagster.instance.get_runs()
        answer = dagster.graphql(
            "mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=run.run_id
        )
        assert answer["terminateRun"]["__typename"] == "TerminateRunSuccess"
        [run] = ended(dagster, 1)
        assert run.status == DagsterRunStatus.CANCELED
        assert shop.has_changed()
        hold.unlink()
        launch(dagster, [2])
        assert sorted(run.status.value for run in ended(dagster, 2)) == ["CANCELED", "SUCCESS"]
    assert shop.has_changed(2)
