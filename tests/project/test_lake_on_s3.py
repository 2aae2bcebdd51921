"""A project whose lake is on S3, as a user has it: commands only, and nothing of the lake on this machine."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers.object_store import object_store
from tests.support.small import small_target

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

TIDEMILL = Path(sys.executable).with_name("tidemill")
KEY = "a-key-that-is-nowhere-shown"
PIPELINE = """
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline, QueryOptions
from tidemill import functions as F

shop = Pipeline("shop")
VIEW = Json("id STRING, n INT, at TIMESTAMP")

@shop.stream(source=Feed("views", VIEW, rules={"positive": "n > 0"}), sink=DeltaAppend())
def views(events):
    return events

@shop.stream(source={"views": views.with_watermark("at", "10 minutes")}, sink=DeltaAppend())
def windows(views):
    counts = views.groupBy(F.window("at", "10 minutes").alias("w")).agg(F.sum("n").alias("n"))
    return counts.select("w.start", "n")

@shop.stream(
    source=views, sink=DeltaMerge(keys=["id"]), query=QueryOptions(output_mode="update", state_store="hdfs")
)
def totals(views):
    return views.groupBy("id").agg(F.sum("n").alias("n"))
"""


@dataclass
class Project:
    """The project and its bucket.

    Attributes:
        root: Its folder.
    """

    root: Path
    shown: str = ""

    def command(self, *words, status=0, java=True):
        """What a command prints as JSON; it is kept what it shows anywhere."""
        environment = os.environ | {"LAKE_KEY": KEY, "PYTHONPATH": str(Path(__file__).parents[2])}
        if not java:
            environment["JAVA_HOME"] = str(self.root / "no java here")
        done = subprocess.run(
            [str(TIDEMILL), *words, "--json"],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.shown += done.stdout + done.stderr
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    def outcomes(self, *words, **how):
        return {s["stream"]: s["outcome"] for s in self.command("run", *words, **how)["streams"]}

    def arrive(self, *rows):
        folder = self.root / "landing" / "views"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"id": i, "n": n, "at": f"2026-01-01T{m // 60:02}:{m % 60:02}:00Z"})
            for i, n, m in rows
        ]
        (folder / f"{uuid4().hex}.json").write_text("\n".join(lines))


@pytest.fixture
def project(tmp_path):
    (tmp_path / "cases.py").write_text(PIPELINE)
    with object_store() as server:
        target = small_target("cases:shop").replace('lake = "lake"', 'lake = "s3://lake/shop"')
        (tmp_path / "tidemill.toml").write_text(f"""{target}
[targets.dev.store]
endpoint = "{server.endpoint}"
region = "{server.region}"
access_key_id = "tidemill"
secret_access_key = "${{LAKE_KEY}}"
""")
        yield Project(tmp_path)


def test_a_lake_on_s3_is_run_looked_at_and_idle(project):
    streams = ["shop/views", "shop/windows", "shop/totals"]
    pings = {ping["name"]: ping for ping in project.command("debug")["pings"]}
    assert pings["lake"]["detail"] == "s3a://lake/shop has exclusive and conditional writes"

    project.arrive(("a", 1, 0), ("b", 2, 3), ("a", 0, 4))
    assert project.outcomes() == dict.fromkeys(streams, "updated")
    assert project.outcomes(java=False) == dict.fromkeys(streams, "idle")
    project.arrive(("a", 4, 30), ("c", 8, 5))
    assert project.outcomes() == dict.fromkeys(streams, "updated")

    status = {s["stream"]: s for s in project.command("status", java=False)["streams"]}
    assert {name: s["state"] for name, s in status.items()} == dict.fromkeys(streams, "idle")
    assert project.command("check", java=False, status=0)
    assert project.command("checkpoint", "verify", "shop", java=False)
    [quarantine] = project.command("quarantine", "show", "shop/views", java=False)["streams"]
    assert quarantine["rules"] == {"positive": 1}
    assert KEY not in project.shown
    assert {path.name for path in project.root.iterdir()} <= {
        *("cases.py", "__pycache__", "tidemill.toml", "landing", "spark-warehouse", ".tidemill"),
    }
