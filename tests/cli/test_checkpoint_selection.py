"""`tidemill checkpoint` with a selection: the checkpoints of streams in the lake, without a JVM."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from tests.checkpoint import handmade
from tests.orchestration.shop import ORDERS, UNIQUE, Shop
from tidemill import cli
from tidemill.records.batch import BatchRecord
from tidemill.records.manifest import Manifest, first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.text.names import StreamName


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop.make(tmp_path, monkeypatch)


@pytest.fixture
def run(monkeypatch, capsys):
    """Return the exit status, stdout and stderr of `tidemill checkpoint ...`."""

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tidemill", "checkpoint", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, " ".join(printed.err.split())

    return command


def has_run(shop: Shop, stream: StreamName, *, batches: int = 2, generation: int = 1) -> Path:
    """Write what runs of that many batches leave in the lake; return the checkpoint."""
    lake = shop.target.lake
    first = first_manifest({}).with_active(query_id=handmade.QUERY_ID, ledger_batch=batches - 1)
    generations = tuple(replace(first.active, number=number) for number in range(1, generation + 1))
    StreamRecords(lake, stream).write_manifest(Manifest(generations=generations))
    return handmade.stateful(Path(lake.checkpoint(stream, generation).uri()), batches)


def record(batch: int, *, generation: int = 1, **measures: object) -> BatchRecord:
    ids = {"batch_id": batch, "generation": generation, "query_id": handmade.QUERY_ID}
    return BatchRecord(**ids, run_id=f"run-{generation}", started_at="", **measures)


def test_one_stream(run, shop):
    checkpoint = has_run(shop, ORDERS)

    status, out, err = run("inspect", "shop/orders", "--json")

    document = json.loads(out)
    assert (status, err) == (0, "")
    assert list(document)[:4] == ["schema_version", "target", "stream", "path"]
    assert (document["target"], document["stream"], document["path"]) == (
        "dev",
        "shop/orders",
        str(checkpoint),
    )
    assert document["latest_committed_batch"] == 1
    assert str(checkpoint) in run("inspect", "shop/orders")[1]


def test_a_checkpoint_that_is_named_by_its_folder_has_no_stream(run, shop):
    document = json.loads(run("inspect", has_run(shop, ORDERS), "--json")[1])

    assert (document["target"], document["stream"]) == (None, None)


def test_the_active_generation_is_selected(run, shop):
    has_run(shop, ORDERS)
    second = has_run(shop, ORDERS, generation=2)

    assert json.loads(run("inspect", "shop/orders", "--json")[1])["path"] == str(second)


@pytest.mark.parametrize("selection", ["shop", "shop/*", "shop/orders+", "+shop/unique"])
def test_several_streams(run, shop, selection):
    has_run(shop, ORDERS)
    handmade.remove(has_run(shop, UNIQUE) / "metadata")

    status, out, _ = run("verify", selection, "--json")

    document = json.loads(out)
    assert (status, document["schema_version"]) == (1, 1)
    assert {checkpoint["stream"]: checkpoint["sound"] for checkpoint in document["checkpoints"]} == {
        "shop/orders": True,
        "shop/unique": False,
    }
    output = run("verify", "--quick", selection)[1]
    assert output.index("checkpoints/shop/orders/1") < output.index("checkpoints/shop/unique/1")


def test_a_stream_that_has_never_run(run, shop):
    for command in ("inspect", "verify", "history"):
        status, out, err = run(command, "shop/orders")

        assert (status, out) == (2, "")
        assert err.startswith(f"tidemill: shop/orders: no checkpoint yet in {shop.root}/lake")
        assert err.endswith("tidemill run shop/orders")


def test_a_stream_whose_first_run_ended_before_its_query(run, shop):
    StreamRecords(shop.target.lake, ORDERS).write_manifest(first_manifest({}))

    status, _, err = run("verify", "shop/orders")

    assert (status, "tidemill run shop/orders" in err) == (2, True)


def test_streams_that_have_never_run_are_named_on_stderr(run, shop):
    has_run(shop, ORDERS)

    status, out, err = run("verify", "shop", "--quick", "--json")

    assert (status, json.loads(out)["stream"]) == (0, "shop/orders")
    assert "shop/unique: no checkpoint yet" in err


def test_a_missing_checkpoint(run, shop):
    checkpoint = has_run(shop, ORDERS)
    checkpoint.rename(checkpoint.with_name("moved"))

    status, out, err = run("verify", "shop/orders")

    assert (status, out) == (2, "")
    assert err.startswith(f"tidemill: shop/orders: {checkpoint} is not a checkpoint")
    assert "`tidemill status shop/orders`" in err


@pytest.mark.usefixtures("shop")
def test_an_unknown_name(run):
    status, out, err = run("verify", "shop/order")

    assert (status, out) == (2, "")
    assert "matches no stream. Did you mean shop/orders?" in err


@pytest.mark.usefixtures("shop")
def test_a_path_that_does_not_exist_is_not_a_selection(run):
    status, _, err = run("verify", "lake/checkpoints/shop/orders/1")

    assert status == 2
    assert "lake/checkpoints/shop/orders/1 is not a checkpoint: the folder does not exist" in err


def test_a_folder_takes_precedence_over_a_selection_of_the_same_name(run, shop, monkeypatch):
    has_run(shop, ORDERS)
    handmade.stateless(shop.root / "elsewhere" / "shop")
    monkeypatch.chdir(shop.root / "elsewhere")

    assert json.loads(run("inspect", "shop", "--json")[1])["path"] == "shop"


def test_another_lake(run, shop, tmp_path):
    checkpoint = has_run(shop, ORDERS)
    status, _, err = run("inspect", "shop/orders", "--lake", tmp_path / "other")
    assert (status, f"no checkpoint yet in {tmp_path}/other" in err) == (2, True)
    assert err.endswith(f"tidemill run shop/orders --lake {tmp_path}/other")
    flags = ("--lake", tmp_path / "other", "--landing", tmp_path)
    assert run("verify", "shop/orders", *flags)[2].endswith(" ".join(map(str, flags)))
    (shop.root / "lake").rename(tmp_path / "other")

    document = json.loads(run("inspect", "shop/orders", "--lake", tmp_path / "other", "--json")[1])

    assert document["path"] == str(checkpoint).replace("/lake/", "/other/")


@pytest.mark.parametrize(
    ("transactions", "code"),
    [
        ([(handmade.QUERY_ID, 5)], "sink-ahead"),
        ([(handmade.QUERY_ID, 0)], "sink-behind"),
        ([], "sink-behind"),
    ],
)
def test_the_table_of_the_stream_is_compared_with_its_checkpoint(run, shop, transactions, code):
    has_run(shop, ORDERS, batches=2)
    write_deltalake(
        str(shop.target.lake.table(ORDERS)),
        pa.table({"n": [1]}),
        commit_properties=CommitProperties(app_transactions=[Transaction(*pair) for pair in transactions]),
    )
    for level in ([], ["--quick"]):
        status, out, _ = run("verify", "shop/orders", "--json", *level)

        assert (status, [finding["code"] for finding in json.loads(out)["findings"]]) == (1, [code])


def test_history_has_rows_and_seconds_from_the_ledger(run, shop):
    has_run(shop, ORDERS, batches=3, generation=2)
    measures = {
        "rows_read": 1200,
        "rows_written": 1100,
        "milliseconds": {"addBatch": 2000, "triggerExecution": 2500},
        "observed": {"views": {"n": 3, "newest": None}},
    }
    StreamRecords(shop.target.lake, ORDERS).ledger.append(
        [
            record(0, rows_read=9, rows_written=9),  # of an earlier generation
            record(0, generation=2, **measures),
            record(1, generation=2, rows_written=7, reconstructed=True),
        ]
    )

    status, out, _ = run("history", "shop/orders", "--json")

    document = json.loads(out)
    assert (status, document["target"], document["stream"]) == (0, "dev", "shop/orders")
    keys = ("batch_id", "rows_read", "rows_written", "seconds", "observed")
    assert [tuple(batch[key] for key in keys) for batch in document["batches"]] == [
        (0, 1200, 1100, 2.5, measures["observed"]),
        (1, None, 7, None, None),
        (2, None, None, None, None),
    ]
    lines = run("history", "shop/orders")[1].splitlines()
    assert lines[0].split()[-3:] == ["Rows", "Seconds", "Observed"]
    assert lines[1].split()[-6:] == ["1,200", "2.5", "views.n", "3,", "views.newest", "null"]


def test_history_takes_one_checkpoint(run, shop):
    has_run(shop, ORDERS)
    has_run(shop, UNIQUE)

    status, out, err = run("history", "shop")

    assert (status, out) == (2, "")
    assert err == "tidemill: shop selects 2 checkpoints (shop/orders, shop/unique). Fix: name one stream."


def test_diff_of_two_streams(run, shop):
    a, b = has_run(shop, ORDERS, batches=2), has_run(shop, UNIQUE, batches=3)

    status, out, _ = run("diff", "shop/orders", "shop/unique", "--json")

    document = json.loads(out)
    assert (status, document["same"]) == (1, False)
    assert (document["target"], document["a"], document["b"]) == ("dev", str(a), str(b))
    assert run("diff", "shop/orders", a)[0] == 0
