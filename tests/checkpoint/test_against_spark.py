"""Real checkpoints: the reader agrees with Spark, and `verify` finds no problem in them."""

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench.damage import environments
from tests.checkpoint import handmade
from tests.checkpoint.recognized import inspect, verify
from tidemill.checkpoint import (
    CheckpointFormatError,
    Inspection,
    OperatorView,
    commit_batches,
    file_source_paths,
    offset_batches,
    read_tail,
)
from tidemill.checkpoint.format.schema_file import parse_schema
from tidemill.engines.dev.broker import Broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1200)]  # the first test creates the checkpoints

SOME = ["stateless-named", "limit", "windows-changelog", "windows-ids", "with-state"]
REST = [
    "chained",
    "chained-named-rocksdb",
    "delta",
    "distinct",
    "distinct-within",
    "join-v2",
    "join-v2-ids",
    "join-v2-rocksdb",
    "join-v3",
    "join-v3-ids",
    "kafka",
    "limit-ids",
    "pandas-state",
    "rate",
    "running-complete",
    "sessions",
    "sessions-rocksdb",
    "stateless",
    "stateless-long",
    "total",
    "windows-changelog-long",
    "windows-hdfs",
    "windows-hdfs-long",
    "windows-ids-long",
    "windows-ids-snapshots",
    "windows-pending",
    "windows-rocksdb",
    "windows-rocksdb-long",
]
OLD = [
    "chained",
    "distinct",
    "distinct-within",
    "join-v2",
    "join-v2-rocksdb",
    "limit",
    "rate",
    "running-complete",
    "sessions",
    "sessions-rocksdb",
    "stateless",
    "stateless-long",
    "total",
    "windows-changelog",
    "windows-changelog-long",
    "windows-hdfs",
    "windows-hdfs-long",
    "windows-pending",
    "windows-rocksdb",
    "windows-rocksdb-long",
]


def make(folder: Path, names: list[str], version: str = environments.OURS, **environment: str) -> Path:
    environments.make(folder, *names, version=version, **environment)
    return folder


@pytest.fixture(scope="session")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("some"), SOME)


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Path:
    broker.create_topic("kafka", partitions=3)
    return make(tmp_path_factory.mktemp("rest"), REST, TIDEMILL_TEST_KAFKA=broker.bootstrap)


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("old"), OLD, environments.OLD)


def partitions_with_state(progress: dict[str, Any]) -> int:
    """Return the number of partitions in which an operator had a state store, as its progress reports it."""
    return 1 if progress["numStateStoreInstances"] == 1 else progress["numShufflePartitions"]


def state_agrees(inspection: Inspection, facts: dict[str, Any]) -> None:
    """Assert that operators, stores, partitions and versions are those of Spark 4's readers."""
    ours = sorted(
        (view.operator.id, view.operator.name, store.name)
        for view in inspection.operators
        for store in view.operator.stores
    )
    names = ("operatorId", "operatorName", "stateStoreName")
    if facts["operators"]:
        assert ours == sorted(tuple(row[name] for name in names) for row in facts["operators"])
    for row in facts["operators"]:
        assert row["maxBatchId"] == inspection.latest_committed_batch
        view = next(view for view in inspection.operators if view.operator.id == row["operatorId"])
        assert view.version == row["maxBatchId"] + 1  # batch N leaves version N + 1
        assert partitions_of(view) in {1, row["numPartitions"]}
        with_rows = facts["stores"].get(f"{row['operatorId']}/{row['stateStoreName']}", [])
        assert set(with_rows) <= set(range(partitions_of(view)))


def partitions_of(view: OperatorView) -> int:
    """Return the number of partitions of an operator; all its stores have the same number."""
    (partitions,) = {store.partitions for store in view.operator.stores}
    return partitions


def agrees(folder: Path) -> None:
    checkpoint = folder / "checkpoint"
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    inspection = inspect(checkpoint)
    assert inspection.problems == ()
    assert inspection.query_id == facts["query_id"]
    state_agrees(inspection, facts)
    last = [entry for entry in facts["progress"] if entry["batchId"] == inspection.latest_committed_batch][-1]
    assert [source.value for source in inspection.sources] == [
        entry["endOffset"] for entry in last["sources"]
    ]
    # Before Spark 4 nothing in a checkpoint names its operators.
    named = bool(facts["operators"])
    assert all((view.operator.name is not None) is named for view in inspection.operators)
    described = sorted((view.operator.name or "", partitions_of(view)) for view in inspection.operators)
    assert described == sorted(
        (operator["operatorName"] if named else "", partitions_with_state(operator))
        for operator in last["stateOperators"]
    )
    watermark = last.get("eventTime", {}).get("watermark")
    if watermark is not None and inspection.latest_offset is not None:
        moment = datetime.fromisoformat(watermark)
        assert inspection.latest_offset.watermark_ms == round(moment.timestamp() * 1000)
    for level in ("quick", "full"):
        verdict = verify(checkpoint, level=level)
        assert [f for f in verdict.findings if f.severity != "info"] == []
        assert verdict.sound


