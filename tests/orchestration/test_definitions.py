"""What Dagster loads, how it is loaded, and what loading it must not do."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance

ROOT = Path(__file__).parents[2]
DG = Path(sys.executable).with_name("dg")


def run(*command: object, **environment: str) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
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


def test_dg_finds_the_definitions_and_they_are_sound():
    run(DG, "check", "defs")


def test_the_workspace_file_loads_the_module_that_dg_loads():
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert entry["python_module"]["module_name"] == project["code_location_target_module"]
    dagster = Path(sys.executable).with_name("dagster")
    run(dagster, "definitions", "validate", "-w", ROOT / "workspace.yaml")


def test_the_instance_uses_our_settings_where_they_are_linked_into_its_home(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").symlink_to(ROOT / "dagster.yaml")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with DagsterInstance.get() as instance:
        assert instance.get_settings("run_monitoring")["cancel_timeout_seconds"] == 60
        assert instance.run_monitoring_enabled
        assert instance.get_settings("sensors")["use_threads"]
        assert not instance.telemetry_enabled
