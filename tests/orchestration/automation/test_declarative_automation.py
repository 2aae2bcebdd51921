"""Declarative automation on streams, and on assets that read them: the example of docs/automation.md."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, AssetSelection, DagsterInstance, Definitions, evaluate_automation_conditions

from tests.orchestration.test_assets import Canned, updated
from tidemill import DeltaAppend, Feed, Pipeline, Raw
from tidemill.orchestration.assets.assets import streaming_assets, streaming_resources
from tidemill.run.execute.results import StreamResult
from tidemill.text.names import StreamName

PAGE = Path(__file__).parents[3] / "docs" / "automation.md"
CLICKS, TOTALS = AssetKey(["shop", "clicks"]), AssetKey(["shop", "totals"])
REPORT = AssetKey(["morning_report"])


@pytest.fixture
def example():
    """What the page's example defines."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "on_cron" in block)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.fixture
def canned(monkeypatch, tmp_path):
    canned = Canned(monkeypatch, tmp_path)
    yield canned
    canned.instance.dispose()


def shop(*, record_idle):
    shop = Pipeline("shop", record_idle=record_idle)
    clicks = shop.stream(source=Feed("clicks", format=Raw()), sink=DeltaAppend(), name="clicks")(
        lambda events: events
    )
    shop.stream(source=clicks, sink=DeltaAppend(), name="totals")(lambda clicks: clicks)
    return shop


def requested(definitions: Definitions, instance: DagsterInstance, *, at: datetime, after=None):
    cursor = None if after is None else after.cursor
    return evaluate_automation_conditions(
        definitions, instance, asset_selection=AssetSelection.all(), evaluation_time=at, cursor=cursor
    )


def results(outcome):
    names = [StreamName("shop", name) for name in ("clicks", "totals")]
    if outcome == "updated":
        return [updated(name) for name in names]
    return [
        StreamResult(stream=name, outcome="idle", reason="nothing new", generation=1, table_version=1)
        for name in names
    ]


@pytest.mark.parametrize(
    ("outcome", "record_idle", "runs"),
    [("updated", False, True), ("idle", True, True), ("idle", False, False)],
)
def test_a_daily_reader_runs_behind_an_idle_stream_that_records_it(
    example, canned, outcome, record_idle, runs
):
    pipeline = shop(record_idle=record_idle)
    definitions = Definitions(
        assets=[streaming_assets(pipeline), example["morning_report"]], resources=streaming_resources()
    )
    now = datetime.now(UTC)
    yesterday = requested(definitions, canned.instance, at=now - timedelta(days=1, hours=1))
    canned.run(pipeline, *results(outcome))
    today = requested(definitions, canned.instance, at=now + timedelta(seconds=5), after=yesterday)
    assert (today.get_num_requested(REPORT) == 1) is runs


def test_a_stream_with_an_eager_condition_follows_its_upstream(example, canned):
    pipeline = shop(record_idle=False)
    assets = streaming_assets(pipeline, example["Eager"]())
    definitions = Definitions(assets=[assets], resources=streaming_resources())
    canned.run(pipeline, *results("updated"))
    now = datetime.now(UTC)
    before = requested(definitions, canned.instance, at=now)
    canned.run(pipeline, results("updated")[0], selection=[CLICKS])
    after = requested(definitions, canned.instance, at=now + timedelta(minutes=1), after=before)
    assert after.get_num_requested(TOTALS) == 1
    assert after.get_num_requested(CLICKS) == 0
