"""`tidemill checkpoint`: its output for people and for programs, and its exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint import handmade
from tidemill import cli


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tidemill", "checkpoint", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return command


def test_verify_prints_one_object_with_these_keys(run: Any, tmp_path: Path) -> None:
    status, out, _ = run("verify", "--json", handmade.stateful(tmp_path))
    document = json.loads(out)
    assert status == 0
    assert {
        "schema_version": 1,
        "path": str(tmp_path),
        "query_id": handmade.QUERY_ID,
        "offset_log_versions": [1],
        "commit_log_versions": [1],
        "latest_offset_batch": 3,
        "latest_committed_batch": 3,
        "uncommitted_batches": [],
        "next_start": {"kind": "continue", "batch_id": 4},
        "watermark_ms": 30,
        "sources": [{"index": 0, "kind": "file", "offset": {"logOffset": 3}}],
        "operators": [
            {
                "id": 0,
                "name": "stateStoreSave",
                "partitions": 2,
                "stores": ["default"],
                "provider": "hdfs",
                "version": 4,
            }
        ],
        "findings": [],
        "sound": True,
    }.items() <= document.items()


def test_missing_values_are_null(run: Any, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    status, out, _ = run("verify", "--quick", "--json", tmp_path)
    document = json.loads(out)
    assert (status, document["sound"]) == (0, True)
    for key in ("query_id", "latest_offset_batch", "latest_committed_batch", "watermark_ms"):
        assert document[key] is None


@pytest.mark.parametrize("flags", [[], ["--quick"], ["--json"]])
def test_an_error_is_printed_with_status_1(run: Any, tmp_path: Path, flags: list[str]) -> None:
    handmade.remove(handmade.stateless(tmp_path) / "metadata")
    status, out, _ = run("verify", *flags, tmp_path)
    assert status == 1
    assert "missing-metadata" in out


@pytest.mark.parametrize("command", ["inspect", "verify", "history"])
@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_no_checkpoint_is_status_2(run: Any, tmp_path: Path, command: str, folder: str) -> None:
    status, out, err = run(command, tmp_path / folder)
    assert (status, out) == (2, "")
    assert "is not a checkpoint" in err


def test_inspect_shows_what_the_next_start_does(run: Any, tmp_path: Path) -> None:
    handmade.remove(handmade.stateful(tmp_path) / "commits" / "3")
    status, out, _ = run("inspect", tmp_path)
    assert status == 0
    assert "repeat batch 3" in out
    assert "stateStoreSave" in out
    status, out, _ = run("inspect", "--json", tmp_path)
    document = json.loads(out)
    assert document["next_start"] == {"kind": "repeat_batch", "batch_id": 3}
    assert document["operators"][0]["files"] == 8
    assert document["conf"]["spark.sql.shuffle.partitions"] == "2"


def test_the_content_of_a_file_is_not_markup(run: Any, tmp_path: Path) -> None:
    handmade.stateless(tmp_path, 1)
    handmade.offsets(tmp_path, 0, "[red]x[/]:-", named=True)
    _, out, _ = run("inspect", tmp_path)
    assert "[red]x[/]" in out


def test_history_and_its_last_batches(run: Any, tmp_path: Path) -> None:
    handmade.stateless(tmp_path)
    _, out, _ = run("history", "--json", "--last", "2", tmp_path)
    batches = json.loads(out)["batches"]
    assert [(batch["batch_id"], batch["committed"]) for batch in batches] == [(2, True), (3, True)]
    assert batches[1]["sources"][0]["start"] == {"logOffset": 2}
    assert batches[1]["rows_read"] is None
    assert '{"logOffset": 3}' in run("history", tmp_path)[1]


def test_diff(run: Any, tmp_path: Path) -> None:
    a, b = handmade.stateless(tmp_path / "a", 3), handmade.stateful(tmp_path / "b", 4)
    assert run("diff", a, a)[0] == 0
    status, out, _ = run("diff", "--json", a, b)
    differences = {
        (difference["what"], difference["name"]): (difference["a"], difference["b"])
        for difference in json.loads(out)["differences"]
    }
    assert status == 1
    assert differences["source", "0"] == ({"logOffset": 2}, {"logOffset": 3})
    assert differences["operator", "operator 0"][0] is None
    assert differences["watermark", "next batch"] == (None, 30)
