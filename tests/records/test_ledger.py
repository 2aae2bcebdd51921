"""The ledger: a line per batch, a file per run, replaced as a whole."""

import json
from dataclasses import replace

import pytest

from tidemill.records.batch import BatchRecord
from tidemill.records.ledger import Ledger
from tidemill.text.names import StreamName


def ledger_in(files):
    return Ledger(files, StreamName("shop", "orders"))


@pytest.fixture
def lines(store):
    return ledger_in(store)


def batch(batch_id, run_id, generation=1):
    return BatchRecord(
        batch_id=batch_id, run_id=run_id, generation=generation, query_id="q", started_at="2026-01-01"
    )


def test_lines_are_added_to_the_files_of_their_runs(lines):
    lines.append([batch(0, "a"), batch(1, "a")])
    lines.append([batch(2, "b"), batch(3, "a")])

    assert [line.batch_id for line in lines.lines("a")] == [0, 1, 3]
    assert {line.batch_id for line in lines.lines()} == {0, 1, 2, 3}
    assert sorted(lines.files.names()) == ["a.jsonl", "b.jsonl"]


def test_a_line_that_was_cut_off_is_left_out_and_spoils_no_other(lines):
    lines.append([batch(0, "a")])
    lines.files.replace("a.jsonl", lines.files.read("a.jsonl") + b'{"batch_id": 1, "ru')
    lines.append([batch(1, "a")])

    assert [line.batch_id for line in lines.lines()] == [0, 1]


def test_the_newest_line_of_a_run_and_of_the_latest_run(lines):
    assert lines.newest_line(None) is None
    lines.append([batch(0, "a"), batch(1, "a")])
    lines.append([batch(2, "b")])

    assert lines.newest_line("a").batch_id == 1
    assert lines.newest_line("without lines").batch_id == 2


def test_lines_of_batches_and_batches_without_a_line(lines):
    lines.append([batch(0, "a", generation=1), batch(0, "b", generation=2), batch(2, "b", generation=2)])

    assert [(line.run_id, line.batch_id) for line in lines.lines_of(2, [0, 1, 2])] == [("b", 0), ("b", 2)]
    assert lines.lines_of(2, []) == []
    assert lines.missing(2, after=-1, last_commit=3) == [1, 3]
    assert lines.missing(2, after=3, last_commit=3) == []


def test_a_copy_keeps_the_order_of_the_runs(lines, store):
    copy = ledger_in(store.below("copy"))
    for number, run_id in enumerate(("z", "a")):
        lines.append([batch(number, run_id)])
    copy.copy_from(lines)

    assert copy.newest_line(None).run_id == "a"


def test_what_was_observed_is_kept_and_unknown_in_lines_of_older_versions(lines):
    observed = {"views": {"n": 3, "mean": 1.5, "newest": "2026-01-01 12:00:00", "none": None}}
    lines.append([replace(batch(0, "a"), observed=observed)])
    assert [line.observed for line in lines.lines("a")] == [observed]

    older = json.loads(lines.files.read("a.jsonl"))
    del older["observed"]
    lines.files.replace("a.jsonl", json.dumps(older).encode())
    assert list(lines.lines("a")) == [batch(0, "a")]
    assert batch(0, "a").observed is None
