"""Maintenance without a JVM: the horizon of a table, what is removed up to it, the command and the job."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterEventType, DagsterInstance, Definitions
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, UNIQUE, Shop
from tidemill.cli.change.operation import app_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import ConfigurationError
from tidemill.operations.housekeeping.maintain import MAINTAIN, maintain
from tidemill.orchestration.assets.assets import streaming_resources
from tidemill.orchestration.jobs.operation_job import operation_job
from tidemill.records.manifest import first_manifest
from tidemill.records.operation import new_operation
from tidemill.records.stream_records import Pins, StreamRecords
from tidemill.storage.table_ref import TableRef
from tidemill.tables.files import obsolete_log_files
from tidemill.text.names import StreamName

app = app_of(MAINTAIN)
HEAD = 12
CHECKPOINTS = (4, 8)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A project whose table `orders` was replaced a dozen times, with a checkpoint of its log after some of them."""
    shop = Shop.make(tmp_path, monkeypatch)
    shop.has_run("a.json")
    for version in range(HEAD + 1):
        rows = pa.table({"n": [version]})
        write_deltalake(table(shop), rows, mode="overwrite" if version else "error")
        if version in CHECKPOINTS:
            DeltaTable(table(shop)).create_checkpoint()
    return shop


def table(shop):
    return Path(shop.target.lake.table(ORDERS).uri)


