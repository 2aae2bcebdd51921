"""A pipeline that cannot be imported breaks its own streams and no others, in the command and in Dagster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestration.shop import Shop

ROOT = Path(__file__).parents[3]


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Shop:
    """A project whose second pipeline raises when it is imported."""
    shop = Shop.make(tmp_path, monkeypatch)
    (tmp_path / "tm_broken.py").write_text("1 / 0\n", encoding="utf-8")
    config = tmp_path / "tidemill.toml"
    entry = config.read_text().split('"')[1]
    config.write_text(config.read_text().replace(f'"{entry}"', f'"tm_broken:broken", "{entry}"'))
    return shop


def tidemill(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tidemill")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["list", "status"])
@pytest.mark.usefixtures("shop")
def test_commands_work_on_the_others_and_warn_by_name(command):
    result = tidemill(command, "--json")

    assert result.returncode == 0, result.stderr
    streams = [stream["stream"] for stream in json.loads(result.stdout)["streams"]]
    assert streams == ["shop/orders", "shop/unique"]
    assert "warning: Pipeline 'tm_broken:broken' is not loaded" in result.stderr
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("shop")
def test_a_selection_of_the_broken_one_fails_after_the_warning():
    result = tidemill("list", "broken")

    assert result.returncode == 2
    assert "warning: Pipeline 'tm_broken:broken' is not loaded" in result.stderr


def test_a_project_with_nothing_but_a_broken_pipeline_fails_with_its_error(shop):
    (shop.root / "tidemill.toml").write_text('pipelines = ["tm_broken:broken"]\n')

    result = tidemill("list")

    assert result.returncode == 2
    assert "Pipeline 'tm_broken:broken' is not loaded" in result.stderr
    assert "warning" not in result.stderr


CODE = """
import json
from orchestration.definitions import defs
print(json.dumps({
    "assets": sorted(key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()),
    "jobs": [job.name for job in defs.resolve_all_job_defs()],
    "metadata": {key: value.value for key, value in (defs.metadata or {}).items()},
}))
"""


@pytest.mark.slow
def test_the_code_location_loads_the_others_and_shows_the_error(shop):
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=shop.root,
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = json.loads(result.stdout)
    assert loaded["assets"] == ["feed/orders", "shop/orders", "shop/unique"]
    assert "shop" in loaded["jobs"]
    assert "ZeroDivisionError" in loaded["metadata"]["tidemill/not_loaded/tm_broken:broken"]
    assert "tm_broken.py" in result.stderr, "the log has the traceback"
    (shop.root / "tidemill.toml").write_text('pipelines = ["tm_broken:broken"]\n')
    subprocess.run([sys.executable, "-c", CODE], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)


@pytest.mark.slow
def test_definitions_and_questions_need_no_secret(shop):
    with (shop.root / "tidemill.toml").open("a") as config:
        config.write(
            '[targets.dev.spark]\nconf = {"spark.hadoop.fs.s3a.secret.key" = "${TM_UNSET_KEY}"}\n'
            '[targets.dev.kafka.default]\nbootstrap = "127.0.0.1:1"\nsecurity_protocol = "SASL_SSL"\n'
            'sasl_mechanism = "PLAIN"\nusername = "${TM_UNSET_USER}"\npassword = "${TM_UNSET_PASSWORD}"\n'
        )
    subprocess.run([sys.executable, "-c", CODE], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    shop.has_run("a.json")
    for command in (["list"], ["status"], ["checkpoint", "verify", "shop/orders"]):
        result = tidemill(*command)
        assert result.returncode == 0, result.stderr + result.stdout
