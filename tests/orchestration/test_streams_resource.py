"""`streams.run(context)` in an op of your own: the same events, whether its assets are the streams or not."""

import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetSelection,
    AssetSpec,
    DagsterInstance,
    Definitions,
    MaterializeResult,
    Nothing,
    OpExecutionContext,
    Out,
    RetryPolicy,
    asset,
    job,
    materialize,
    multi_asset,
    op,
    success_hook,
)

from tidemill import DeltaAppend, Expect, Feed, Json, Pipeline
from tidemill.errors import TerminalError
from tidemill.orchestration.assets.assets import (
    StreamsResource,
    pipeline_job,
    streaming_assets,
    streaming_resources,
)
from tidemill.orchestration.assets.translator import StreamTranslator, stream_specs
from tidemill.orchestration.automation.run_tags import added_tags, cause
from tidemill.run.execute.progress import Live
from tidemill.run.execute.results import StreamResult

SHOP = Pipeline("shop")
FEED = Feed("f", Json("id INT"))
CLICKS = SHOP.stream(source=FEED, sink=DeltaAppend(), name="clicks", expect=[Expect("known", "id > 0")])(
    lambda events: events
)
TOTALS = SHOP.stream(source=CLICKS, sink=DeltaAppend(), name="totals")(lambda rows: rows)
OTHER = SHOP.stream(source=FEED, sink=DeltaAppend(), name="other")(lambda events: events)


@pytest.fixture
def runs(tmp_path, monkeypatch) -> list[list[str]]:
    """Run nothing: every stream of a run is updated, but `other` fails. Returns the streams of each run."""
    ran = []

    class PipelineRun:
        def __init__(self, streams, **_):
            self.finished = []
            self.live = Live()
            self._streams = streams
            ran.append([str(stream.name) for stream in streams])

        def iter_results(self, *, on_wait):
            on_wait()
            for stream in self._streams:
                failed = {
                    "outcome": "failed",
                    "error": TerminalError("no.", stream=stream.name, fix="Fix it."),
                }
                fields = (
                    failed if stream is OTHER else {"outcome": "updated", "generation": 1, "table_version": 3}
                )
                self.finished.append(StreamResult(stream=stream.name, **fields))
                yield self.finished[-1]

    monkeypatch.setattr("tidemill.orchestration.assets.assets.PipelineRun", PipelineRun)
    (tmp_path / "tidemill.toml").write_text('pipelines = []\n[targets.dev]\nlake = "lake"\n')
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    return ran


@pytest.fixture
def instance(tmp_path):
    with DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        yield instance


def run(instance, *assets, resources=None, **given):
    resources = resources or streaming_resources()
    return materialize(list(assets), resources=resources, instance=instance, raise_on_error=False, **given)


def materialized(result) -> list[str]:
    return [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()]


def test_an_asset_of_your_own_runs_streams_and_reports_them_under_their_own_keys(runs, instance):
    @asset
    def nightly(context: AssetExecutionContext, streams: StreamsResource):
        yield from streams.run(context, SHOP, selection=["shop/clicks+"])
        yield MaterializeResult(metadata={"after": len(runs)})

    keys = {TOTALS.name: AssetKey(["prod", "totals"])}
    result = run(instance, nightly, resources=streaming_resources(asset_keys=keys))

    assert result.success
    assert runs == [["shop/clicks", "shop/totals"]]
    assert materialized(result) == ["shop/clicks", "prod/totals", "nightly"]
    clicks = instance.get_latest_materialization_event(AssetKey(["shop", "clicks"])).asset_materialization
    assert clicks.tags["dagster/data_version"] == "1.3"
    assert clicks.metadata["tidemill/generation"].value == 1
    checks = {(check.asset_key.path[-1], check.check_name) for check in result.get_asset_check_evaluations()}
    assert {("clicks", "known"), ("clicks", "checkpoint_sound"), ("totals", "checkpoint_sound")} <= checks


def test_streams_and_an_asset_of_your_own_can_be_one_op(runs, instance):
    @multi_asset(
        specs=[
            *stream_specs(SHOP, StreamTranslator(), None).values(),
            AssetSpec("summary", deps=[["shop", "totals"]], skippable=True),
        ],
        can_subset=True,
    )
    def shop_and_summary(context: AssetExecutionContext, streams: StreamsResource):
        yield from streams.run(context, SHOP)
        if AssetKey("summary") in context.selected_asset_keys:
            yield MaterializeResult("summary")

    selection = AssetSelection.assets(["shop", "clicks"], "summary")
    assert materialized(run(instance, shop_and_summary, selection=selection)) == ["shop/clicks", "summary"]
    assert runs == [["shop/clicks"]]


