"""One op for many streams: what each outcome becomes in Dagster. The run itself is canned here."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from dagster import (
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    AssetSelection,
    DagsterInstance,
    Definitions,
    Failure,
    in_process_executor,
    materialize,
)

from tests.support.raising import raises
from tidemill import DeltaAppend, Expect, Feed, Json, Pipeline
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.verify import Finding
from tidemill.errors import ConfigurationError, TerminalError, TransientError
from tidemill.orchestration.assets.assets import (
    checks_job,
    pipeline_job,
    streaming_assets,
    streaming_resources,
)
from tidemill.orchestration.assets.checks import DESCRIPTIONS
from tidemill.records.batch import BatchRecord
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.progress import Live
from tidemill.run.execute.results import StreamResult
from tidemill.storage.lake import Lake
from tidemill.text.names import RESERVED_RULES, StreamName

CHECKPOINT_SOUND = "checkpoint_sound"
ALWAYS = (CHECKPOINT_SOUND, "exactly_once", "backlog")
CLICKS, UNIQUE, TOTALS = (StreamName("shop", name) for name in ("clicks", "unique_clicks", "totals"))
TERMINAL = TerminalError("the column is missing.", code="column-removed", stream=CLICKS, fix="Put it back.")
TRANSIENT = TransientError("the broker is down.", stream=CLICKS)
RULES = [
    Expect("known", "id IS NOT NULL", on_violation="warn"),
    Expect("cheap", "cost < 10", on_violation="drop"),
    Expect("positive", "cost > 0", on_violation="fail"),
]


@pytest.fixture
def shop() -> Pipeline:
    pipeline = Pipeline("shop")

    @pipeline.stream(source=Feed("ad-clicks", Json("id STRING, cost INT")), sink=DeltaAppend(), expect=RULES)
    def clicks(events):
        return events

    @pipeline.stream(source=clicks.with_watermark("at", "1 hour"), sink=DeltaAppend())
    def unique_clicks(clicks):
        return clicks

    @pipeline.stream(source=clicks, sink=DeltaAppend())
    def totals(clicks):
        return clicks

    return pipeline


def updated(name: StreamName, **fields) -> StreamResult:
    one = BatchRecord(
        batch_id=4,
        run_id="r",
        generation=2,
        query_id="q",
        started_at="2026-01-01T00:00:00Z",
        rows_read=5,
        rows_written=4,
        violations=fields.pop("violations", {}),
    )
    return StreamResult(
        stream=name, outcome="updated", batches=(one,), generation=2, table_version=7, **fields
    )


def idle(name: StreamName) -> StreamResult:
    return StreamResult(stream=name, outcome="idle", reason="nothing new", generation=2, table_version=7)


def failed(error) -> StreamResult:
    return StreamResult(stream=CLICKS, outcome="failed", error=error)


def skipped(name: StreamName) -> StreamResult:
    return StreamResult(stream=name, outcome="skipped", reason="shop/clicks did not succeed")


class Canned:
    """Runs pipelines with canned results, and shows what Dagster recorded."""

    def __init__(self, monkeypatch, tmp_path: Path) -> None:
        self.instance = DagsterInstance.ephemeral(tempdir=str(tmp_path))
        self.lake = Lake.at(tmp_path / "lake")
        self.asked: list[StreamName] = []
        self._monkeypatch = monkeypatch
        (tmp_path / "tidemill.toml").write_text('pipelines = []\n[targets.dev]\nlake = "lake"\n')
        monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))

    def run(self, pipeline: Pipeline, *results: StreamResult, selection=None):
        canned = self

        class PipelineRun:
            def __init__(self, streams, *, target, engine, run_id):
                assert target.lake == canned.lake
                assert engine.settings.mode == "local"
                assert run_id
                canned.asked = [stream.name for stream in streams]
                self.finished = []

            live = Live()

            def iter_results(self, *, on_wait):
                on_wait()
                for result in results:
                    self.finished.append(result)
                    yield result

        self._monkeypatch.setattr("tidemill.orchestration.assets.assets.PipelineRun", PipelineRun)
        return materialize(
            [streaming_assets(pipeline)],
            resources=streaming_resources(),
            selection=selection,
            instance=self.instance,
            raise_on_error=False,
        )


@pytest.fixture
def canned(monkeypatch, tmp_path):
    canned = Canned(monkeypatch, tmp_path)
    yield canned
    canned.instance.dispose()


def materialized(result) -> set[str]:
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}


def checks(result) -> dict[str, bool]:
    return {
        f"{check.asset_key.path[-1]}:{check.check_name}": check.passed
        for check in result.get_asset_check_evaluations()
    }


def failure(result):
    (event,) = (event for event in result.all_events if event.is_step_failure)
    return event.step_failure_data.user_failure_data


def test_an_updated_stream_is_materialized_with_metadata_and_the_rest_observed(shop, canned):
    result = canned.run(shop, updated(CLICKS), idle(UNIQUE), idle(TOTALS))
    assert result.success
    assert materialized(result) == {"shop/clicks"}
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["tidemill/rows_written"].value == 4
    observed = {event.asset_key.to_user_string() for event in result.get_asset_observation_events()}
    assert observed == {"shop/unique_clicks", "shop/totals"}


def test_the_lineage_of_columns_refers_to_the_assets_of_the_sources(shop, canned):
    clicks = updated(CLICKS, lineage={"cost": (("events", "cost"),)})
    totals = updated(TOTALS, lineage={"total": (("clicks", "cost"), ("clicks", "id"))})
    result = canned.run(shop, clicks, idle(UNIQUE), totals)
    lineages = {
        event.asset_key.path[-1]: event.materialization.metadata[
            "dagster/column_lineage"
        ].value.deps_by_column
        for event in result.get_asset_materialization_events()
    }
    (cost,) = lineages["clicks"]["cost"]
    assert (cost.asset_key, cost.column_name) == (AssetKey(["feed", "ad-clicks"]), "cost")
    assert [(dep.asset_key, dep.column_name) for dep in lineages["totals"]["total"]] == [
        (AssetKey(["shop", "clicks"]), "cost"),
        (AssetKey(["shop", "clicks"]), "id"),
    ]


def test_an_idle_run_is_a_materialization_where_the_stream_says_so(canned):
    """`on_cron` and freshness policies of readers count materializations only."""
    shop = Pipeline("shop", record_idle=True)
    for name, own in (("clicks", None), ("totals", False)):
        source = Feed(name, Json("id STRING"))
        shop.stream(source=source, sink=DeltaAppend(), name=name, record_idle=own)(lambda events: events)
    result = canned.run(shop, idle(CLICKS), idle(TOTALS))
    assert materialized(result) == {"shop/clicks"}
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.tags["dagster/data_version"] == "2.7", "the table is the same"
    assert "tidemill/rows_written" not in event.materialization.metadata


def test_new_rows_are_a_new_data_version_though_code_and_feed_are_the_same(shop, canned):
    result = canned.run(shop, updated(CLICKS), idle(UNIQUE), idle(TOTALS))
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.tags["dagster/data_version"] == "2.7"


def test_only_selected_streams_run(shop, canned):
    canned.run(shop, updated(UNIQUE), selection=AssetSelection.assets(["shop", "unique_clicks"]))
    assert canned.asked == [UNIQUE]


def test_a_failed_stream_fails_the_op_at_the_end_and_names_what_was_skipped_for_it(shop, canned):
    result = canned.run(shop, failed(TERMINAL), updated(TOTALS), skipped(UNIQUE))
    assert not result.success
    assert materialized(result) == {"shop/totals"}
    reported = failure(result)
    assert reported.description.splitlines() == [
        str(TERMINAL),
        "shop/unique_clicks: skipped: shop/clicks did not succeed.",
    ]
    assert reported.metadata["tidemill/failed"].value == ["shop/clicks"]
    assert reported.metadata["tidemill/skipped"].value == ["shop/unique_clicks"]
    assert reported.metadata["tidemill/errors"].value["shop/clicks"]["code"] == "column-removed"


@pytest.mark.parametrize(("error", "retry"), [(TERMINAL, False), (TRANSIENT, True)])
def test_dagster_may_retry_only_where_a_retry_can_help(monkeypatch, shop, canned, error, retry):
    allowed = []
    monkeypatch.setattr(
        "tidemill.orchestration.assets.assets.Failure",
        lambda **fields: allowed.append(fields["allow_retries"]) or Failure(**fields),
    )
    canned.run(shop, failed(error))
    assert allowed == [retry]


def test_a_tidemill_error_in_the_op_is_its_message_without_a_chain_of_stacks(shop, canned, monkeypatch):
    def resolve(*_: object, **__: object):
        raise ConfigurationError("There is no target 'x'.", fix="Name another.")

    monkeypatch.setattr("tidemill.orchestration.spark_resource.resolve", resolve)
    result = canned.run(shop)
    (event,) = (event for event in result.all_events if event.is_step_failure)
    assert failure(result).description == str(
        ConfigurationError("There is no target 'x'.", fix="Name another.")
    )
    assert event.step_failure_data.error.cause is None
    assert event.step_failure_data.error.context is None


def test_a_failed_stream_is_in_the_compute_log_by_name(shop, canned, capfd):
    canned.run(shop, failed(TERMINAL))
    assert "shop/clicks: the column is missing." in capfd.readouterr().err


def test_every_check_of_every_selected_stream_is_answered(shop, canned):
    result = canned.run(shop, updated(CLICKS, violations={"known": 3}), idle(UNIQUE), idle(TOTALS))
    assert checks(result) == {
        "clicks:known": False,
        "clicks:cheap": True,
        "clicks:positive": True,
        **{f"clicks:{name}": True for name in (*ALWAYS, "quarantine")},
        **{f"unique_clicks:{name}": True for name in (*ALWAYS, "watermark", "late_rows", "state_bounded")},
        **{f"totals:{name}": True for name in (*ALWAYS, "state_bounded")},
    }
    planned = {
        (event.event_specific_data.asset_key, event.event_specific_data.check_name)
        for event in result.all_events
        if event.event_type_value == "ASSET_CHECK_EVALUATION_PLANNED"
    }
    answered = {(check.asset_key, check.check_name) for check in result.get_asset_check_evaluations()}
    assert planned <= answered


def test_a_rule_that_keeps_or_drops_warns_and_one_that_stops_is_an_error(shop, canned):
    violations = {"known": 3, "cheap": 1}
    result = canned.run(shop, updated(CLICKS, violations=violations), idle(UNIQUE), idle(TOTALS))
    evaluations = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert evaluations["known"].severity == AssetCheckSeverity.WARN
    assert evaluations["cheap"].severity == AssetCheckSeverity.WARN
    assert evaluations["positive"].severity == AssetCheckSeverity.ERROR
    assert evaluations["known"].metadata["tidemill/violations"].value == 3
    assert result.success


def test_the_rule_that_stopped_a_run_is_the_one_that_fails(shop, canned):
    error = TerminalError(
        "a row violates the expectation 'positive' (cost > 0).",
        stream=CLICKS,
        error_class="EXPECTATION_FAILED",
        rule="positive",
    )
    passed = checks(canned.run(shop, failed(error)))
    assert passed["clicks:positive"] is False
    assert "clicks:known" not in passed
    assert passed[f"clicks:{CHECKPOINT_SOUND}"] is True


def test_the_check_reports_the_findings_of_the_checkpoint(shop, canned, monkeypatch):
    checkpoint = Path(canned.lake.checkpoint(CLICKS, 1).uri())
    (checkpoint / "offsets").mkdir(parents=True)
    StreamRecords(canned.lake, CLICKS).write_manifest(first_manifest({}))
    finding = Finding("empty-file", "error", "offsets/4", "The file is empty.", "Delete it.")
    asked = []

    def verify(path, *, level, sink_batch, **_):
        asked.append((path, level, sink_batch))
        return SimpleNamespace(findings=(finding,), sound=False, inspection=SimpleNamespace(conf={}))

    monkeypatch.setattr("tidemill.run.decide.preconditions.verify", verify)
    result = canned.run(shop, idle(CLICKS), idle(UNIQUE), idle(TOTALS))
    assert asked == [(Folder.at(canned.lake.checkpoint(CLICKS, 1)), "quick", None)]
    (check,) = (
        check
        for check in result.get_asset_check_evaluations()
        if check.check_name == CHECKPOINT_SOUND and check.asset_key.path[-1] == "clicks"
    )
    assert not check.passed
    assert check.description == "error empty-file offsets/4: The file is empty. Fix: Delete it."


def test_a_checkpoint_that_was_deleted_fails_its_check(shop, canned):
    StreamRecords(canned.lake, CLICKS).write_manifest(first_manifest({}).with_active(query_id="q"))
    result = canned.run(shop, idle(CLICKS), idle(UNIQUE), idle(TOTALS))
    assert checks(result)[f"clicks:{CHECKPOINT_SOUND}"] is False


def test_a_checkpoint_is_verified_without_a_run_where_only_the_check_is_selected(shop, canned):
    check = AssetCheckKey(AssetKey(["shop", "clicks"]), CHECKPOINT_SOUND)
    result = canned.run(shop, selection=AssetSelection.checks(check))
    assert result.success
    assert canned.asked == []
    assert checks(result) == {f"clicks:{CHECKPOINT_SOUND}": True}


@pytest.mark.parametrize("name", sorted(RESERVED_RULES))
def test_a_rule_must_not_have_the_name_of_a_check_that_every_stream_has(name):
    declare = Pipeline("shop").stream(
        source=Feed("f", Json("id INT")), sink=DeltaAppend(), name="s", expect=[Expect(name, "true")]
    )
    with raises("name-reserved", "shop/s", name):
        declare(lambda events: events)


def test_the_reserved_names_are_those_of_the_checks():
    assert set(DESCRIPTIONS) == RESERVED_RULES


def test_an_expectation_that_stops_a_run_blocks_what_is_downstream(shop):
    blocking = {spec.name for spec in streaming_assets(shop).check_specs if spec.blocking}
    assert blocking == {"positive"}


def test_a_job_evaluates_all_checks_without_a_run_of_a_stream(shop, canned):
    assets = streaming_assets(shop)
    defs = Definitions(assets=[assets], jobs=[checks_job(shop, assets)], resources=streaming_resources())
    result = defs.resolve_job_def("shop__checks").execute_in_process(instance=canned.instance)
    assert result.success
    assert materialized(result) == set()
    assert set(checks(result)) == {
        f"{key.asset_key.path[-1]}:{key.name}" for key in streaming_assets(shop).check_keys
    }


def test_the_job_of_a_pipeline_runs_all_of_it_in_one_process(shop):
    assets = streaming_assets(shop)
    defs = Definitions(assets=[assets], jobs=[pipeline_job(shop, assets)], resources=streaming_resources())
    job = defs.resolve_job_def("shop")
    assert job.executor_def is in_process_executor
    assert job.asset_layer.selected_asset_keys == assets.keys
