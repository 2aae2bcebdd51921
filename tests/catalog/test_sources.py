"""Sources that name a table of a catalog: decided without Spark at the recorded location, over a catalog in a dict."""

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.catalogs import Catalog
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaSource, Pipeline
from tidemill.catalog.managed_commits import managing_feature
from tidemill.catalog.sources import located, resolved_tables
from tidemill.checkpoint import read_tail_or_empty
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.source_record import SourceRecord
from tidemill.operations.generations.reset import reset
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide_run
from tidemill.storage.lake import Lake
from tidemill.storage.locations import is_same_location
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import Target

shop = Pipeline("shop")
QUERY = "0f0e1c1e-0000-4000-8000-000000000000"
EVENTS = DeltaSource(table="main.raw.events")


@shop.stream(
    source={"events": EVENTS, "people": DeltaSource(table="main.raw.people").static()}, sink=DeltaAppend()
)
def joined(events, people):
    return events.join(people, "n")


@shop.stream(source={"events": EVENTS}, sink=DeltaAppend())
def copied(events):
    return events


@pytest.fixture
def lake(tmp_path):
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def target(lake):
    return Target(name="dev", lake=lake)


@pytest.fixture
def catalog(tmp_path):
    tables = {f"main.raw.{name}": str(tmp_path / name) for name in ("events", "people")}
    for location in tables.values():
        write_deltalake(location, pa.table({"n": [1]}))
    return Catalog({name: f"file:{location}" for name, location in tables.items()})


def resolved(stream, catalog, lake, records=None):
    tail = read_tail_or_empty(lake.checkpoint(stream.name, 1))
    return resolved_tables(stream, catalog, lake, tail, records or {})


def test_the_catalog_is_asked_and_the_locations_are_recorded(catalog, lake, tmp_path):
    stream, records = resolved(joined, catalog, lake)
    assert {name: source.folder for name, source in stream.sources.items()} == {
        "events": str(tmp_path / "events"),
        "people": str(tmp_path / "people"),
    }
    assert records["people"].binding == {
        "kind": "delta",
        "table": "main.raw.people",
        "location": str(tmp_path / "people"),
    }
    assert all(source.folder is None for source in joined.sources.values())


def test_a_recorded_location_is_read_without_asking_anybody(catalog, lake, target, tmp_path):
    before = decide_run(copied, target)
    assert before.backlog["events"] == Backlog(1, "unknown", before.backlog["events"].detail)
    _, records = resolved(copied, catalog, lake)
    asked = len(catalog.statements)
    manifest = first_manifest(records).with_active(query_id=None)
    StreamRecords(lake, copied.name).write_manifest(manifest)
    decision = decide_run(copied, target)
    assert (decision.backlog["events"].unit, decision.backlog["events"].count) == ("versions", 1)
    assert decision.stream.sources["events"].folder == str(tmp_path / "events")
    assert decision.sources["events"].binding == records["events"].binding
    assert len(catalog.statements) == asked
    assert located(copied, {}) is copied


@pytest.mark.parametrize("name", ["events", "people"])
def test_a_changed_location_is_refused_with_the_ways_out(catalog, lake, tmp_path, name):
    _, records = resolved(joined, catalog, lake)
    catalog.tables[f"main.raw.{name}"] = "/somewhere/else"
    rebind = f"tidemill rebind shop/joined {name}"
    with raises("catalog-location-changed", "/somewhere/else", tmp_path / name, rebind, "tidemill rebuild"):
        resolved(joined, catalog, lake, records)


def test_a_name_that_changed_together_with_that_of_its_table_is_followed(catalog, lake):
    _, records = resolved(copied, catalog, lake)
    catalog.tables["main.raw.clicks"] = catalog.tables.pop("main.raw.events")
    renamed = Pipeline("shop").stream(
        source={"events": DeltaSource(table="main.raw.clicks")}, sink=DeltaAppend(), name="copied"
    )(lambda events: events)
    assert located(renamed, records) is renamed  # nothing is read by a guess
    stream, now = resolved(renamed, catalog, lake, records)
    assert stream.sources["events"].folder == records["events"].binding["location"]
    assert now["events"].binding["table"] == "main.raw.clicks"


def test_what_a_catalog_does_not_have_is_refused(catalog, lake):
    catalog.tables.pop("main.raw.events")
    with raises("catalog-table-missing", "main.raw.events", "shop/copied"):
        resolved(copied, catalog, lake)
    catalog.tables["main.raw.events"] = "VIEW"
    with raises("catalog-table-unsuitable", "main.raw.events", "a view"):
        resolved(copied, catalog, lake)
    catalog.fails = RuntimeError("no connection")
    with raises("catalog-not-readable", "no connection"):
        resolved(copied, catalog, lake)


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_with_catalog_managed_commits_is_refused(catalog, lake, tmp_path, feature):
    log = tmp_path / "events" / "_delta_log"
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature, "inCommitTimestamp"],
    }
    (log / f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    (log / f"{2:020d}.json").write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")
    assert managing_feature(TableRef.at(tmp_path / "events")) == feature
    with raises("catalog-managed-commits", feature, tmp_path / "events"):
        resolved(copied, catalog, lake)
    by_path = Pipeline("other").stream(
        source={"events": DeltaSource(path=str(tmp_path / "events"))}, sink=DeltaAppend(), name="copied"
    )(lambda events: events)
    with raises("catalog-managed-commits", feature):
        resolved(by_path, catalog, lake)


def test_other_tables_are_not_managed(catalog, lake, tmp_path):
    assert managing_feature(TableRef.at(tmp_path / "events")) is None
    assert managing_feature(TableRef.at(tmp_path / "nothing")) is None
    assert catalog.tables
    assert lake.uri


def test_an_operation_that_needs_an_unknown_location_says_so(target, lake, tmp_path):
    records = StreamRecords(lake, copied.name)
    records.write_manifest(first_manifest({"events": SourceRecord(kind="delta")}).with_active(query_id=QUERY))
    checkpoint = tmp_path / "lake/checkpoints/shop/copied/1"
    offset = {
        "sourceVersion": 1,
        "reservoirId": "t",
        "reservoirVersion": 1,
        "index": -1,
        "isStartingVersion": False,
    }
    for name, content in {
        "metadata": json.dumps({"id": QUERY}),
        "offsets/0": f'v2\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\nevents:{json.dumps(offset)}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(content)
    with raises("catalog-location-unknown", "main.raw.events"):
        reset(copied, target, None, start="now", table="keep", dry_run=True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("file:/a/b", "/a/b", True),
        ("file:///a/b/", "/a/b", True),
        ("s3://lake/t", "s3a://lake/t/", True),
        ("file:/a/x%20y", "/a/x y", True),
        ("/a/100%", "/a/100%", True),
        ("/a/b", "/a/B", False),
        ("s3a://lake/t", "/lake/t", False),
    ],
)
def test_a_location_is_the_same_in_every_spelling(one, other, same):
    assert is_same_location(one, other) is same
