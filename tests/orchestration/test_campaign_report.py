"""The example of a batch asset: its rows, and when Dagster runs it."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetSelection,
    DagsterInstance,
    Definitions,
    evaluate_automation_conditions,
)
from deltalake import DeltaTable, write_deltalake

from orchestration.defs.ads.campaign_report import campaign_report, report_definitions
from pipelines.ads import ads
from tidemill.orchestration.assets.assets import streaming_assets, streaming_resources
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.target.resolve import resolve

ATTRIBUTION, REPORT = AssetKey(["ads", "attribution"]), AssetKey(["ads", "campaign_report"])
MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
# Two days and a campaign per five impressions, ads without a campaign, impressions without a click.
ROWS = [
    {
        "impression_id": f"imp-{number}",
        "cost_micros": 10**15 + number,
        "event_time": MIDNIGHT + timedelta(minutes=number - 20),
        "click_id": f"clk-{number}" if number % 3 == 0 else None,
        "campaign_id": None if number % 5 == 0 else f"cmp-{number % 5}",
    }
    for number in range(40)
]


def expected(rows) -> Counter:
    """The report in plain Python."""
    totals: dict[tuple, list[int]] = {}
    for row in rows:
        total = totals.setdefault((row["event_time"].date(), row["campaign_id"] or "(none)"), [0, 0, 0])
        total[0] += 1
        total[1] += row["click_id"] is not None
        total[2] += row["cost_micros"]
    return Counter((*key, *total) for key, total in totals.items())


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "tidemill.toml").write_text('pipelines = []\n[targets.dev]\nlake = "lake"\n')
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    return resolve()


def test_the_report_is_that_of_plain_python_and_a_second_run_replaces_it(target, engine):
    spark = SparkResource(target=target)
    spark._engine = engine
    table = Path(target.lake.uri) / "tables" / "ads" / "attribution"
    for count in (25, 40):
        write_deltalake(table, pa.Table.from_pylist(ROWS[:count]), mode="overwrite")
        result = campaign_report(spark=spark)
        report = DeltaTable(Path(target.lake.uri) / "reports" / "ads" / "campaign_report").to_pyarrow_table()
        assert Counter(tuple(row.values()) for row in report.to_pylist()) == expected(ROWS[:count])
        assert report.column_names == ["day", "campaign_id", "impressions", "clicks", "spend_micros"]
        assert result.metadata["dagster/row_count"] == report.num_rows


def test_the_report_runs_when_its_upstream_moved_and_not_when_it_was_idle(target, tmp_path):
    defs = Definitions(assets=[streaming_assets(ads), campaign_report], resources=streaming_resources(target))
    with DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        cursor = None

        def requested() -> int:
            nonlocal cursor
            result = evaluate_automation_conditions(
                defs, instance, asset_selection=AssetSelection.all(), cursor=cursor
            )
            cursor = result.cursor
            assert result.total_requested == result.get_num_requested(REPORT)
            return result.total_requested

        assert requested() == 0, "nothing has run"
        instance.report_runless_asset_event(AssetMaterialization(ATTRIBUTION))
        assert requested() == 1, "the stream has its first rows"
        instance.report_runless_asset_event(AssetMaterialization(REPORT))
        assert requested() == 0, "the report has them"
        instance.report_runless_asset_event(AssetObservation(ATTRIBUTION))
        assert requested() == 0, "the stream was idle"
        instance.report_runless_asset_event(AssetMaterialization(ATTRIBUTION))
        assert requested() == 1, "the stream moved"


def test_a_target_without_the_pipeline_has_no_report(target):
    assert not list(report_definitions().assets)
    (target.config.parent / "tidemill.toml").write_text('pipelines = ["pipelines.ads:ads"]\n')
    assert list(report_definitions().assets) == [campaign_report]
