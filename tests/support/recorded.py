"""A function for a `BatchSink` that appends what it gets to a file, in whichever process it runs."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidemill import BatchSink
from tidemill.testing import multiset


@dataclass(frozen=True)
class Call:
    """One call of the function: the batch, and its rows as a multiset."""

    stream: str
    query_id: str
    batch_id: int
    rows: Counter


def recording(path: Path, *columns: str, name: str = "record") -> BatchSink:
    """A sink that records these columns of its rows."""
    return BatchSink(partial(_record, str(path), columns), name=name)


def calls(path: Path) -> list[Call]:
    """The calls so far, the first one first."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        Call(stream, query, batch, multiset(rows)) for stream, query, batch, rows in map(json.loads, lines)
    ]


def _record(path, columns, rows, batch):
    values = [list(row) for row in rows.select(*columns).collect()]
    line = json.dumps([batch.stream, batch.query_id, batch.batch_id, values])
    with Path(path).open("a") as file:
        file.write(f"{line}\n")
