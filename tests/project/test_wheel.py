"""The wheel in an environment and a folder of its own: the demo, a new project, its tests, and its Dagster."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.orchestration.live_dagster import graphql
from tests.support.waiting import free_port, wait_for

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
# The scripts of the packages that the wheel depends on; the environment finds the packages through a .pth file.
SCRIPTS = {"dagster": "dagster._cli:main", "dg": "dagster_dg_cli.cli:main", "pytest": "pytest:console_main"}

LOADED = "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }"
LAUNCH = """mutation { launchRun(executionParams: {selector: {
    repositoryLocationName: "shop", repositoryName: "__repository__", jobName: "shop"
}}) { __typename ... on LaunchRunSuccess { run { runId } } } }"""
READY_SECONDS, RUN_SECONDS = 120, 240

pytestmark = [pytest.mark.jvm]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """An empty folder; next to it is an environment whose tidemill is the wheel's and not the repository's."""
    root = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = root.glob("*.whl")
    venv.create(root / "venv", symlinks=True)
    install = ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", root / "venv", wheel]
    subprocess.run([UV, *install], check=True, capture_output=True)
    python = root / "venv" / "bin" / "python"
    (packages,) = (root / "venv" / "lib").glob("*/site-packages")
    (packages / "current.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name, entry in SCRIPTS.items():
        module, function = entry.split(":")
        script = python.with_name(name)
        script.write_text(
            f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    (root / "empty").mkdir()
    return root / "empty"


def environment(folder: Path, **variables: str) -> dict[str, str]:
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_CONF", "PYTHON"))
    }
    return ours | {"PATH": f"{folder.parent / 'venv' / 'bin'}:{ours['PATH']}"} | variables


def run(folder: Path, *command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(folder.parent / "venv" / "bin" / command[0]), *command[1:]],
        cwd=cwd or folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def shop(folder, tmp_path) -> Path:
    """A new project, which nothing has run."""
    run(folder, "tidemill", "init", "shop", cwd=tmp_path)
    return tmp_path / "shop"


def test_the_wheel_is_the_library_alone(folder):
    where = "import tidemill; print(tidemill.__file__)"
    assert str(folder.parent / "venv") in run(folder, "python", "-c", where)
    for name in ("pipelines", "orchestration", "resources", "tests", "bench"):
        code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
        assert run(folder, "python", "-c", code).strip() == "None"
    (packages,) = (folder.parent / "venv" / "lib").glob("*/site-packages")
    assert (packages / "tidemill" / "py.typed").is_file()


def test_the_demo_runs_the_main_job_in_an_empty_folder(folder):
    out = run(folder, "tidemill", "demo", "--events", "300")
    assert "Wrote a project with the pipeline ads to tidemill-demo" in out
    streams = json.loads(run(folder, "tidemill", "status", "--json", cwd=folder / "tidemill-demo"))["streams"]
    assert {stream["state"] for stream in streams} == {"idle"}
    assert len(streams) == 10
    assert {path.name for path in folder.iterdir()} <= {"tidemill-demo"}


def test_the_demos_events_need_no_project(folder):
    out = run(
        folder, "tidemill", "demo", "generate", "--out", "landing", "--events", "10", "--files", "1", "--json"
    )
    assert json.loads(out)["next_start"] == 10
    assert (folder / "landing" / "ad-clicks").is_dir()
    shutil.rmtree(folder / "landing")


def test_a_new_project_runs_its_streams_and_their_tests(shop, folder):
    run(folder, "tidemill", "new", "stream", "shop/refunds", cwd=shop)
    result = json.loads(run(folder, "tidemill", "run", "--json", cwd=shop))
    outcomes = {stream["stream"]: stream["outcome"] for stream in result["streams"]}
    assert outcomes == {"shop/events": "updated", "shop/refunds": "updated"}
    assert "2 passed" in run(folder, "pytest", "-q", "-p", "no:cacheprovider", cwd=shop)


def test_a_new_project_loads_in_dagster_and_runs_there(shop, folder):
    assert "All definitions loaded successfully" in run(folder, "dg", "check", "defs", cwd=shop)
    assert "shop__backlog" in run(folder, "dg", "list", "defs", cwd=shop)
    with dagster_dev(shop, folder) as ask:
        run_id = ask(LAUNCH)["launchRun"]["run"]["runId"]
        status = f'{{ runOrError(runId: "{run_id}") {{ ... on Run {{ status }} }} }}'
        ended = ("SUCCESS", "FAILURE", "CANCELED")
        assert (
            wait_for(lambda: (now := ask(status)["runOrError"]["status"]) in ended and now, RUN_SECONDS)
            == "SUCCESS"
        )


@contextmanager
def dagster_dev(shop: Path, folder: Path):
    """`dagster dev` as the project's README starts it; yields a function that answers GraphQL."""
    home, port, log = shop / ".tidemill" / "dagster", free_port(), folder.parent / "dagster.log"
    home.mkdir(parents=True)
    (home / "dagster.yaml").symlink_to(shop / "resources" / "dagster" / "dagster.yaml")

    ask = partial(graphql, port)

    def is_loaded() -> bool:
        with suppress(OSError):
            return ask(LOADED)["workspaceOrError"]["locationEntries"][0]["loadStatus"] == "LOADED"
        return False

    with log.open("w") as out:
        server = subprocess.Popen(
            [folder.parent / "venv" / "bin" / "dagster", "dev", "--host", "127.0.0.1", "--port", str(port)],
            cwd=shop,
            env=environment(folder, DAGSTER_HOME=str(home)),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            wait_for(is_loaded, READY_SECONDS, log, every=0.5)
            yield ask
        finally:
            server.terminate()
            server.wait(READY_SECONDS)
