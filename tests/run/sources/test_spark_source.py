"""Sources that Tidemill knows nothing about, by their format and as a Python data source."""

import pytest

from tests.checkpoint.recognized import verify
from tests.support.checked import failed_checks
from tests.support.line_source import LineSource
from tests.support.raising import raises
from tidemill import DeltaAppend, Pipeline, SparkSource
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of
from tidemill.testing import multiset


def test_a_python_data_source_is_read_once_run_after_run(scratch, tmp_path, monkeypatch):
    monkeypatch.setenv("LINES", str(tmp_path))
    path = tmp_path / "lines.txt"
    source = SparkSource(format=LineSource, options={"path": "${LINES}/lines.txt"})
    lines = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="lines")(lambda rows: rows)
    path.write_text("a\nb\nc\n")
    (result,) = scratch.run(lines)
    assert [batch.rows_read for batch in result.batches] == [2, 1]
    assert scratch.run(lines)[0].outcome == "idle"
    with path.open("a") as file:
        file.write("c\n")
    scratch.run(lines)
    assert scratch.rows(lines) == multiset([("a",), ("b",), ("c",), ("c",)])

    status = status_of(lines, scratch.target)
    assert status.state == "idle"
    assert "Spark source lines has no backlog without Spark" in status.polls[0]
    assert verify(StreamRecords(scratch.lake, lines.name).snapshot().checkpoint, level="full").sound
    assert failed_checks(scratch, lines) == []


@pytest.mark.parametrize(
    ("declared", "code", "value"),
    [
        ({"format": "socket"}, "source-endless", "files or a topic"),
        ({"format": "rate"}, "source-endless", "RateSource"),
        ({"format": "kafka"}, "source-known", "KafkaSource"),
        ({"format": "parquet"}, "source-known", "FileSource"),
        ({"format": "jdbc"}, "snapshot-not-streamed", "JdbcSource"),
        ({"format": "pubsub", "options": {"api_key": "abc"}}, "secret-literal", "${API_KEY}"),
        ({"format": ""}, "argument-invalid", "Python data source"),
        ({"format": "pubsub", "options": {"rows": 3}}, "argument-invalid", "as a string"),
    ],
)
def test_what_cannot_be_declared_is_refused_with_the_way_around(declared, code, value):
    with raises(code, value):
        SparkSource(**declared)


def test_a_variable_that_is_not_set_is_named(scratch):
    source = SparkSource(format="rate-per-shop", options={"token": "${SHOP_TOKEN}"})
    rows = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="rows")(lambda rows: rows)
    with raises("variable-missing", "SHOP_TOKEN", "option 'token' of Spark source rate-per-shop"):
        scratch.run(rows)
