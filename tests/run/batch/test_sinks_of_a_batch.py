"""The sinks of one micro-batch: their order, what they are given, and which a repeated batch leaves out."""

from dataclasses import dataclass, field

import pytest

from tidemill.definitions.sink import BatchIdentity, SinkContext
from tidemill.run.batch.writer import BatchWriter
from tidemill.sinks.external_sink import ExternalSink

WRITTEN = []


@dataclass(frozen=True)
class Knowing(ExternalSink):
    """A sink that knows its newest batch."""

    newest: int | None = field(default=None, kw_only=True)
    delivery = "exactly once"

    def last_batch(self, context, query_id):
        return self.newest if (context, query_id) == (SinkContext(self.name), "query") else None

    def write(self, rows, batch):
        assert rows == "rows"
        WRITTEN.append((self.name, batch.context.table, batch.identity))


class Records:
    """As much of a stream's records as writing asks for; the lease is asserted before each write."""

    stream = "shop/orders"

    def sink_context(self, sink, _connection):
        return SinkContext(sink)

    def assert_lease(self, epoch):
        assert epoch == 7
        WRITTEN.append("lease")


@pytest.fixture
def written():
    WRITTEN.clear()

    def write(*sinks, repeat):
        writer = BatchWriter(
            records=Records(),
            generation=1,
            epoch=7,
            sinks=sinks,
            fingerprint="plan",
            static_versions={},
            repeat=repeat,
        )
        writer._write("rows", "query", 3)
        return WRITTEN

    return write


SINKS = [Knowing(name="ahead", newest=3), Knowing(name="behind", newest=2), Knowing(name="unknown")]
IDENTITY = BatchIdentity("shop/orders", "query", 3)


def test_each_sink_is_written_in_order_under_the_lease(written):
    names = [sink.name for sink in SINKS]
    assert written(*SINKS, repeat=False) == [
        entry for name in names for entry in ("lease", (name, name, IDENTITY))
    ]


def test_a_repeated_batch_is_not_written_into_a_sink_that_has_it(written):
    assert written(*SINKS, repeat=True) == [
        entry for name in ("behind", "unknown") for entry in ("lease", (name, name, IDENTITY))
    ]
