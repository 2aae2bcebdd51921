"""What the Backfills page of the UI starts, with a real webserver, daemon and runs."""

import os
import subprocess

import pytest
from dagster import AssetKey, DagsterRunStatus

from tests.orchestration.live_dagster import BIN, ROOT, LiveDagster, table_rows
from tests.small import small_target

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(900)]

PIPELINE = '''
from pipelines.streaming import BackfillBy, DeltaAppend, Feed, Pipeline, from_json

shop = Pipeline("shop")


@shop.stream(
    source=Feed("orders", from_json("n INT, day DATE")),
    sink=DeltaAppend(),
    backfill_by=BackfillBy("day", every="day", since="2026-01-01"),
)
def orders(events):
    """Every order."""
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


@pytest.mark.parametrize(("days", "expected_runs"), [((2, 3, 4), 1), ((2, 4, 6), 3)])
def test_days_in_a_row_are_one_run_and_those_with_gaps_wait_for_each_other(tmp_path, days, expected_runs):
    partitions = [f"2026-01-0{day}" for day in days]
    (tmp_path / "paged_shop.py").write_text(PIPELINE.replace("{change}", ""))
    (tmp_path / "tidemill.toml").write_text(small_target("paged_shop:shop"))
    landing = tmp_path / "landing" / "orders"
    landing.mkdir(parents=True)
    lines = [f'{{"n": {day}, "day": "2026-01-0{day}"}}\n' for day in range(1, 7)]
    (landing / "a.json").write_text("".join(lines))
    environment = os.environ | {
        "TIDEMILL_CONFIG": str(tmp_path / "tidemill.toml"),
        "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }
    subprocess.run([BIN / "tidemill", "run"], cwd=ROOT, env=environment, check=True)
    (tmp_path / "paged_shop.py").write_text(
        PIPELINE.replace("{change}", '.withColumn("n", events["n"] + 100)')
    )

    with LiveDagster(tmp_path, module="orchestration.definitions") as dagster:
        dagster.start_daemon()
        params = {"assetSelection": [{"path": ["backfill", "shop", "orders"]}], "partitionNames": partitions}
        launched = dagster.graphql(LAUNCH, params=params)["launchPartitionBackfill"]
        ended = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE)

        def all_ended():
            runs = [run for run in dagster.instance.get_runs() if run.status in ended]
            return runs if len(runs) == expected_runs else None

        runs = dagster.wait_for(all_ended, FOR_RUN)
        assert {run.status for run in runs} == {DagsterRunStatus.SUCCESS}, dagster.log.read_text()[-4000:]
        assert len(dagster.instance.get_runs()) == expected_runs
        assert {run.tags["tidemill/cause"] for run in runs} == {f"backfill:{launched['backfillId']}"}
        records = dagster.instance.fetch_materializations(
            AssetKey(["backfill", "shop", "orders"]), limit=10
        ).records
        assert sorted(record.partition_key for record in records) == partitions

    rows = sorted(row["n"] for row in table_rows(tmp_path, "orders"))
    assert rows == sorted(day + 100 if day in days else day for day in range(1, 7))
