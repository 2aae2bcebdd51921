"""Records that were damaged, or written by another Tidemill, are named and not overwritten."""

import json

import pytest

from tests.support.raising import raises
from tidemill.operations.core.steps import existing_manifest
from tidemill.records.manifest import SCHEMA_VERSION, first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.text.names import StreamName


@pytest.fixture
def records(store):
    return StreamRecords(Lake(store), StreamName("shop", "orders"))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"schema_version": 2, "state": 1}'])
@pytest.mark.parametrize("name", ["manifest", "operation"])
def test_a_record_that_is_no_json_of_ours(records, name, content):
    records.control.create(f"{name}.json", content)
    with raises("records-not-readable", "shop/orders", f"{name}.json"):
        getattr(records, name)()
    assert records.control.read(f"{name}.json") == content


def test_a_manifest_of_a_newer_version(records):
    records.write_manifest(first_manifest({}))
    content = json.loads(records.control.read("manifest.json"))
    newer = json.dumps(content | {"schema_version": SCHEMA_VERSION + 1}).encode()
    records.control.replace("manifest.json", newer)
    with raises("manifest-version-unknown", "shop/orders", SCHEMA_VERSION + 1):
        records.manifest()


def test_an_operation_of_a_stream_without_a_manifest(records):
    with raises("manifest-missing", "shop/orders"):
        existing_manifest(records)
