"""The definitions of pipelines merge into those of an existing Dagster project, several targets at once."""

import runpy
from pathlib import Path

import pytest
from dagster import AssetKey, AssetSpec, DagsterInstance, Definitions, multiprocess_executor

from tests.support.raising import raises
from tidemill.orchestration import StreamTranslator, build_definitions

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "existing_project.py"
TARGETS = """
pipelines = ["pipelines.ads:ads"]

[targets.dev]

[targets.prod]
lake = "prod/lake"
landing = "prod/landing"

[targets.prod.alerts]
webhook = "${WEBHOOK}"
"""


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "tidemill.toml"
    path.write_text(TARGETS)
    monkeypatch.setenv("TIDEMILL_CONFIG", str(path))
    return path


def keys(defs: Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def names(defs: Definitions) -> set[str]:
    """Return the names of everything that has to be unique, except asset keys."""
    defined = [*defs.jobs, *defs.sensors, *defs.schedules]
    return {one.name for one in defined} | set(defs.resources)


def test_the_example_of_the_page_loads_with_two_targets():
    defs = runpy.run_path(str(EXAMPLE))["defs"]
    Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    assert {"budget_report", "dev/ads/attribution", "prod/ads/attribution"} <= keys(defs)
    assert graph.get(AssetKey(["prod", "ads", "attribution"])).parent_keys == {
        AssetKey(["prod", "ads", name]) for name in ("unique_impressions", "unique_clicks", "campaigns")
    }
    jobs = {job.name: job for job in defs.resolve_all_job_defs()}
    assert jobs["dev__ads"].asset_layer.executable_asset_keys.isdisjoint(
        jobs["prod__ads"].asset_layer.executable_asset_keys
    )
    assert jobs["prod__ads__maintain"].tags["tidemill/target"] == "prod"


def test_everything_has_the_prefix_and_nothing_is_left_out():
    plain, prefixed = build_definitions("prod"), build_definitions("prod", key_prefix=["eu", "prod"])
    assert names(prefixed) == {f"eu__prod__{name}" for name in names(plain)}
    replays = {key for key in keys(plain) if key.startswith("backfill/")}
    assert keys(prefixed) == {f"eu/prod/{key}" for key in keys(plain) - replays} | {
        key.replace("backfill/", "backfill/eu/prod/") for key in replays
    }


@pytest.mark.parametrize(("target", "landing"), [("dev", ".tidemill/landing"), ("prod", "prod/landing")])
def test_the_jobs_of_each_target_work_on_it(target, landing, config):
    defs = runpy.run_path(str(EXAMPLE))["defs"]
    with DagsterInstance.ephemeral() as instance:
        pruned = defs.resolve_job_def(f"{target}__ads__prune").execute_in_process(instance=instance)
        run = defs.resolve_job_def(f"{target}__ads").execute_in_process(
            instance=instance, raise_on_error=False
        )
        assert instance.get_run_by_id(run.run_id).tags["tidemill/target"] == target
    (failure,) = [event.step_failure_data for event in run.get_step_failure_events()]
    assert pruned.success
    assert f"there is no folder {config.parent / landing / 'ad-impressions'}" in str(
        failure.user_failure_data
    )


def test_an_executor_of_the_project_stays():
    own = Definitions(executor=multiprocess_executor)
    assert Definitions.merge(own, build_definitions("dev")).executor is multiprocess_executor
    assert build_definitions("dev", defs=Definitions()).executor is not None


def test_a_translator_applies_to_streams_and_to_what_they_read():
    class Tagged(StreamTranslator):
        def get_asset_spec(self, data) -> AssetSpec:
            return super().get_asset_spec(data).merge_attributes(tags={"domain": "advertising"})

    graph = build_definitions("dev", translator=Tagged(), key_prefix="dev").resolve_asset_graph()
    untagged = [key for key in graph.get_all_asset_keys() if "domain" not in graph.get(key).tags]
    assert {key.path[0] for key in untagged} == {"backfill"}


def test_a_pipeline_that_the_target_lacks_is_refused():
    with raises("pipeline-missing", "'add'", "Did you mean 'ads'?"):
        build_definitions("dev", pipelines=["add"])
    assert build_definitions("dev", pipelines=[]).jobs == []


@pytest.mark.parametrize("prefix", ["Prod", "a__b", ["eu", ""], "a/b"])
def test_a_prefix_that_is_no_name_is_refused(prefix):
    with raises("name-invalid", "key_prefix"):
        build_definitions("dev", key_prefix=prefix)
