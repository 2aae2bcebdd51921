"""Real checkpoints: what we say of them is what Spark says, and we find nothing wrong with them."""

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.streaming.checkpoint import file_source_paths, inspect, read_tail, verify
from resources.jars import spark_jars

pytestmark = pytest.mark.timeout(1200)  # the first test makes the checkpoints

MAKE = Path(__file__).parent / "make.py"
SOME = ["stateless-named", "windows-hdfs", "windows-changelog", "windows-ids", "join-v3", "with-state"]
REST = [
    "chained",
    "chained-named-rocksdb",
    "delta",
    "distinct",
    "distinct-within",
    "join-v2",
    "join-v2-ids",
    "join-v2-rocksdb",
    "join-v3-ids",
    "pandas-state",
    "rate",
    "running-complete",
    "sessions",
    "sessions-rocksdb",
    "stateless",
    "stateless-long",
    "windows-changelog-long",
    "windows-hdfs-long",
    "windows-ids-long",
    "windows-ids-snapshots",
    "windows-pending",
    "windows-rocksdb",
    "windows-rocksdb-long",
]


def make(into: Path, names: list[str]) -> Path:
    jars = ",".join(str(jar) for jar in spark_jars() if jar.name.startswith("delta"))
    done = subprocess.run(
        [sys.executable, str(MAKE), str(into), *names],
        env={**os.environ, "TIDEMILL_TEST_JARS": jars},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return into


@pytest.fixture(scope="session")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("some"), SOME)


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("rest"), REST)


def agrees(folder: Path) -> None:
    checkpoint = folder / "checkpoint"
    said: dict[str, Any] = json.loads((folder / "said.json").read_text())
    seen = inspect(checkpoint)
    assert seen.problems == ()
    assert seen.query_id == said["query_id"]
    ours = sorted(
        (view.operator.id, view.operator.name, store.name, store.partitions)
        for view in seen.operators
        for store in view.operator.stores
    )
    names = ("operatorId", "operatorName", "stateStoreName", "numPartitions")
    assert ours == sorted(tuple(row[name] for name in names) for row in said["operators"])
    for row in said["operators"]:
        assert row["maxBatchId"] == seen.latest_committed_batch
        view = next(view for view in seen.operators if view.operator.id == row["operatorId"])
        assert view.version == row["maxBatchId"] + 1  # a batch leaves the version after its number
    last = [entry for entry in said["progress"] if entry["batchId"] == seen.latest_committed_batch][-1]
    assert [source.value for source in seen.sources] == [entry["endOffset"] for entry in last["sources"]]
    watermark = last.get("eventTime", {}).get("watermark")
    if watermark is not None and seen.latest_offset is not None:
        moment = datetime.fromisoformat(watermark)
        assert seen.latest_offset.watermark_ms == round(moment.timestamp() * 1000)
    for level in ("quick", "full"):
        verdict = verify(checkpoint, level=level)
        assert [f for f in verdict.findings if f.severity != "info"] == []
        assert verdict.sound


@pytest.mark.parametrize("name", SOME)
def test_what_spark_says(some: Path, name: str) -> None:
    agrees(some / name)


@pytest.mark.campaign
@pytest.mark.parametrize("name", REST)
def test_what_spark_says_of_the_rest(rest: Path, name: str) -> None:
    agrees(rest / name)


def test_state_ids_name_the_files_of_each_store(some: Path) -> None:
    checkpoint = some / "windows-ids" / "checkpoint"
    commit = read_tail(checkpoint).latest_commit
    assert commit is not None
    assert commit.state_unique_ids is not None
    for partition, ids in enumerate(commit.state_unique_ids[0]):
        version = commit.batch_id + 1
        assert (checkpoint / "state" / "0" / str(partition) / f"{version}_{ids[0]}.changelog").exists()


def test_the_source_log_names_every_input_file(some: Path) -> None:
    folder = some / "stateless-named"
    for name in ("a", "b"):
        given = sorted(f"file://{file}" for file in (folder / "input" / name).glob("*.json"))
        assert sorted(file_source_paths(folder / "checkpoint", name)) == given


def test_a_moved_checkpoint_of_transform_with_state_is_an_error(some: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(some / "with-state" / "checkpoint", tmp_path / "checkpoint")
    found = [(finding.severity, finding.code) for finding in verify(moved, level="quick").findings]
    assert ("error", "moved") in found


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    ("name", "pattern"), [("windows-changelog", "2.changelog"), ("windows-ids", "2_*.changelog")]
)
def test_a_missing_changelog_is_an_error(
    some: Path, tmp_path: Path, name: str, pattern: str, level: Any
) -> None:
    copy = shutil.copytree(some / name / "checkpoint", tmp_path / "checkpoint")
    gone = next((copy / "state" / "0" / "1").glob(pattern))
    gone.unlink()
    found = [(finding.code, finding.where) for finding in verify(copy, level=level).findings]
    assert ("missing-state", f"state/0/1/{gone.name}") in found


def test_every_flip_in_a_needed_state_file_is_found(some: Path, tmp_path: Path) -> None:
    """Without the sidecar too: the blocks of the stream carry their own sums."""
    copy = shutil.copytree(some / "windows-changelog" / "checkpoint", tmp_path / "checkpoint")
    victim = copy / "state" / "0" / "0" / "3.changelog"
    (victim.parent / f".{victim.name}.crc").unlink()
    sound = victim.read_bytes()
    end_block = 21  # Spark stops at its own end mark and never reads the block behind it
    for place in range(0, len(sound) - end_block, 7):
        victim.write_bytes(sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
        assert not verify(copy, level="full").sound, place
