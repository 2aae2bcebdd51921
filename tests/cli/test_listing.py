"""`tidemill list`: the definitions, as they are."""

import json

import pytest
from typer.testing import CliRunner

from tests.orchestration.shop import Shop
from tidemill.cli.run.listing import app


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop.make(tmp_path, monkeypatch)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_each_stream_with_what_it_reads_and_writes(shop):
    document = json.loads(run("--json").stdout)

    assert (document["schema_version"], document["target"]) == (1, "dev")
    orders, unique = document["streams"]
    assert orders.pop("declared_at").endswith(".py:7")
    assert orders == {
        "stream": "shop/orders",
        "description": "Every order.",
        "sources": [
            {
                "name": "events",
                "reads": "feed orders",
                "streaming": True,
                "upstream": None,
                "binding": str(shop.root / "landing/orders"),
            }
        ],
        "sinks": [
            {
                "name": "main",
                "kind": "DeltaAppend",
                "delivery": "exactly once",
                "table": str(shop.root / "lake/tables/shop/orders"),
            }
        ],
        "owners": ["team:shop"],
        "tags": {},
    }
    assert unique["sources"][0]["upstream"] == "shop/orders"


@pytest.mark.usefixtures("shop")
def test_a_selection():
    assert [stream["stream"] for stream in json.loads(run("shop/unique", "--json").stdout)["streams"]] == [
        "shop/unique"
    ]
    assert len(json.loads(run("shop/orders+", "--json").stdout)["streams"]) == 2
    assert len(json.loads(run("--json", "--exclude", "shop/orders").stdout)["streams"]) == 1


@pytest.mark.usefixtures("shop")
def test_flags_bind_feeds_and_replace_the_lake():
    document = json.loads(run("shop/orders", "--json", "--kafka", "k:9092", "--lake", "/l").stdout)

    (stream,) = document["streams"]
    assert stream["sources"][0]["binding"] == "kafka://k:9092/orders"
    assert stream["sinks"][0]["table"] == "/l/tables/shop/orders"


@pytest.mark.usefixtures("shop")
def test_the_table_for_people():
    result = run()

    assert result.exit_code == 0
    assert "shop/unique" in result.stdout
    assert "2 streams, target dev" in " ".join(result.stdout.split())
