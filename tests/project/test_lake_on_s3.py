"""A project on S3, as a user has it: commands only, and nothing of the lake or the sources on this machine."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.servers.faulty_proxy import faulty_proxy
from tests.servers.object_store import object_store
from tests.support.small import small_target
from tests.support.waiting import wait_for
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.s3_settings import S3Settings
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

TIDEMILL = Path(sys.executable).with_name("tidemill")
KEY = "a-key-that-is-nowhere-shown"
PIPELINE = """
import os
from tidemill import DeltaAppend, DeltaSource, Feed, FileSource, Json, Pipeline
from tidemill import functions as F

shop = Pipeline("shop")
VIEW = Json("id STRING, n INT, at TIMESTAMP")
VIEWS = Feed("views", VIEW, rules={"positive": "n > 0"}, recursive=True, glob="*.json")
NAMES = FileSource(path="s3://lake/names/*.csv", format="csv", schema="id STRING, name STRING")

@shop.stream(source=VIEWS, sink=DeltaAppend())
def views(events):
    sleep = f"java_method('java.lang.Thread', 'sleep', {os.environ.get('TEST_SLEEP', '0')}L)"
    return events.withColumn("slept", F.expr(f"CASE WHEN id = 'slow' THEN {sleep} END"))

@shop.stream(
    source={"orders": DeltaSource(path="s3://lake/theirs/orders"), "names": NAMES.static()}, sink=DeltaAppend()
)
def named(orders, names):
    return orders.join(names, "id")
"""


@dataclass
class Project:
    """The project and its bucket.

    Attributes:
        root: Its folder.
        bucket: The bucket.
    """

    root: Path
    bucket: ObjectStore
    shown: str = ""

    @property
    def environment(self):
        return os.environ | {"LAKE_KEY": KEY, "PYTHONPATH": str(Path(__file__).parents[2])}

    def command(self, *words, status=0, java=True):
        """What a command prints as JSON; it is kept what it shows anywhere."""
        environment = self.environment
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

    def arrive(self, *rows, folder="2026/01/01"):
        lines = [
            json.dumps({"id": i, "n": n, "at": f"2026-01-01T{m // 60:02}:{m % 60:02}:00Z"})
            for i, n, m in rows
        ]
        self.bucket.create(f"landing/views/{folder}/{uuid4().hex}.json", "\n".join(lines).encode())

    def order(self, *rows):
        table = pa.table({"id": [i for i, _ in rows], "price": [price for _, price in rows]})
        options = dict(self.bucket.delta_options())
        write_deltalake("s3a://lake/theirs/orders", table, mode="append", storage_options=options)

    def rows(self, stream, *columns):
        table = TableRef(self.bucket, f"shop/tables/shop/{stream}")
        rows = table.dataset(table.open()).to_table(columns=list(columns)).to_pylist()
        return multiset(tuple(row.values()) for row in rows)

    @property
    def folders_with_files(self):
        """The top folders of the bucket that have files of the feed."""
        return {entry.key.split("/")[0] for entry in self.bucket.walk() if "/views/2026/" in entry.key}


@pytest.fixture
def server():
    with object_store() as running:
        yield running


@pytest.fixture
def project(tmp_path, server):
    return project_in(tmp_path, server)


def project_in(folder, server):
    (folder / "cases.py").write_text(PIPELINE)
    target = small_target("cases:shop").replace('lake = "lake"', 'lake = "s3://lake/shop"')
    target = re.sub(
        'landing = "[^"]*"', 'landing = "s3://lake/landing"\narchive = "s3://lake/archive"', target
    )
    (folder / "tidemill.toml").write_text(f"""{target}
