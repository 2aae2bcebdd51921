"""`tidemill quarantine show`: what feeds refused, from their tables and without a JVM."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tests.support.raising import raises
from tidemill.cli.change.quarantine import app

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def write_quarantine(shop, *refused):
    """Write records as runs do, each in a batch of its own: their text, and the rules that they violate."""
    origin = {
        "file": "a.json",
        "topic": None,
        "partition": None,
        "offset": None,
        "timestamp": None,
        "key": None,
    }
    types = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    schema = pa.schema(
        [
            ("raw", pa.string()),
            ("violated", pa.list_(pa.string())),
            ("origin", pa.struct([(name, types.get(name, pa.string())) for name in origin])),
            ("generation", pa.int32()),
            ("batch_id", pa.int64()),
            ("quarantined_at", pa.timestamp("us", "UTC")),
        ]
    )
    for batch, (raw, violated) in enumerate(refused):
        row = {"raw": raw, "violated": violated, "origin": origin, "generation": 1, "batch_id": batch}
        row["quarantined_at"] = BEGAN + timedelta(minutes=batch)
        path = Path(shop.target.lake.quarantine(ORDERS).uri)
        write_deltalake(path, pa.Table.from_pylist([row], schema=schema), mode="append")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop.make(tmp_path, monkeypatch)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_records_are_counted_by_rule_and_the_newest_are_shown(shop):
    write_quarantine(
        shop, ("old", ["a"]), ("{", ["unparsable"]), ("x" * 3000, ["a", "b"]), (None, ["a"]), ("new", ["b"])
    )
    [stream] = json.loads(run("show", "--limit", "3", "--json").stdout)["streams"]
    assert (stream["records"], stream["rules"]) == (5, {"a": 3, "b": 2, "unparsable": 1})
    assert stream["newest"] == "2026-01-01T00:04:00.000+00:00"
    assert [example["batch_id"] for example in stream["examples"]] == [4, 3, 2]
    assert [example["raw"] for example in stream["examples"]] == ["new", None, "x" * 500 + " ..."]

    output = run("show", "shop/orders", "--limit", "0").stdout
    assert "a 3, b 2, unparsable 1" in output
    assert "new" not in output


def test_a_row_of_the_output_is_shown_next_to_the_records_of_an_earlier_release(shop):
    write_quarantine(shop, ("{", ["unparsable"]))
    path = Path(shop.target.lake.quarantine(ORDERS).uri)
    row = {"raw": '{"id": 1}', "violated": ["small"], "kind": "output", "quarantined_at": BEGAN}
    write_deltalake(path, pa.Table.from_pylist([row]), mode="append", schema_mode="merge")
    [stream] = json.loads(run("show", "--json").stdout)["streams"]
    examples = {example["kind"]: example for example in stream["examples"]}
    assert examples["input"]["origin"]["file"] == "a.json"
    assert (examples["output"]["raw"], examples["output"]["origin"]) == ('{"id": 1}', None)
    assert '{"id": 1}' in run("show").stdout


def test_a_stream_without_refused_records(shop):
    del shop
    [stream] = json.loads(run("show", "--json").stdout)["streams"]
    assert (stream["stream"], stream["records"], stream["newest"], stream["examples"]) == (
        "shop/orders",
        0,
        None,
        [],
    )


@pytest.mark.parametrize("command", ["show", "replay"])
def test_a_selection_without_a_quarantine_is_refused(shop, command):
    del shop
    with raises("quarantine-missing"):
        raise run(command, "shop/unique").exception


def test_a_replay_of_nothing_starts_no_spark_and_asks_nothing(shop):
    del shop
    document = json.loads(run("replay", "--json").stdout)
    assert document["changed"] is False
    assert document["streams"][0]["records"] == 0
