"""The wheel, installed into an empty environment: the demo, new projects, their tests, and their Dagster.

The packages that it needs come from the package registry, or from uv's cache, in the versions of requirements.lock.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.orchestration.live_dagster import graphql
from tests.support.waiting import free_port, wait_for

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
LOADED = "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }"
LAUNCH = """mutation { launchRun(executionParams: {selector: {
    repositoryLocationName: "shop", repositoryName: "__repository__", jobName: "shop"
}}) { __typename ... on LaunchRunSuccess { run { runId } } } }"""
READY_SECONDS, RUN_SECONDS = 120, 240

pytestmark = [pytest.mark.jvm]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """An empty folder; next to it is an environment into which the wheel was installed, and pytest."""
    root = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = root.glob("*.whl")
    venv.create(root / "venv", symlinks=True)
    install = [UV, "pip", "install", "--quiet", "--python", root / "venv", "-c", ROOT / "requirements.lock"]
    done = subprocess.run([*install, wheel, "pytest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
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


@pytest.mark.campaign
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
    run(folder, "tidemill", "new", "pipeline", "billing", cwd=shop)
    assert outcomes(shop, folder) == dict.fromkeys(
        ["shop/events", "shop/refunds", "billing/events"], "updated"
    )
    assert "3 passed" in run(folder, "pytest", "-q", "-p", "no:cacheprovider", cwd=shop)


@pytest.mark.campaign
def test_a_project_with_the_example_works_at_once(tmp_path, folder):
    run(folder, "tidemill", "init", "media", "--example", "ads", cwd=tmp_path)
    media = tmp_path / "media"
    assert "All definitions loaded successfully" in run(folder, "dg", "check", "defs", cwd=media)
    assert "ads__backlog" in run(folder, "dg", "list", "defs", cwd=media)
    ran = outcomes(media, folder)
    assert set(ran.values()) == {"updated"}
    assert {name.split("/")[0] for name in ran} == {"ads", "media"}
    assert "1 passed" in run(folder, "pytest", "-q", "-p", "no:cacheprovider", cwd=media)
    assert "tables are in" in run(folder, "tidemill", "demo", "--events", "300", cwd=media)


@pytest.mark.campaign
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


def outcomes(project: Path, folder: Path) -> dict[str, str]:
    """Run the streams of a project, and return the outcome of each."""
    result = json.loads(run(folder, "tidemill", "run", "--json", cwd=project))
    return {stream["stream"]: stream["outcome"] for stream in result["streams"]}


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
