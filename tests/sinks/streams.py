"""A stream of sales into the sinks of a test, and a writer that notes its calls."""

import json
from pathlib import Path

from tidemill import Feed, Json, Pipeline

SALE = "shop STRING, amount BIGINT"


def sales_stream(*sinks, function=lambda sales: sales, **declared):
    feed = Feed("sales", format=Json(SALE), max_files_per_batch=1)
    return Pipeline("shops").stream(source=feed, sink=list(sinks), name="sales", **declared)(function)


def sales(*rows):
    return [{"shop": shop, "amount": amount} for shop, amount in rows]


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


def processed(path):
    """The rows that such a writer was given, from its file."""
    calls = map(json.loads, Path(path).read_text().splitlines()) if Path(path).exists() else ()
    return [tuple(call[1:]) for call in calls if call[0] == "process"]
