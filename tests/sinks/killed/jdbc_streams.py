"""A stream into Postgres whose run is killed: `python -m tests.sinks.killed.jdbc_streams LAKE LANDING PORT TABLE`."""

import sys

from tests.servers.postgres import PostgresServer
from tests.support.killed import scratch_at
from tidemill import DeltaAppend, Feed, JdbcSink, Json, Pipeline
from tidemill.run.pause_points import pause_point
from tidemill.text.names import StreamName

PRICE = "shop STRING, price BIGINT, seq BIGINT"


class PausedSink(JdbcSink):
    """A sink with a point to kill it at: its transaction has rows, and is not committed."""

    def _copy(self, rows, connection):
        super()._copy(rows, connection)
        pause_point("before-commit", StreamName("shops", "prices"))


def prices_stream(*sinks, **declared):
    feed = Feed("prices", format=Json(PRICE), max_files_per_batch=1)
    return Pipeline("shops").stream(source=feed, sink=list(sinks), name="prices", **declared)(
        lambda prices: prices
    )


def both_sinks(table, kind=JdbcSink):
    """One that appends, one that merges, and a table of the lake."""
    return (
        kind(table, name="log"),
        JdbcSink(f"{table}_now", keys=["shop"], sequence_by="seq"),
        DeltaAppend(),
    )


def main() -> None:
    lake, landing, port, table = sys.argv[1:]
    scratch = scratch_at(lake, landing)
    scratch.databases["default"] = PostgresServer(int(port)).database
    scratch.run(prices_stream(*both_sinks(table, PausedSink)))


if __name__ == "__main__":
    main()
