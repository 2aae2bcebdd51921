"""Dagster's own processes on an instance of their own: a code server, a webserver, and daemons, as in production."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from textwrap import dedent

from dagster import DagsterInstance

from tests.support.small import small_target
from tests.support.waiting import free_port, listens, wait_for

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
READY_SECONDS = 120
STOP_SECONDS = 30
DAGSTER_YAML = """
telemetry: {enabled: false}
nux: {enabled: false}
sensors: {use_threads: true, num_workers: 2}
"""
LOCATION = """
import tidemill.orchestration.automation.sensors

tidemill.orchestration.automation.sensors.INTERVAL_SECONDS = {interval}
from orchestration.definitions import defs
"""
PIPELINE = '''
from pathlib import Path

from tidemill import DeltaAppend, Feed, Pipeline, RunWhen, Json
from tidemill import functions as F

shop = Pipeline("shop", run_when=RunWhen(at_most_every="{at_most_every}"))
HOLD = Path(__file__).with_name("hold")


@shop.stream(source=Feed("orders", Json("n INT")), sink=DeltaAppend())
def orders(events):
    """Every order."""
    if HOLD.exists():  # a batch that takes very long
        return events.where(F.expr("reflect('java.lang.Thread', 'sleep', 600000L) IS NULL"))
    return events


@shop.stream(source=orders, sink=DeltaAppend())
def copied_orders(rows):
    """The orders again."""
    return rows


@shop.stream(source=Feed("clicks", Json("n INT")), sink=DeltaAppend())
def clicks(events):
    """Every click."""
    return events


@shop.stream(source=clicks, sink=DeltaAppend())
def copied_clicks(rows):
    """The clicks again."""
    return rows
'''


def shop_project(folder, bootstrap, *, interval=30, at_most_every="1 minute"):
    """Write a project whose sensor runs at once: `orders` are files, `clicks` a topic, each with a copy downstream."""
    (folder / "live_shop.py").write_text(PIPELINE.replace("{at_most_every}", at_most_every))
    (folder / "live_location.py").write_text(LOCATION.format(interval=interval))
    settings = small_target("live_shop:shop").replace("[targets.dev]", "[targets.dev]\nautomation = true")
    settings += f'\n[targets.dev.kafka.default]\nbootstrap = "{bootstrap}"\n'
    settings += '\n[targets.dev.feeds]\nclicks = { topic = "clicks" }\n'
    (folder / "tidemill.toml").write_text(settings)
    (folder / "landing" / "orders").mkdir(parents=True)
    return folder


class LiveDagster:
    """Dagster on a project, for the length of a `with` block; every process has a process group of its own.

    Args:
        project: A folder with a `tidemill.toml`.
        module: The module of the code location.
    """

    def __init__(self, project, module="live_location"):
        self.project, self.module = project, module
        self.home = project / "dagster"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(DAGSTER_YAML)
        self.log = project / "dagster.log"
        self.port, self._code_port = free_port(), free_port()
        workspace = f"""
            load_from:
              - grpc_server: {{host: 127.0.0.1, port: {self._code_port}, location_name: tidemill}}
            """
        (self.home / "workspace.yaml").write_text(dedent(workspace))
        self._processes = []

    def __enter__(self):
        address = ["--host", "127.0.0.1", "--port"]
        self.start("dagster", "api", "grpc", "--module-name", self.module, *address, str(self._code_port))
        self.wait_for(lambda: listens(self._code_port), READY_SECONDS)
        self.start("dagster-webserver", "--workspace", self.workspace, *address, str(self.port))
        self.instance = DagsterInstance.from_config(str(self.home))
        self.wait_for(lambda: listens(self.port), READY_SECONDS)
        return self

    def __exit__(self, *_error):
        self.instance.dispose()
        for process in reversed(self._processes):
            self.stop(process)

    @property
    def workspace(self):
        return str(self.home / "workspace.yaml")

    def start_daemon(self, *, script=None):
        """Start a daemon, or a script that runs one."""
        program = ["python", "-c", script] if script else ["dagster-daemon"]
        return self.start(*program, "run", "--workspace", self.workspace)

    def start(self, program, *arguments):
        environment = os.environ | {
            "DAGSTER_HOME": str(self.home),
            "TIDEMILL_CONFIG": str(self.project / "tidemill.toml"),
            "PYTHONPATH": f"{ROOT}:{self.project}",
        }
        with self.log.open("a") as out:
            process = subprocess.Popen(
                [str(BIN / program), *arguments],
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def stop(self, process, number=signal.SIGTERM):
        """Send a signal to a process and its children, and wait until it has ended."""
        if process.poll() is None:
            os.killpg(process.pid, number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def graphql(self, query, **variables):
        """Return the data of an answer of the webserver."""
        return graphql(self.port, query, **variables)

    def wait_for(self, condition, seconds):
        """Wait until a condition is true, and return its value; fail with the end of the log."""
        return wait_for(condition, seconds, self.log, every=0.2)


def graphql(port, query, **variables):
    """Return the data of an answer of the webserver on a port."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": query, "variables": variables}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own server
        answered = json.load(answer)
    assert "errors" not in answered, answered
    return answered["data"]


def table_rows(project, stream):
    from deltalake import DeltaTable

    return DeltaTable(str(project / "lake" / "tables" / "shop" / stream)).to_pyarrow_table().to_pylist()
