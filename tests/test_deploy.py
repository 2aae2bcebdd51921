"""The image and the compose file fit the repository and each other. No Docker is needed, and none is started."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from dagster import DagsterInstance
from dagster._cli import create_dagster_cli
from dagster._daemon.cli import create_dagster_daemon_cli
from dagster_webserver.cli import create_dagster_webserver_cli

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
INSTANCE = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
DAGSTER = ("code", "daemon", "webserver")


def versions(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def test_the_instance_is_valid_with_another_storage_and_runs_are_limited(tmp_path):
    settings = INSTANCE | {
        "compute_logs": {**INSTANCE["compute_logs"], "config": {"base_dir": str(tmp_path)}}
    }
    del settings["storage"]
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 4


def test_both_instances_monitor_runs_in_the_same_way():
    ours = yaml.safe_load((ROOT / "resources" / "dagster" / "dagster.yaml").read_text())
    for section in ("run_monitoring", "sensors", "schedules", "telemetry", "nux"):
        assert INSTANCE[section] == ours[section]


def test_every_variable_of_the_instance_is_set_in_every_service_of_dagster():
    variables = set(re.findall(r"env: (\w+)", (DEPLOY / "dagster.yaml").read_text()))
    assert len(variables) == 4
    for service in DAGSTER:
        assert variables <= set(COMPOSE["services"][service]["environment"])


def test_only_the_code_location_has_the_target_and_its_secrets():
    with_target = [name for name in DAGSTER if "TIDEMILL_TARGET" in COMPOSE["services"][name]["environment"]]
    assert with_target == ["code"]
    for name in ("daemon", "webserver"):
        assert "KAFKA_PASSWORD" not in COMPOSE["services"][name]["environment"]


def test_the_workspace_names_the_service_and_the_port_of_the_code_location():
    (entry,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    assert COMPOSE["services"][entry["grpc_server"]["host"]]
    assert f'"--port", "{entry["grpc_server"]["port"]}"' in DOCKERFILE
    assert str(entry["grpc_server"]["port"]) in COMPOSE["services"]["code"]["healthcheck"]["test"]


def test_nobody_outside_this_machine_reaches_the_ui():
    assert COMPOSE["services"]["webserver"]["ports"] == ["127.0.0.1:3000:3000"]
    assert all("ports" not in service for name, service in COMPOSE["services"].items() if name != "webserver")


def test_every_volume_is_declared_and_every_folder_exists_in_the_image_for_its_user():
    used = {volume.split(":")[0] for service in COMPOSE["services"].values() for volume in service["volumes"]}
    assert used == set(COMPOSE["volumes"])
    folders = {volume.split(":")[1] for name in DAGSTER for volume in COMPOSE["services"][name]["volumes"]}
    made = re.search(r"mkdir -p (.+?) \\", DOCKERFILE)[1].split()
    assert folders <= set(made), "a volume has the owner of the folder in the image"
    assert INSTANCE["compute_logs"]["config"]["base_dir"] in folders


@pytest.mark.parametrize("name", ["dagster-postgres"])
def test_the_library_of_the_image_has_the_version_of_dagsters_other_libraries(name):
    assert versions(DEPLOY / "postgres.lock")[name] == versions(ROOT / "requirements.lock")["dagster-pyspark"]


def test_the_lock_of_the_image_has_hashes_and_names_no_server():
    lock = (DEPLOY / "postgres.lock").read_text()
    assert "://" not in lock
    assert all(
        re.search(rf"^{name}==.*\\\n    --hash=sha256:", lock, re.MULTILINE)
        for name in versions(DEPLOY / "postgres.lock")
    )


def test_dagster_accepts_the_command_of_each_container():
    commands = [
        json.loads(re.search(r"CMD (\[.*?\])", DOCKERFILE.replace("\\\n", ""), re.DOTALL)[1]),
        COMPOSE["services"]["code"]["healthcheck"]["test"][1:],
        COMPOSE["services"]["daemon"]["command"],
        COMPOSE["services"]["webserver"]["command"],
    ]
    programs = {
        "dagster": create_dagster_cli(),
        "dagster-daemon": create_dagster_daemon_cli(),
        "dagster-webserver": create_dagster_webserver_cli(),
    }
    for program, *arguments in commands:  # an unknown option fails before the help is printed
        result = CliRunner().invoke(programs[program], [*arguments, "--help"])
        assert result.exit_code == 0, result.output


def test_what_the_dockerfile_copies_and_calls_exists():
    for path in re.findall(r"deploy/[\w.]+", DOCKERFILE):
        assert (ROOT / path).exists(), path
    module = re.search(r'"--module-name", "([\w.]+)"', DOCKERFILE)[1]
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert {".venv", ".tidemill", "deploy/.env"} <= set(ignored)
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().split()
