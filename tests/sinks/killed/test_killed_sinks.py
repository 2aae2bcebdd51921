"""Runs that are killed at each point of each kind of sink: each row arrives as often as the sink says."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.postgres import PASSWORD, VARIABLE, PostgresRows
from tests.sinks.killed.streams import HALF, NAMES, Places, arguments, declared
from tests.sinks.streams import processed, sales
from tests.support.checked import failed_checks
from tests.support.killed import killed_when
from tests.support.topics import messages, new_topic
from tidemill import FileSink
from tidemill.checkpoint import commit_batches
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of
from tidemill.run.spark.engine import session_of
from tidemill.testing import multiset

pytestmark = pytest.mark.kafka

FIRST, SECOND = [("a", 5), ("b", 3), ("a", 6)], [("c", 7), ("a", 9), ("a", 2)]
NOW = {"a": 9, "b": 3, "c": 7}
"""The amount of each shop that a sink with keys has in the end: the highest."""
ONE_POINT_EACH = (
    "files_in_write",
    "kafka_between_sinks",
    "jdbc_in_write",
    "foreach_in_write",
    "shared_between_sinks",
)


@dataclass(frozen=True)
class Written:
    """What the sinks of the streams have now."""

    places: Places
    scratch: object
    broker: object
    server: object

    def of(self, name):
        """The rows that the sink of a stream has, as shop and amount."""
        match NAMES[name][0]:
            case "files":
                return self._files(name)
            case "kafka":
                return self._messages(name)
            case "jdbc":
                return self._table(name)
            case "foreach":
                return multiset(processed(self.places.folder(name)))
            case "shared":
                return self._shared(name)

    def now(self, name):
        """The rows of the table with keys."""
        return {shop: amount for shop, amount, _ in self._rows(f"{name}_now")}

    def orphans(self, name):
        """The files in the folder of a stream that no reader of its log sees."""
        folder = Path(self.places.folder(name))
        return {str(path) for path in folder.glob("part-*")} - set(FileSink.published(str(folder)))

    def batches(self, name):
        """The batches that the messages of a stream name."""
        return {headers["tidemill-batch"].decode() for row, headers in self._sent() if row["stream"] == name}

    def _files(self, name):
        with session_of(self.scratch.engine) as spark:
            rows = spark.read.schema("shop STRING, amount BIGINT").json(self.places.folder(name)).collect()
        return multiset(tuple(row) for row in rows)

    def _messages(self, name):
        return multiset((row["shop"], row["amount"]) for row, _ in self._sent() if row["stream"] == name)

    def _sent(self):
        return [
            (json.loads(value), headers) for _, value, headers, _ in messages(self.broker, self.places.topic)
        ]

    def _table(self, name):
        return multiset((shop, amount) for shop, amount, _ in self._rows(name))

    def _rows(self, name):
        return PostgresRows(self.server, self.places.schema, name).rows("shop, amount, stream")

    def _shared(self, name):
        table = self.scratch.lake.table(declared(self.places)["all"].name)
        rows = self.scratch.table_rows(table, "shop", "amount", "stream")
        return Counter({row[:2]: count for row, count in rows.items() if row[2] == name})


def expected(name):
    """The rows that a sink has after the kill, and in the end."""
    kind, point = NAMES[name]
    first, second = multiset(FIRST), multiset(SECOND)
    part = multiset(row for row in SECOND if row[1] > HALF)
    if kind in ("files", "jdbc", "shared"):
        return (first + second if point not in ("before-batch", "in-write") else first), first + second
    killed = {"before-batch": Counter(), "in-write": part}.get(point, second)
    again = second if point in ("before-batch", "in-write", "between-sinks") else Counter()
    return first + killed, first + killed + again


@pytest.fixture
def written(scratch, broker, postgres, monkeypatch):
    """An empty lake, a topic and a schema, and what is in them."""
    monkeypatch.setenv(VARIABLE, PASSWORD)
    topic, schema = new_topic(broker, scratch), postgres.new_table("any").schema
    places = Places(scratch.lake.uri, str(scratch.landing), broker.bootstrap, topic, postgres.port, schema)
    Path(places.folder("any")).parent.mkdir(parents=True)
    places.connect(scratch)
    return Written(places, scratch, broker, postgres)


@pytest.mark.parametrize(
    "names",
    [ONE_POINT_EACH, pytest.param(tuple(NAMES), marks=pytest.mark.campaign)],
    ids=["one point each", "every point"],
)
def test_rows_arrive_as_often_as_the_sink_says(scratch, written, tmp_path, names):
    made = declared(written.places)
    streams = {name: made[name] for name in names}

    def run():
        results = scratch.run_all([made["sales"], made["all"], *streams.values()])
        assert [result.error for result in results if result.error is not None] == []

    scratch.arrive(made["sales"], "sales", sales(*FIRST))
    run()
    scratch.run(made["sales"], [sales(*SECOND)])
    points = [f"shops/{name}:{NAMES[name][1]}" for name in names]
    killed_when(arguments(written.places, names), tmp_path, point=" ".join(points), every=len(points))
    for name, stream in streams.items():
        batches = [0, 1] if NAMES[name][1] == "before-ledger" else [0]
        assert list(commit_batches(scratch.checkpoint(stream.name))) == batches, name
        assert written.of(name) == expected(name)[0], f"{name} after the kill"

    run()
    for name, stream in streams.items():
        kind = NAMES[name][0]
        assert written.of(name) == expected(name)[1], name
        if kind == "files":
            assert bool(written.orphans(name)) == (NAMES[name][1] == "in-write"), name
        if kind == "kafka":
            query_id = StreamRecords(scratch.lake, stream.name).snapshot().tail.query_id
            assert written.batches(name) == {f"{query_id}/0", f"{query_id}/1"}, "a repeat has the same header"
        if kind == "jdbc":
            assert written.now(name) == NOW, name
        if kind != "shared":
            assert scratch.rows(stream, "shop", "amount") == multiset([*FIRST, *SECOND]), name
        assert failed_checks(scratch, stream) == [], name
        assert status_of(stream, scratch.target).state == "idle", name
