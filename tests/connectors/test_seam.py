"""The seam of the connectors: everything about a kind of source is in its connector."""

import ast
import json
from pathlib import Path

import pytest

import tidemill
from tests.support.raising import raises
from tidemill import DeltaSource, Feed, FileSource, KafkaSource, Raw
from tidemill.checkpoint import SourceOffset
from tidemill.connectors.answers import Period
from tidemill.connectors.connector import Connector, Reading
from tidemill.connectors.rate.source import RateSource
from tidemill.connectors.registry import (
    connector_of,
    connector_of_kind,
    kinds,
    recognize,
    recognizer,
    resolved,
)
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source
from tidemill.storage.lake import Lake
from tidemill.target.target import FolderBinding, KafkaCluster, Target, TopicBinding

SOURCES = {
    "KafkaSource",
    "FileSource",
    "DeltaSource",
    "Feed",
    "StreamTable",
    "RateSource",
    "SparkSource",
    "JdbcSource",
}
LIBRARY = Path(tidemill.__file__).parent


class NamedSource(Source):
    kind = "named"

    def describe(self):
        return "rows of a friend"


class NamedConnector(Connector[NamedSource]):
    kind = "named"

    def load(self, source, context, name):
        raise NotImplementedError


def _asked_for_its_class(tree: ast.AST) -> list[int]:
    """Return the lines that ask for the class of a source."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name):
            names = {node.cls.id}
        else:
            continue
        if names & SOURCES:
            lines.append(node.lineno)
    return lines


def test_nobody_outside_the_connectors_asks_for_the_class_of_a_source():
    modules = [path for path in LIBRARY.rglob("*.py") if "connectors" not in path.relative_to(LIBRARY).parts]
    assert len(modules) > 100
    assert not [
        f"{path.relative_to(LIBRARY)}:{line}"
        for path in modules
        for line in _asked_for_its_class(ast.parse(path.read_text(encoding="utf-8")))
    ]


def test_the_search_for_classes_finds_both_forms():
    code = "isinstance(s, Feed | int)\nmatch s:\n    case KafkaSource():\n        pass\nisinstance(s, str)\n"
    assert _asked_for_its_class(ast.parse(code)) == [1, 3]


@pytest.fixture
def target(tmp_path):
    feeds = {"files": FolderBinding(tmp_path / "in"), "topic": TopicBinding(KafkaCluster("b:1"), "t")}
    return Target(name="dev", lake=Lake.at(tmp_path / "lake"), feeds=feeds)


def test_each_kind_of_source_has_a_connector(target):
    sources = [
        DeltaSource(path="/t"),
        FileSource(path="/in", format="text"),
        KafkaSource(subscribe="t"),
        RateSource(),
    ]
    assert [connector_of(source).kind for source in sources] == ["delta", "file", "kafka", "rate"]
    assert {"delta", "file", "jdbc", "kafka", "rate", "spark", "feed"} == set(kinds())
    bound = [resolved(Feed(name, Raw()), target) for name in ("files", "topic")]
    assert [(connector.kind, source.describe()) for connector, source in bound] == [
        ("file", "feed files"),
        ("kafka", "feed topic"),
    ]


def test_a_connector_with_kind_and_load_alone_answers_unknown(target):
    connector, source = NamedConnector(), NamedSource()
    offset = SourceOffset.parse("", "rows", None, '{"page":7}')
    reading = Reading(target=target, name="rows", offset=offset)
    backlog = connector.backlog(source, reading)
    assert (bool(backlog), backlog.is_known, str(backlog)) == (True, False, "uncounted data")
    assert connector.parse(offset) is None
    assert connector.binding(source, target) is None
    assert connector.expiry(source, reading) is None
    assert connector.rows(source, reading, offset) is None
    assert connector.span(source, reading, Period(0, 1)) is None
    assert connector.missing(source, reading) == ()
    assert connector.missing_from_batch(source, reading, offset, None) == ()
    assert [data.path[0] for data in connector.external(source, target)] == ["source"]
    for refused in (lambda: connector.now(source, reading), lambda: connector.start_at(reading, 3)):
        with raises("start-invalid", "Fix: "):
            refused()


def test_the_recorded_kind_decides_whose_position_an_offset_is():
    offset = SourceOffset.parse("", "rows", None, json.dumps({"topic": {"0": 5}}))
    assert recognize(offset).kind == "kafka"
    recorded = {
        kind: recognizer({"rows": SourceRecord(kind=kind)})(offset).kind for kind in ("kafka", "delta")
    }
    assert recorded == {"kafka": "kafka", "delta": "unknown"}
    assert recognizer({})(offset).kind == "kafka"


@pytest.mark.parametrize("kind", ["delta", "file", "kafka", "rate"])
def test_a_connector_parses_its_own_offsets_only(kind):
    delta = {
        "sourceVersion": 1,
        "reservoirId": "t",
        "reservoirVersion": 7,
        "index": -1,
        "isStartingVersion": False,
    }
    offsets = {
        "delta": delta,
        "file": {"logOffset": 3},
        "kafka": {"t": {"0": 1}},
        "rate": {"offset": 1, "timestamp": 2},
    }
    parsed = {
        other: connector_of_kind(kind).parse(SourceOffset.parse("", "rows", None, json.dumps(value)))
        for other, value in offsets.items()
    }
    assert [other for other, position in parsed.items() if position is not None] == [kind]
