"""Sources that name a table of a catalog: decided without Spark at the recorded location, over a catalog in a dict."""

import json
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.catalogs import Catalog
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaSource, Pipeline, RateSource
from tidemill.catalog.entry import reason_of
from tidemill.catalog.sources import located, resolved_tables
from tidemill.checkpoint import read_tail_or_empty
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.registry import connector_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.code_version import code_version
from tidemill.operations.edits.rebind import rebind
from tidemill.operations.generations.reset import reset
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide_run
from tidemill.storage.lake import Lake
from tidemill.storage.locations import is_same_location
from tidemill.storage.managed_commits import managing_feature
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
    assert managing_feature(TableRef.at(tmp_path / "events").log) == feature
    with raises("catalog-managed-commits", feature, tmp_path / "events"):
        resolved(copied, catalog, lake)
    path = DeltaSource(path=str(tmp_path / "events"))
    for sources in ({"events": path}, {"events": RateSource(), "other": path.static()}):
        by_path = Pipeline("other").stream(source=sources, sink=DeltaAppend(), name="copied")(
            (lambda events: events) if len(sources) == 1 else (lambda events, other: events.join(other))
        )
        with raises("catalog-managed-commits", feature, f"its source {[*sources][-1]!r}"):
            resolved(by_path, catalog, lake)


def test_the_reason_of_an_error_is_its_first_line_without_what_the_bridge_to_java_adds():
    assert reason_of(RuntimeError("no connection.\n  at line 7")) == "no connection"
    java = "An error occurred while calling o1.sql.\n: java.lang.IllegalStateException: Couldn't locate it\n\tat x"
    assert reason_of(RuntimeError(java)) == "java.lang.IllegalStateException: Couldn't locate it"
    assert reason_of(KeyError()) == "KeyError"


@pytest.mark.usefixtures("catalog")
def test_other_tables_are_not_managed(tmp_path):
    assert managing_feature(TableRef.at(tmp_path / "events").log) is None
    assert managing_feature(TableRef.at(tmp_path / "nothing").log) is None


def has_read(lake, table_id, version, **record):
    """Write what a run leaves behind that has read the versions of a table before one."""
    records = StreamRecords(lake, copied.name)
    manifest = first_manifest({"events": SourceRecord(kind="delta", **record)})
    records.write_manifest(manifest.with_active(query_id=QUERY))
    checkpoint = records.checkpoint(1)
    fields = {"reservoirId": table_id, "reservoirVersion": version, "index": -1, "isStartingVersion": False}
    offset = json.dumps({"sourceVersion": 1, **fields})
    head = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    checkpoint.create("metadata", json.dumps({"id": QUERY}).encode())
    checkpoint.create("offsets/0", f"v2\n{head}\nevents:{offset}".encode())
    checkpoint.create("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    return records


def test_an_operation_that_needs_an_unknown_location_says_so(target, lake):
    has_read(lake, "t", 1)
    with raises("catalog-location-unknown", "main.raw.events"):
        reset(copied, target, None, start="now", table="keep", dry_run=True)


def test_an_operation_reads_the_table_at_its_recorded_location(target, lake, tmp_path):
    write_deltalake(tmp_path / "events", pa.table({"n": [1]}))
    binding = {"kind": "delta", "table": "main.raw.events", "location": str(tmp_path / "events")}
    has_read(lake, "t", 0, binding=binding)
    change = reset(copied, target, None, start="now", table="keep", dry_run=True)
    assert "Never read: versions 0 to 0 of Delta table main.raw.events (append)." in change.effects


@pytest.fixture
def moved(catalog, lake, tmp_path):
    """The table of `copied` was read up to version 2, and the catalog has it in another folder now."""
    write_deltalake(tmp_path / "events", pa.table({"n": [2]}), mode="append")
    table_id = str(DeltaTable(tmp_path / "events").metadata().id)
    binding = {"kind": "delta", "table": "main.raw.events", "location": str(tmp_path / "events")}
    records = has_read(lake, table_id, 2, binding=binding)
    catalog.tables["main.raw.events"] = str(tmp_path / "elsewhere")
    return SimpleNamespace(
        records=records,
        engine=SimpleNamespace(new=lambda: catalog, close=lambda _session: None),
        before=tmp_path / "events",
        now=tmp_path / "elsewhere",
    )


def binding_of(moved):
    return moved.records.manifest().active.sources["events"].binding


def test_the_same_table_in_another_folder_is_continued_by_rebind(moved, target):
    shutil.copytree(moved.before, moved.now)
    planned = rebind(copied, target, "events", engine=moved.engine, dry_run=True)
    assert f"moves from main.raw.events at {moved.before} to main.raw.events at {moved.now}" in planned.what
    assert "reading continues at version 2" in planned.effects[0]
    assert binding_of(moved)["location"] == str(moved.before)
    rebind(copied, target, "events", engine=moved.engine)
    assert binding_of(moved)["location"] == str(moved.now)
    with raises("nothing-to-change"):
        rebind(copied, target, "events", engine=moved.engine)


def test_another_table_and_an_older_copy_are_not_continued(moved, target):
    write_deltalake(moved.now, pa.table({"n": [1]}))
    with raises("rebind-not-possible", moved.now, "--from-beginning"):
        rebind(copied, target, "events", engine=moved.engine)
    shutil.rmtree(moved.now)
    shutil.copytree(moved.before, moved.now)
    (moved.now / "_delta_log" / f"{1:020d}.json").unlink()
    with raises("rebind-not-possible", "ends at version 0", "older copy"):
        rebind(copied, target, "events", engine=moved.engine)
    assert binding_of(moved)["location"] == str(moved.before)


def test_a_table_on_s3_needs_a_target_that_says_how_it_is_reached(catalog, lake):
    catalog.tables["main.raw.events"] = "s3://bucket/raw/events"
    with raises("store-not-configured", "s3a://bucket/raw", "[targets.<name>.store]"):
        resolved(copied, catalog, lake)
    catalog.tables["main.raw.events"] = "gs://bucket/raw/events"
    with raises("store-not-supported", "gs://bucket/raw/events"):
        resolved(copied, catalog, lake)


def test_an_asset_of_the_table_has_its_name():
    [data] = connector_of(EVENTS).external(EVENTS, None)
    assert data.path == ("delta", "main.raw.events")
    assert data.metadata["dagster/table_name"] == "main.raw.events"


def test_a_source_by_path_has_the_code_version_that_it_had():
    def version(**where):
        stream = Pipeline("shop").stream(source=DeltaSource(**where), sink=DeltaAppend(), name="v")(as_it_is)
        return code_version(stream)

    assert version(path="/a") == "5fdd4261aa6c"
    assert len({version(path="/a"), version(path="/b"), version(table="a.b.c"), version(table="a.b.d")}) == 4


def as_it_is(rows):
    return rows


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
