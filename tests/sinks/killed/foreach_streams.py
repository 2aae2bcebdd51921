"""A stream into a writer whose run is killed: `python -m tests.sinks.killed.foreach_streams LAKE LANDING LOG`."""

import json
import sys
from pathlib import Path

from tests.sinks.killed.kafka_streams import sales_stream
from tests.support.killed import scratch_at
from tidemill import DeltaAppend, ForeachSink


class Log:
    """A writer that appends its calls to a file, and cannot process the shop `bad`."""

    def __init__(self, path):
        self.path = path

    def note(self, *call):
        with Path(self.path).open("a") as file:
            file.write(f"{json.dumps(call)}\n")

    def open(self, partition_id, epoch_id):
        self.note("open", partition_id, epoch_id)
        return True

    def process(self, row):
        if row.shop == "bad":
            raise ValueError("no such shop")
        self.note("process", row.shop, row.amount)

    def close(self, error):
        self.note("close", str(error))


class Closed(Log):
    """A writer that takes no partition."""

    def open(self, _partition_id, _epoch_id):
        return False


def logged_stream(path):
    return sales_stream(ForeachSink(Log(path)), DeltaAppend())


def main() -> None:
    lake, landing, path = sys.argv[1:]
    scratch_at(lake, landing).run(logged_stream(path))


if __name__ == "__main__":
    main()
