"""`tidemill check`: statuses, exit statuses and output, from what runs leave in a lake, without a JVM."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tidemill.cli.run.check import app
from tidemill.records.stream_records import StreamRecords


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop.make(tmp_path, monkeypatch)


def has_run(shop: Shop) -> None:
    """Write what one run of `orders` leaves behind, its table included."""
    import pyarrow as pa

    shop.has_run("a.json")
    query_id = StreamRecords(shop.target.lake, ORDERS).snapshot().query_id
    properties = CommitProperties(app_transactions=[Transaction(query_id, 0)])
    table = Path(shop.target.lake.table(ORDERS).uri)
    write_deltalake(table, pa.table({"n": pa.array([1], pa.int32())}), commit_properties=properties)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def checks(result, stream: str = "shop/orders") -> dict[str, dict]:
    document = json.loads(result.stdout)
    (one,) = (one for one in document["streams"] if one["stream"] == stream)
    return {check["check"]: check for check in one["checks"]}


def test_a_healthy_stream_passes_and_exits_0(shop):
    has_run(shop)

    result = run("--json")

    assert result.exit_code == 0
    statuses = {name: check["status"] for name, check in checks(result).items()}
    assert statuses == dict.fromkeys(["checkpoint_sound", "exactly_once", "backlog", "quarantine"], "pass")
    assert checks(result)["backlog"]["numbers"]["backlog_files"] == 0


def test_a_stream_that_has_never_run_is_named_as_such(shop):
    has_run(shop)

    document = json.loads(run("--json").stdout)

    assert [stream["never_run"] for stream in document["streams"]] == [False, True]
    assert "shop/unique                    never run" in run().stdout


def test_an_error_exits_1_and_a_selection_leaves_it_out(shop):
    has_run(shop)
    shutil.rmtree(Path(shop.target.lake.table(ORDERS).uri))

    result = run("--json")

    assert result.exit_code == 1
    assert checks(result)["exactly_once"]["status"] == "error"
    assert "The table orders is missing" in checks(result)["exactly_once"]["summary"]
    assert run("--json", "shop/unique").exit_code == 0


def test_a_check_that_cannot_be_evaluated_exits_2(shop, monkeypatch):
    has_run(shop)
    monkeypatch.setattr("tidemill.checks.evaluation.quarantine", lambda _: 1 / 0)

    result = run("--json")

    assert result.exit_code == 2
    assert checks(result)["quarantine"]["status"] == "unknown"


def test_the_table_for_people_has_a_row_per_check(shop):
    has_run(shop)

    lines = run("shop/orders").stdout.splitlines()

    assert [line.split()[-3:] for line in lines if "backlog" in line] == [["pass", "Nothing", "waits."]]
    assert lines[-1].startswith("1 stream: 4 pass; target dev")


def test_neither_spark_nor_dagster_is_started(shop):
    has_run(shop)
    code = (
        "import sys; from datetime import UTC, datetime\n"
        "from tidemill.checks.evaluation import evaluate\n"
        "from tidemill.target.resolve import resolve\n"
        "target = resolve(); now = datetime.now(UTC)\n"
        "results = [result for stream in target.streams() for result in evaluate(stream, target, now)]\n"
        "heavy = {'dagster', 'py4j', 'confluent_kafka', 'pyspark'} & set(sys.modules)\n"
        "print(all(result.passed for result in results), sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "True []"