def reader(shop, name, version, *, committed=True, is_snapshot=False, begin=None):
    """What a reader of the table leaves behind that has planned a first batch up to a version, or committed two.

    The last batch has read nothing new, unless it has a beginning.
    """
    lake = shop.target.lake
    query_id, table_id = str(uuid4()), str(DeltaTable(table(shop)).metadata().id)
    offset = {"sourceVersion": 1, "reservoirId": table_id, "index": -1, "isStartingVersion": is_snapshot}
    files = {"metadata": json.dumps({"id": query_id})}
    for batch, end in enumerate((version if begin is None else begin, version) if committed else (version,)):
        line = json.dumps(offset | {"reservoirVersion": end})
        files[f"offsets/{batch}"] = 'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\nrows:' + line
        if committed:
            files[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    for path, content in files.items():
        file = Path(lake.checkpoint(name, 1).uri()) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    StreamRecords(lake, name).write_manifest(first_manifest({}).with_active(query_id=query_id))


def maintained(shop, *, streams=None, **options):
    known = {stream.name: stream for stream in shop.target.streams()}
    options = {"keep": timedelta(0), **options}
    return maintain(known[ORDERS], shop.target, None, streams=streams or list(known.values()), **options)


def readable(shop):
    """The versions of the table that have all their files."""

    def has_files(version):
        state = DeltaTable(table(shop), version=version)
        return all(
            (table(shop) / path).exists() for path in state.get_add_actions().column("path").to_pylist()
        )

    return [version for version in TableRef.at(table(shop)).log.versions() if has_files(version)]


def test_a_table_that_nobody_reads_keeps_its_newest_version(shop):
    plan = maintained(shop, dry_run=True)
    assert readable(shop) == list(range(HEAD + 1))
    done = maintained(shop)
    assert (plan.outcome, done.outcome, plan.tables[0].files) == ("planned", "maintained", HEAD)
    assert done.tables[0].after.files == 1
    # The log begins with the newest checkpoint.
    assert TableRef.at(table(shop)).log.versions() == list(range(CHECKPOINTS[-1], HEAD + 1))
    assert DeltaTable(table(shop)).to_pyarrow_table().to_pylist() == [{"n": HEAD}]
    assert maintained(shop).outcome == "idle"


@pytest.mark.parametrize("name", [UNIQUE, StreamName("old", "not_declared")])
def test_commits_and_files_from_the_position_of_a_reader_on_stay(shop, name):
    reader(shop, name, 6)
    [own] = maintained(shop).tables
    assert (own.horizon, own.held_by) == (6, (f"{name} has read the versions before 6",))
    assert TableRef.at(table(shop)).log.versions() == list(range(CHECKPOINTS[0], HEAD + 1))
    # Also what the next commit removed: a reader of the change feed would read it.
    assert readable(shop) == list(range(5, HEAD + 1))


def test_the_commits_of_a_readers_last_batch_stay_without_their_files(shop):
    reader(shop, UNIQUE, HEAD, begin=6)
    [own] = maintained(shop).tables
    assert "shop/unique plans its last batch, from version 6 on, once more when it starts" in own.held_by
    assert TableRef.at(table(shop)).log.versions() == list(range(CHECKPOINTS[0], HEAD + 1))
    assert readable(shop) == [HEAD - 1, HEAD]


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_reader_that_repeats_its_first_batch_begins_where_it_began(shop, is_snapshot):
    reader(shop, UNIQUE, 6, committed=False)
    records = StreamRecords(shop.target.lake, UNIQUE)
    if is_snapshot:
        sources = {"rows": SourceRecord(start="snapshot", start_version=6)}
        records.write_manifest(records.manifest().with_active(sources=sources))
    [own] = maintained(shop).tables
    assert own.horizon == (6 if is_snapshot else 0)
    assert readable(shop) == ([6, HEAD] if is_snapshot else list(range(HEAD + 1)))


def test_the_files_of_a_pinned_snapshot_stay_while_a_batch_needs_them(shop):
    known = {stream.name: stream for stream in shop.target.streams()}
    joined = replace(known[UNIQUE], sources={"rows": known[ORDERS].static()})
    reader(shop, UNIQUE, HEAD + 1, committed=False)
    records = StreamRecords(shop.target.lake, UNIQUE)
    offsets = Path(records.checkpoint(1).uri()) / "offsets" / "0"
    offsets.write_text(offsets.read_text().split("\nrows:")[0])
    records.write_pins(Pins(0, {"rows": 5}))
    maintained(shop, streams=[known[ORDERS], joined])
    assert readable(shop) == [5, HEAD]


def test_everything_since_the_oldest_rewind_stays(shop):
    assert maintained(shop, keep=timedelta(days=7)).outcome == "idle"
    assert readable(shop) == list(range(HEAD + 1))


def test_an_operation_of_a_reader_keeps_the_table_as_it_is(shop):
    records = StreamRecords(shop.target.lake, UNIQUE)
    records.write_operation(new_operation("rebuild", {}, command="tidemill rebuild shop/unique", decided={}))
    result = maintained(shop)
    assert result.outcome == "busy"
    assert "rebuild" in result.reason
    assert readable(shop) == list(range(HEAD + 1))


def test_a_log_that_cannot_be_read_from_a_checkpoint_stays(shop):
    log = table(shop) / "_delta_log"
    assert obsolete_log_files(TableRef.at(table(shop)), HEAD)
    assert [key.rpartition("/")[2][:20] for key in obsolete_log_files(TableRef.at(table(shop)), 7)][
        -1
    ] == f"{3:020d}"
    assert obsolete_log_files(TableRef.at(table(shop)), 3) == []
    checkpoint = log / f"{8:020d}.checkpoint.parquet"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(b"damaged")
    assert obsolete_log_files(TableRef.at(table(shop)), HEAD) == []
    checkpoint.write_bytes(content)
    (log / f"{10:020d}.checkpoint.0000000001.0000000002.parquet").write_bytes(content)
    assert obsolete_log_files(TableRef.at(table(shop)), HEAD) == []


@pytest.mark.slow
@pytest.mark.parametrize("versions", [150, pytest.param(1000, marks=pytest.mark.campaign)])
def test_files_and_log_stay_flat_with_a_reader_that_is_behind(shop, versions):
    sizes = []
    for version in range(HEAD + 1, versions):
        write_deltalake(table(shop), pa.table({"n": [version]}), mode="overwrite")
        if version % 10 == 0:
            DeltaTable(table(shop)).create_checkpoint()
        if version % 50 == 49:
            reader(shop, UNIQUE, version - 20)
            after = maintained(shop).tables[0].after
            sizes.append((after.files, after.log_files))
            assert readable(shop) == list(range(version - 21, version + 1))
    # A hundredth commit writes a checkpoint by itself.
    assert {files for files, _ in sizes} == {22}
    assert {log_files for _, log_files in sizes} <= {34, 35}, sizes


def test_the_command_prints_the_plan_and_what_it_has_done(shop):
    reader(shop, UNIQUE, 6)
    plan = CliRunner().invoke(app, ["shop/orders", "--keep", "0s", "--dry-run"])
    assert "kept for shop/unique has read the versions before 6" in plan.output
    question = CliRunner().invoke(app, ["shop/orders", "--keep", "0s"])
    assert (question.exit_code, readable(shop)) == (2, list(range(HEAD + 1)))
    done = json.loads(CliRunner().invoke(app, ["shop/orders", "--keep", "0s", "--yes", "--json"]).stdout)
    assert (done["changed"], done["streams"][0]["outcome"]) == (True, "maintained")
    assert done["streams"][0]["tables"][0]["after"]["files"] == HEAD + 1 - 5


def test_nothing_is_removed_while_a_pipeline_cannot_be_loaded(shop):
    config = shop.root / "tidemill.toml"
    config.write_text(config.read_text().replace("pipelines = [", 'pipelines = ["no_such_module:shop", '))
    result = CliRunner().invoke(app, ["shop/orders", "--keep", "0s", "--yes"])
    assert isinstance(result.exception, ConfigurationError)
    assert "no_such_module" in str(result.exception)
    assert readable(shop) == list(range(HEAD + 1))


def test_the_job_of_a_pipeline_maintains_its_tables_and_records_it(shop):
    [pipeline] = shop.target.pipelines().pipelines.values()
    keys = {ORDERS: AssetKey(["ours", "orders"])}
    job = operation_job(MAINTAIN, pipeline, keys, target=shop.target)
    defs = Definitions(jobs=[job], resources=streaming_resources(shop.target))
    config = {"ops": {"shop__run_maintain": {"config": {"keep": "0s"}}}}
    with DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("shop__maintain").execute_in_process(config, instance=instance)
    [observed] = result.filter_events(lambda event: event.event_type == DagsterEventType.ASSET_OBSERVATION)
    observation = observed.event_specific_data.asset_observation
    assert observation.asset_key == AssetKey(["ours", "orders"])
    assert observation.metadata["tidemill/removed_files"].value == HEAD
    assert readable(shop) == [HEAD]