@pytest.mark.usefixtures("runs")
def test_a_stream_that_fails_fails_the_op_after_the_others(instance):
    @asset
    def nightly(context: AssetExecutionContext, streams: StreamsResource):
        yield from streams.run(context, SHOP)
        yield MaterializeResult()

    result = run(instance, nightly)
    assert not result.success
    assert materialized(result) == ["shop/clicks", "shop/totals"]
    (event,) = (event for event in result.all_events if event.is_step_failure)
    assert (
        event.step_failure_data.user_failure_data.description
        == "shop/other: no. No data was lost. Fix: Fix it."
    )


def test_a_selection_without_a_stream_is_an_error_with_its_fix(runs, instance):
    @asset
    def nightly(context: AssetExecutionContext, streams: StreamsResource):
        yield from streams.run(context, SHOP, selection=["shop/clickz"])

    result = run(instance, nightly)
    (event,) = (event for event in result.all_events if event.is_step_failure)
    assert "shop/clicks" in event.step_failure_data.user_failure_data.description
    assert runs == []


@pytest.mark.usefixtures("runs")
def test_an_op_without_assets_runs_streams(instance):
    @op(out=Out(Nothing))
    def run_clicks(context: OpExecutionContext, streams: StreamsResource):
        yield from streams.run(context, [CLICKS])

    @job
    def clicks_job():
        run_clicks()

    defs = Definitions(jobs=[clicks_job], resources=streaming_resources())
    result = defs.resolve_job_def("clicks_job").execute_in_process(instance=instance)
    assert result.success
    assert instance.get_latest_materialization_event(AssetKey(["shop", "clicks"])) is not None


@pytest.mark.usefixtures("runs")
def test_a_run_is_tagged_with_its_target_its_pipelines_and_its_cause(instance):
    tags = {"dagster/sensor_name": "watcher"}
    result = run(instance, streaming_assets(SHOP), selection='key:"shop/clicks"', tags=tags)
    recorded = instance.get_run_by_id(result.run_id).tags
    expected = {"tidemill/target": "dev", "tidemill/pipeline": "shop", "tidemill/cause": "sensor:watcher"}
    assert expected.items() <= recorded.items()


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, "manual"),
        ({"dagster/schedule_name": "hourly"}, "schedule:hourly"),
        ({"dagster/sensor_name": "s", "dagster/from_automation_condition": "true"}, "automation"),
        ({"dagster/sensor_name": "s", "dagster/parent_run_id": "r"}, "retry:r"),
        ({"dagster/backfill": "b"}, "backfill:b"),
    ],
)
def test_the_cause_of_a_run_is_what_launched_it(tags, expected):
    assert cause(tags) == expected


def test_a_second_pipeline_is_added_and_a_stated_cause_is_kept():
    given = {"tidemill/target": "dev", "tidemill/pipeline": "ads", "tidemill/cause": "1,200 rows wait"}
    assert added_tags(given, "dev", ["shop", "ads"]) == {"tidemill/pipeline": "ads,shop"}


@pytest.mark.usefixtures("runs")
def test_the_op_and_the_job_take_what_dagster_offers(instance):
    called = []

    @success_hook
    def record(context):
        called.append(context.op.name)

    policy = RetryPolicy(max_retries=2)
    assets = streaming_assets(SHOP, pool="cluster", retry_policy=policy, op_tags={"cpu": "2"}, hooks={record})
    assert assets.op.pool == "cluster"
    assert assets.op.retry_policy == policy
    assert assets.op.tags["cpu"] == "2"
    assert run(instance, assets, selection='key:"shop/clicks"').success
    assert called == ["shop__streams"]

    plain = streaming_assets(SHOP)
    defs = Definitions(
        assets=[plain],
        jobs=[pipeline_job(SHOP, plain, retry_policy=policy, run_tags={"team": "web"}, hooks={record})],
        resources=streaming_resources(),
    )
    resolved = defs.resolve_job_def("shop")
    assert {"team": "web", "tidemill/pipeline": "shop"}.items() <= resolved.run_tags.items()
    assert resolved.execute_in_process(
        instance=instance, asset_selection=[AssetKey(["shop", "clicks"])]
    ).success
    assert called == ["shop__streams"] * 2


def test_the_config_of_a_run_has_no_target():
    defs = Definitions(assets=[streaming_assets(SHOP)], resources=streaming_resources())
    fields = defs.resolve_implicit_global_asset_job_def().run_config_schema.config_type.fields
    spark = fields["resources"].config_type.fields["spark"].config_type.fields["config"].config_type.fields
    assert set(spark) == {"spark_config", "mode", "master", "remote", "parallel"}
