"""The metadata that Dagster receives of a run: names, numbers, and columns of a real Delta table."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetKey, AssetMaterialization, FloatMetadataValue
from deltalake import write_deltalake
from deltalake.schema import ArrayType, Field, MapType, PrimitiveType, StructType

from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.orchestration.assets.metadata import (
    batches_table,
    definition_metadata,
    idle_metadata,
    result_metadata,
    type_string,
)
from tidemill.records.batch import BatchRecord, Late
from tidemill.run.execute.results import StreamResult
from tidemill.storage.lake import Lake
from tidemill.target.target import Target
from tidemill.text.names import StreamName

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WATERMARK = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
NAME = StreamName("ads", "clicks")
ADS = Pipeline("ads")
STREAM = ADS.stream(source=Feed("clicks", Json("n INT")), sink=DeltaAppend(), name="clicks")(
    lambda rows: rows
)


def batch(number: int, **fields) -> BatchRecord:
    known = {
        "rows_read": 10,
        "rows_written": 8,
        "rows_quarantined": 1,
        "rows_dropped": 1,
        "late": Late(2, "groups"),
        "milliseconds": {"addBatch": 400, "triggerExecution": 500},
        "start_offsets": {"events": {"logOffset": number - 1}} if number else {},
        "end_offsets": {"events": {"logOffset": number}},
        "delta_version": number + 1,
    }
    return BatchRecord(
        batch_id=number,
        run_id="r",
        generation=1,
        query_id="q",
        started_at="2026-01-01T11:00:00.000Z",
        **{**known, **fields},
    )


def updated(*batches: BatchRecord, **fields) -> StreamResult:
    return StreamResult(stream=NAME, outcome="updated", batches=batches, seconds=1.5, generation=1, **fields)


LAKE = Lake.at("/no lake")


def test_counts_are_totals_over_the_batches():
    metadata = result_metadata(updated(batch(0), batch(1)), NOW, LAKE)
    assert {name: value for name, value in metadata.items() if isinstance(value, int | float | str)} == {
        "tidemill/rows_read": 20,
        "tidemill/rows_written": 16,
        "tidemill/rows_quarantined": 2,
        "tidemill/rows_dropped": 2,
        "tidemill/late": 4,
        "tidemill/late_unit": "groups",
        "tidemill/batches": 2,
        "tidemill/seconds": 1.5,
        "tidemill/seconds/addBatch": 0.8,
        "tidemill/seconds/triggerExecution": 1.0,
        "tidemill/generation": 1,
    }


def test_what_the_function_observed_is_one_number_per_metric():
    batches = (
        batch(0, observed={"views": {"n": 3, "least": 2, "most": 9, "mean": 4.5, "user": "a", "flag": True}}),
        batch(1, observed=None),
        batch(2, observed={"views": {"n": 2, "least": 5, "most": 7, "mean": 6.0, "user": "b", "flag": True}}),
        batch(3, rows_read=0, observed={"views": {"n": 0, "least": None, "most": None, "mean": 0.0}}),
    )
    views = {"n": "sum", "least": "min", "most": "max", "mean": "last", "user": "max", "flag": "max"}
    metadata = result_metadata(updated(*batches, observations={"views": views}), NOW, LAKE)
    assert {name: value for name, value in metadata.items() if name.startswith("tidemill/observed/")} == {
        "tidemill/observed/views/n": 5,
        "tidemill/observed/views/least": 2,
        "tidemill/observed/views/most": 9,
        "tidemill/observed/views/mean": 6.0,
    }
    materialization = AssetMaterialization(AssetKey("views"), metadata=metadata)
    assert materialization.metadata["tidemill/observed/views/mean"] == FloatMetadataValue(6.0)


def test_dagster_takes_any_name_of_an_observation():
    observed = {"My views: [all], (1)": {"count(1)": 4}, "v" * 100: {"m" * 100: 1}}
    metadata = result_metadata(updated(batch(0, observed=observed)), NOW, LAKE)
    names = {f"tidemill/observed/{name}/{metric}" for name, metrics in observed.items() for metric in metrics}
    assert names <= AssetMaterialization(AssetKey("views"), metadata=metadata).metadata.keys()


def test_offsets_go_from_the_first_batchs_start_to_the_last_ones_end():
    metadata = result_metadata(updated(batch(3), batch(4)), NOW, LAKE)
    assert metadata["tidemill/start_offsets"].value == {"events": {"logOffset": 2}}
    assert metadata["tidemill/end_offsets"].value == {"events": {"logOffset": 4}}


def test_watermark_state_and_version_are_there_where_the_stream_has_them():
    result = updated(
        batch(0),
        watermark_ms=int(WATERMARK.timestamp() * 1000),
        state_rows=7,
        state_bytes=4096,
        table_version=9,
    )
    metadata = result_metadata(result, NOW, LAKE)
    assert metadata["tidemill/watermark"].value == WATERMARK.timestamp()
    assert metadata["tidemill/watermark_lag_seconds"] == 5400.0
    assert metadata["tidemill/state_rows"] == 7
    assert metadata["tidemill/state_bytes"] == 4096
    assert metadata["tidemill/delta_version"] == 9
    assert (
        not {"tidemill/watermark", "tidemill/state_rows"}
        & result_metadata(updated(batch(0)), NOW, LAKE).keys()
    )


def test_an_idle_stream_has_a_position_and_no_counts():
    result = StreamResult(stream=NAME, outcome="idle", reason="nothing new", generation=2, table_version=3)
    assert idle_metadata(result, NOW) == {
        "tidemill/reason": "nothing new",
        "tidemill/delta_version": 3,
        "tidemill/generation": 2,
    }


def test_the_last_ten_batches_are_a_table_newest_first():
    lines = batches_table([batch(number) for number in range(12)]).splitlines()
    assert lines[0].startswith("| batch | started at | read | written |")
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {number}" for number in range(11, 1, -1)]
    assert lines[2] == "| 11 | 2026-01-01T11:00:00.000Z | 10 | 8 | 1 | 2 | 0.5 |  | 12 |"


def test_a_reconstructed_batch_has_empty_cells():
    unknown = batch(0, rows_read=None, rows_written=None, milliseconds={}, delta_version=None)
    assert (
        batches_table([unknown]).splitlines()[2] == "| 0 | 2026-01-01T11:00:00.000Z |  |  | 1 | 2 |  |  |  |"
    )


def test_the_columns_come_from_the_delta_log(tmp_path):
    lake = Lake.at(tmp_path)
    rows = pa.table(
        {
            "id": pa.array(["a"]),
            "at": pa.array([NOW], pa.timestamp("us", "UTC")),
            "tags": pa.array([["x"]]),
            "origin": pa.array([{"file": "f", "offset": 1}]),
        }
    )
    write_deltalake(Path(lake.table(NAME).uri), rows)
    metadata = definition_metadata(STREAM, Target(name="dev", lake=lake))
    schema = metadata["dagster/column_schema"]
    assert "dagster/row_count" not in metadata  # of the moment the definitions were loaded
    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", "string"),
        ("at", "timestamp"),
        ("tags", "array<string>"),
        ("origin", "struct<file:string,offset:long>"),
    ]


def test_rows_and_bytes_come_from_the_statistics_in_the_log(tmp_path):
    for ids in (["a", "b"], ["c"]):
        write_deltalake(tmp_path, pa.table({"id": ids}), mode="append")
    metadata = result_metadata(updated(batch(0), table=str(tmp_path)), NOW, LAKE)
    assert metadata["dagster/row_count"] == 3
    assert metadata["dagster/size_bytes"] == sum(file.stat().st_size for file in tmp_path.glob("*.parquet"))


def test_types_are_written_as_spark_writes_them():
    point = StructType(
        [Field("x", PrimitiveType("double")), Field("ys", ArrayType(PrimitiveType("long"), True))]
    )
    assert type_string(point) == "struct<x:double,ys:array<long>>"
    assert type_string(MapType(PrimitiveType("string"), point, value_contains_null=True)).startswith(
        "map<string,struct<x:"
    )
    assert type_string(PrimitiveType("decimal(10,2)")) == "decimal(10,2)"


def test_a_table_that_cannot_be_read_has_no_columns_and_does_no_harm(tmp_path, caplog):
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text(json.dumps({"protocol": "nonsense"}))
    metadata = result_metadata(updated(batch(0), table=str(tmp_path)), NOW, LAKE)
    assert metadata["dagster/uri"] == tmp_path.as_uri()
    assert not {"dagster/column_schema", "dagster/row_count"} & metadata.keys()
    assert str(tmp_path) in caplog.text


def test_the_lineage_of_a_column_names_all_its_assets_or_is_left_out():
    feed, first, second = AssetKey(["feed", "clicks"]), AssetKey(["kafka", "a"]), AssetKey(["kafka", "b"])
    lineage = {
        "id": (("clicks", "id"),),
        "both": (("clicks", "id"), ("topics", "value")),
        "unknown": (("clicks", "id"), ("elsewhere", "id")),
        "no_asset": (("empty", "id"),),
    }
    inputs = {"clicks": [feed], "topics": [first, second], "empty": []}
    metadata = result_metadata(updated(batch(0), lineage=lineage), NOW, LAKE, inputs)
    deps = metadata["dagster/column_lineage"].deps_by_column
    assert {name: [(dep.asset_key, dep.column_name) for dep in of] for name, of in deps.items()} == {
        "id": [(feed, "id")],
        "both": [(feed, "id"), (first, "value"), (second, "value")],
    }
    assert "dagster/column_lineage" not in result_metadata(updated(batch(0), lineage=lineage), NOW, LAKE)


@pytest.mark.parametrize("name", ["tidemill/rows_read", "tidemill/rows_written", "tidemill/seconds"])
def test_what_the_ui_plots_is_a_number_in_every_run(name):
    metadata = result_metadata(updated(batch(0, rows_read=None, rows_written=None)), NOW, LAKE)
    assert isinstance(metadata[name], int | float)
