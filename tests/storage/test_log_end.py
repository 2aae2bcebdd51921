"""The end of a table's log, in every store."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tidemill.storage.delta_log import DeltaLog
from tidemill.storage.local_store import LocalStore
from tidemill.storage.log_end import log_end
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.table_ref import TableRef

METADATA = {"id": "table-1", "configuration": {"delta.appendOnly": "true"}}
LAST = 3


@pytest.fixture
def log(store):
    """A log of four commits, each with its checksum file."""
    log = DeltaLog(store, "table/_delta_log")
    for version in range(LAST + 1):
        write(log, f"{version:020d}.json", {"commitInfo": {"txnId": f"commit-{version}"}})
        write(log, f"{version:020d}.crc", checksum(version))
    return log


def write(log: DeltaLog, name: str, content: object) -> None:
    log.store.replace(f"{log.folder}/{name}", json.dumps(content).encode())


def checksum(version: int, **changes: object) -> dict[str, object]:
    transactions = [{"appId": "query", "version": version - 1}]
    return {"txnId": f"commit-{version}", "metadata": METADATA, "setTransactions": transactions, **changes}


def test_the_newest_version_has_the_tables_id_and_all_transactions(log):
    end = log_end(log)
    assert (end.version, end.table_id, end.transactions) == (LAST, "table-1", {"query": LAST - 1})
    assert end.properties == METADATA["configuration"]


@pytest.mark.parametrize("checkpoint", [1, LAST, 9])
def test_a_checkpoint_of_the_log_may_be_old_or_of_a_version_that_is_gone(log, checkpoint):
    write(log, "_last_checkpoint", {"version": checkpoint})
    assert log_end(log).version == LAST


@pytest.mark.parametrize(
    "content",
    [
        checksum(LAST, txnId="a commit that was there before a restore"),
        checksum(LAST, txnId=None),
        checksum(LAST, setTransactions=None),
        checksum(LAST, metadata=None),
        {},
        [],
    ],
)
def test_a_checksum_file_that_says_too_little_or_is_of_another_commit_does_not_count(log, content):
    write(log, f"{LAST:020d}.crc", content)
    assert log_end(log) is None


@pytest.mark.parametrize("name", [f"{LAST:020d}.json", f"{LAST:020d}.crc"])
def test_a_damaged_file_does_not_count(log, name):
    log.store.replace(f"{log.folder}/{name}", b'{"txnId"')
    assert log_end(log) is None


def test_there_is_no_end_without_a_table(store):
    assert log_end(DeltaLog(store, "table/_delta_log")) is None


def test_there_is_no_end_without_a_checksum_file(log):
    log.store.delete([f"{log.folder}/{LAST:020d}.crc"])
    assert log_end(log) is None


@pytest.mark.slow
def test_the_newest_version_is_listed_after_the_last_checkpoint_on_a_store(bucket, tmp_path, monkeypatch):
    for number in range(13):
        write_deltalake(str(tmp_path / "table"), pa.table({"n": [number]}), mode="append")
    DeltaTable(str(tmp_path / "table")).create_checkpoint()
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [13]}), mode="append")
    store, files = bucket.below(tmp_path.name), LocalStore(tmp_path)
    for file in files.walk("table/_delta_log"):
        store.create(file.key, files.read(file.key))
    listed, list_folder = [], ObjectStore.list

    def noted(of, prefix="", *, after=""):
        listed.append(after)
        return list_folder(of, prefix, after=after)

    monkeypatch.setattr(ObjectStore, "list", noted)

    assert (
        TableRef(store, "table").log.latest_version() == TableRef(files, "table").log.latest_version() == 13
    )
    assert listed == ["00000000000000000010.json"]
    store.delete(["table/_delta_log/_last_checkpoint"])
    assert TableRef(store, "table").log.latest_version() == 13
    assert TableRef(store, "nothing").log.latest_version() is None
    assert not TableRef(store, "nothing").exists()