[targets.dev.store]
endpoint = "{server.endpoint}"
region = "{server.region}"
access_key_id = "tidemill"
secret_access_key = "${{LAKE_KEY}}"
""")
    settings = S3Settings(
        endpoint=server.endpoint, region=server.region, access_key_id="tidemill", secret_access_key=KEY
    )
    return Project(folder, ObjectStore("lake", settings=settings))


def test_a_project_on_s3_is_run_looked_at_and_idle(project):
    streams = ["shop/views", "shop/named"]
    pings = {ping["name"]: ping for ping in project.command("debug")["pings"]}
    assert pings["lake"]["detail"] == "s3a://lake/shop has exclusive and conditional writes"
    assert pings["landing"]["detail"] == "s3a://lake/landing can be listed"
    project.bucket.create("names/a.csv", b"a,Ada\nb,Bob\n")
    project.order(("a", 10), ("b", 20), ("c", 30))
    project.arrive(("a", 1, 0), ("b", 2, 3), ("a", 0, 4))
    [views] = project.command("status", "shop/views", java=False)["streams"]
    assert (views["backlog"]["files"], views["backlog"]["bytes"]) == (1, 149)
    assert project.outcomes() == dict.fromkeys(streams, "updated")
    assert project.outcomes(java=False) == dict.fromkeys(streams, "idle")
    project.arrive(("a", 4, 30), ("c", 8, 5), folder="2026/01/02")
    project.bucket.replace("landing/views/2026/01/02/done.txt", b"no data")
    project.order(("a", 11))
    assert project.outcomes() == dict.fromkeys(streams, "updated")

    assert project.rows("views", "id", "n") == multiset([("a", 1), ("b", 2), ("a", 4), ("c", 8)])
    assert project.rows("named", "id", "price", "name") == multiset(
        [("a", 10, "Ada"), ("b", 20, "Bob"), ("a", 11, "Ada")]
    )
    assert project.folders_with_files == {"landing", "archive"}, (
        "the next batch moves what was read to the archive"
    )
    status = {s["stream"]: s for s in project.command("status", java=False)["streams"]}
    assert {name: s["state"] for name, s in status.items()} == dict.fromkeys(streams, "idle")
    assert project.command("check", java=False, status=0)
    assert project.command("checkpoint", "verify", "shop", java=False)
    [quarantine] = project.command("quarantine", "show", "shop/views", java=False)["streams"]
    assert quarantine["rules"] == {"positive": 1}
    assert KEY not in project.shown
    assert {path.name for path in project.root.iterdir()} <= {
        *("cases.py", "__pycache__", "tidemill.toml", "spark-warehouse", ".tidemill"),
    }


@pytest.mark.campaign
def test_a_store_that_is_away_for_a_minute_in_mid_run(tmp_path, server):
    """The run waits for the store or fails as one that is worth a repetition, and nothing is lost or doubled."""
    with faulty_proxy(server) as proxy:
        run_through(project_in(tmp_path, proxy.server), proxy)


def run_through(project, proxy):
    project.bucket.create("names/a.csv", b"a,Ada\n")
    project.order(("a", 10))
    project.arrive(("a", 1, 0))
    project.outcomes()
    project.arrive(("b", 2, 30), ("slow", 3, 31))
    project.order(("a", 11))

    with subprocess.Popen(
        [str(TIDEMILL), "run", "--json"],
        cwd=project.root,
        env=project.environment | {"TEST_SLEEP": "10000"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        offsets = project.bucket.below("shop/checkpoints/shop/views/1")
        wait_for(lambda: "1" in offsets.names("offsets"), seconds=240)
        proxy.is_away = True
        time.sleep(60)
        proxy.is_away = False
        out, err = run.communicate(timeout=600)

    streams = json.loads(out)["streams"]
    assert {stream["outcome"] for stream in streams} <= {"updated", "failed", "skipped"}, err
    errors = [stream["error"] for stream in streams if stream["outcome"] == "failed"]
    assert {error["type"] for error in errors} <= {"TransientError"}, errors
    project.outcomes()
    assert project.outcomes(java=False) == dict.fromkeys(["shop/views", "shop/named"], "idle")
    assert project.rows("views", "id", "n") == multiset([("a", 1), ("b", 2), ("slow", 3)])
    assert project.rows("named", "id", "price", "name") == multiset([("a", 10, "Ada"), ("a", 11, "Ada")])
    assert project.command("checkpoint", "verify", "shop", java=False)