@pytest.mark.parametrize("name", SOME)
def test_the_reader_agrees_with_spark(some: Path, name: str) -> None:
    agrees(some / name)


@pytest.mark.campaign
@pytest.mark.parametrize("name", REST)
def test_the_reader_agrees_with_spark_on_the_rest(rest: Path, name: str) -> None:
    agrees(rest / name)


@pytest.mark.campaign
@pytest.mark.parametrize("name", OLD)
def test_the_reader_agrees_with_spark_3_5(old: Path, name: str) -> None:
    agrees(old / name)


def same_versions(folder: Path, copy: Path) -> None:
    """Assert for each batch as the last one: its state is sound if and only if Spark's reader can rebuild it."""
    readable = json.loads((folder / "facts.json").read_text())["readable"]
    for batch in commit_batches(folder / "checkpoint"):
        checkpoint = shutil.copytree(folder / "checkpoint", copy / str(batch))
        for log, batches in (
            ("offsets", offset_batches(checkpoint)),
            ("commits", commit_batches(checkpoint)),
        ):
            for later in (number for number in batches if number > batch):
                handmade.remove(checkpoint / log / str(later))
        wrong = [finding for finding in verify(checkpoint, level="full").findings if "-state" in finding.code]
        assert (not wrong) == (batch in readable), (batch, readable, wrong)


def test_which_versions_can_be_rebuilt(some: Path, tmp_path: Path) -> None:
    same_versions(some / "windows-changelog", tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("name", [name for name in REST if name.startswith("windows")])
def test_which_versions_of_the_rest_can_be_rebuilt(rest: Path, tmp_path: Path, name: str) -> None:
    same_versions(rest / name, tmp_path)


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
        expected = sorted(f"file://{file}" for file in (folder / "input" / name).glob("*.json"))
        assert sorted(file_source_paths(folder / "checkpoint", name)) == expected


def test_a_moved_checkpoint_of_transform_with_state_is_an_error(some: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(some / "with-state" / "checkpoint", tmp_path / "checkpoint")
    findings = [(finding.severity, finding.code) for finding in verify(moved, level="quick").findings]
    assert ("error", "moved") in findings


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_missing_snapshot_of_column_families_is_an_error(some: Path, tmp_path: Path, level: Any) -> None:
    """Its changelogs from version 1 on exist, and Spark 4.2 fails on them without the families."""
    copy = shutil.copytree(some / "with-state" / "checkpoint", tmp_path / "checkpoint")
    assert (copy / "state" / "0" / "1" / "1.changelog").exists()
    (copy / "state" / "0" / "1" / "1.zip").unlink()
    findings = [
        (finding.severity, finding.code, finding.where) for finding in verify(copy, level=level).findings
    ]
    assert ("error", "missing-state", "state/0/1/1.zip") in findings


def test_a_table_of_a_snapshot_with_another_size_is_an_error(some: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(some / "with-state" / "checkpoint", tmp_path / "checkpoint")
    table = max((copy / "state").rglob("*.sst"))
    table.write_bytes(table.read_bytes() + b"more")
    where = str(table.relative_to(copy))
    findings = [
        (finding.severity, finding.code, finding.where) for finding in verify(copy, level="quick").findings
    ]
    assert ("error", "damaged-state", where) in findings


def test_a_schema_of_column_families_is_read_to_its_end(some: Path) -> None:
    (schema,) = (some / "with-state" / "checkpoint").glob("state/0/_stateSchema/default/0_*")
    data = schema.read_bytes()
    assert parse_schema("schema", data).version == 3
    for end in range(len(data)):
        with pytest.raises(CheckpointFormatError):
            parse_schema("schema", data[:end])


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    ("name", "pattern"), [("windows-changelog", "2.changelog"), ("windows-ids", "2_*.changelog")]
)
def test_a_missing_changelog_is_an_error(
    some: Path, tmp_path: Path, name: str, pattern: str, level: Any
) -> None:
    copy = shutil.copytree(some / name / "checkpoint", tmp_path / "checkpoint")
    missing = next((copy / "state" / "0" / "1").glob(pattern))
    missing.unlink()
    findings = [(finding.code, finding.where) for finding in verify(copy, level=level).findings]
    assert ("missing-state", f"state/0/1/{missing.name}") in findings


def test_every_flip_in_a_needed_state_file_is_found(some: Path, tmp_path: Path) -> None:
    """Also without the sidecar: the blocks of the stream have their own checksums."""
    copy = shutil.copytree(some / "windows-changelog" / "checkpoint", tmp_path / "checkpoint")
    file = copy / "state" / "0" / "0" / "3.changelog"
    (file.parent / f".{file.name}.crc").unlink()
    sound = file.read_bytes()
    end_block = 21  # Spark stops at its own end marker and never reads the block behind it
    for position in range(0, len(sound) - end_block, 7):
        file.write_bytes(sound[:position] + bytes([sound[position] ^ 0x10]) + sound[position + 1 :])
        assert not verify(copy, level="full").sound, position
