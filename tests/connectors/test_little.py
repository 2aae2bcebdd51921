"""Whether little waits is said before Spark starts, and only where it is known."""

import pytest

from tidemill import DeltaAppend, FileSource, Pipeline
from tidemill.connectors.backlog import Backlog, is_little
from tidemill.connectors.kafka.backlog import UnreadMessages
from tidemill.storage.lake import Lake
from tidemill.target.target import KafkaCluster
from tidemill.testing import Scratch

MB = 1 << 20


class Starting:
    """An engine that notes what it is to expect, and starts no Spark."""

    def __init__(self):
        self.little = []

    def expect(self, *, little):
        self.little.append(little)

    def new(self):
        raise RuntimeError("no Spark here")

    def default_parallel(self):
        return 1


@pytest.mark.parametrize(("size", "little"), [(100, True), (31 * MB, True), (33 * MB, False)])
def test_the_size_of_unread_files_decides(tmp_path, size, little):
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(2):
        with (folder / f"{number}.json").open("w") as file:
            file.truncate(size // 2)
    engine = Starting()
    source = FileSource(path=str(folder), format="json", schema="n INT")
    stream = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="rows")(lambda rows: rows)
    scratch = Scratch(lake=Lake.at(tmp_path / "lake"), landing=tmp_path, engine=engine)
    scratch.run_all([stream])
    assert engine.little == [little]


@pytest.mark.parametrize(("messages", "little"), [(1, True), (100_000, True), (100_001, False)])
def test_messages_are_counted_without_asking_the_broker_again(messages, little):
    nobody = UnreadMessages(KafkaCluster(bootstrap="127.0.0.1:1"), {("orders", 0): 0})
    assert is_little([Backlog(messages, "messages", unread=nobody)]) is little


def test_an_unknown_amount_is_not_little():
    assert not is_little([Backlog(1, "versions")])
    assert is_little([Backlog(0, "versions")])
