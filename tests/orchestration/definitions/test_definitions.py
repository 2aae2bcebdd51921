"""What Dagster loads, how it is loaded, and what loading it must not do."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance

ROOT = Path(__file__).parents[3]
DG = Path(sys.executable).with_name("dg")


def run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def loaded() -> dict:
    """What a process of its own says after it has loaded the definitions."""
    code = """
import json, psutil
from orchestration.definitions import defs
import pyspark
graph = defs.resolve_asset_graph()
print(json.dumps({
    "children": [child.name() for child in psutil.Process().children(recursive=True)],
    "gateway": pyspark.SparkContext._gateway is not None,
    "assets": sorted(key.to_user_string() for key in graph.get_all_asset_keys()),
    "external": sorted(key.to_user_string() for key in graph.external_asset_keys),
    "jobs": [job.name for job in defs.resolve_all_job_defs()],
    "executor": defs.executor.name,
    "pools": [pool for key in graph.materializable_asset_keys for pool in graph.get(key).pools or ()],
}))
"""
    return json.loads(run(sys.executable, "-c", code))


def test_loading_the_definitions_starts_no_jvm(loaded):
    assert loaded["children"] == []
    assert loaded["gateway"] is False


def test_the_ads_pipeline_is_there_with_its_feeds_and_its_job(loaded):
    assert {"ads/impressions", "ads/attribution", "ads/user_sessions"} <= set(loaded["assets"])
    assert loaded["external"] == ["feed/ad-campaigns", "feed/ad-clicks", "feed/ad-impressions"]
    assert "ads" in loaded["jobs"]


def test_a_run_is_one_process_and_no_pool_holds_it_up(loaded):
    assert loaded["executor"] == "in_process"
    assert loaded["pools"] == []


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, orchestration; print('dagster' in sys.modules, 'pyspark' in sys.modules)"
    assert run(sys.executable, "-c", code).split() == ["False", "False"]


@pytest.mark.slow
def test_dg_finds_the_definitions_and_they_are_sound():
    run(DG, "check", "defs")


SCHEDULE_AND_SENSOR = """
import dagster as dg

@dg.schedule(cron_schedule="@daily", target="*")
def my_schedule(context: dg.ScheduleEvaluationContext) -> dg.SkipReason:
    return dg.SkipReason("Nothing to do.")

@dg.sensor(target="ads/clicks")
def my_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    return dg.SensorResult()

@dg.definitions
def definitions() -> dg.Definitions:
    return dg.Definitions(
        schedules=[my_schedule], sensors=[my_sensor], executor=dg.multiprocess_executor, resources={"mine": "m"}
    )
"""
OWN_PIPELINE = """
from tidemill.orchestration.assets.assets import streaming_assets
from tidemill.orchestration.assets.translator import StreamData, StreamTranslator
from pipelines.ads import ads

class Ours(StreamTranslator):
    def get_asset_spec(self, data):
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix("ours")) if isinstance(data, StreamData) else spec

streams = streaming_assets(ads, Ours(), pool="cluster")
"""
LOADED_CLONE = """
import json
from orchestration.definitions import defs
graph = defs.resolve_asset_graph()
print(json.dumps({
    "assets": sorted(key.to_user_string() for key in graph.materializable_asset_keys),
    "jobs": [job.name for job in defs.jobs],
    "schedules": [schedule.name for schedule in defs.schedules],
    "sensors": [sensor.name for sensor in defs.sensors],
    "executor": defs.executor.name,
    "resources": sorted(defs.resources),
    "keys": {str(name): key.to_user_string() for name, key in defs.resources["streams"].asset_keys.items()},
    "pools": sorted({pool for key in graph.materializable_asset_keys for pool in graph.get(key).pools or ()}),
}))
"""


@pytest.fixture
def clone(tmp_path) -> Path:
    """A copy of what Git has: the code, and no `.venv` and no lake."""
    for part in ("orchestration", "pipelines", "resources"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "tidemill.toml", "workspace.yaml"):
        shutil.copy(ROOT / part, tmp_path / part)
    return tmp_path


@pytest.mark.campaign
@pytest.mark.slow
def test_what_dg_scaffolds_in_defs_is_loaded_and_takes_precedence(clone):
    run(DG, "scaffold", "defs", "dagster.asset", "my_asset.py", cwd=clone, PYTHONPATH=str(clone))
    (clone / "orchestration" / "defs" / "mine").mkdir()
    (clone / "orchestration" / "defs" / "mine" / "automation.py").write_text(SCHEDULE_AND_SENSOR)
    (clone / "orchestration" / "defs" / "own_pipeline.py").write_text(OWN_PIPELINE)

    loaded_clone = json.loads(run(sys.executable, "-c", LOADED_CLONE, cwd=clone, PYTHONPATH=str(clone)))

    assert "my_asset" in loaded_clone["assets"]
    assert loaded_clone["schedules"] == ["my_schedule", "ads__maintain_daily"]
    assert {"my_sensor", "ads__backlog"} <= set(loaded_clone["sensors"])
    assert sorted(loaded_clone["jobs"]) == [
        "ads",
        "ads__accept",
        "ads__adopt",
        "ads__backfill",
        "ads__backfill_days",
        "ads__checks",
        "ads__maintain",
        "ads__prune",
        "ads__rebind",
        "ads__rebuild",
        "ads__rename_source",
        "ads__replay_quarantine",
        "ads__reset",
        "ads__rewind",
    ]
    assert loaded_clone["executor"] == "multiprocess"
    assert {"mine", "spark", "streams"} <= set(loaded_clone["resources"])
    assert "ours/ads/clicks" in loaded_clone["assets"]
    assert "ads/clicks" not in loaded_clone["assets"]
    assert loaded_clone["keys"]["ads/clicks"] == "ours/ads/clicks"
    assert loaded_clone["pools"] == ["cluster"]


@pytest.mark.slow
def test_the_workspace_file_loads_the_module_that_dg_loads():
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert entry["python_module"]["module_name"] == project["code_location_target_module"]
    dagster = Path(sys.executable).with_name("dagster")
    run(dagster, "definitions", "validate", "-w", ROOT / "workspace.yaml")


def test_the_instance_uses_our_settings_where_they_are_linked_into_its_home(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").symlink_to(ROOT / "resources" / "dagster" / "dagster.yaml")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with DagsterInstance.get() as instance:
        assert instance.get_settings("run_monitoring")["cancel_timeout_seconds"] == 60
        assert instance.run_monitoring_enabled
        assert instance.get_settings("sensors")["use_threads"]
        assert not instance.telemetry_enabled
