"""Measure a small increment of a stream with much state, by the state store.

A deduplication keeps all keys; an increment has 10,000 rows, half of them with new keys. The script prints a table of
docs/performance.md: the time of an increment with each store, and its ratio to the default, RocksDB with a changelog.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from side_by_side import Work, compare, median, peak, print_header, print_row, ratios, work

from tidemill import DeltaAppend, DeltaSource, Pipeline, QueryOptions

_START_MICROS = 1_767_225_600_000_000


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    arguments.add_argument("--rows", type=int, default=10_000)
    arguments.add_argument("--stores", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = arguments.parse_args()
    print_header(f"{options.rows:,} rows", "store", "time", "ratio", "of CPU", "memory")
    ways = {name: WAYS[name] for name in options.stores}
    for keys in options.keys:

        def arrive(root: Path, number: int, keys: int = keys) -> None:
            half = options.rows // 2
            first = keys + (number - 1) * half
            rows(root, range(keys) if not number else [*range(half), *range(first, first + half)])

        runs = compare(ways, arrive, rounds=options.rounds, memory="2g")
        base = next(iter(runs.values()))
        for name, those in runs.items():
            print_row(
                f"{keys:,} keys",
                *(name, median(those), ratios(those, base), ratios(those, base, "cpu"), peak(those)),
            )


def rows(root: Path, keys) -> None:  # noqa: ANN001
    """Append rows to the table that all ways read; no time is so late that a key would be forgotten."""
    columns = {
        "key": pa.array([f"key-{key:012}" for key in keys]),
        "at": pa.array([_START_MICROS] * len(keys), pa.timestamp("us", "UTC")),
    }
    write_deltalake(str(root / "rows"), pa.table(columns), mode="append")


def deduplicated(given: Work, options: QueryOptions) -> Callable[[], object]:
    """Return a function that deduplicates what has arrived."""
    scratch = given.scratch()
    source = DeltaSource(path=str(given.root / "rows")).with_watermark("at", "1 day")
    declare = Pipeline("bench").stream(source=source, sink=DeltaAppend(), query=options, name="unique")
    stream = declare(lambda rows: rows.dropDuplicatesWithinWatermark(["key"]))
    return lambda: scratch.run(stream)


WAYS = {
    "RocksDB with changelog": lambda given: deduplicated(given, QueryOptions()),
    "HDFS-backed": lambda given: deduplicated(given, QueryOptions(state_store="hdfs")),
}

if __name__ == "__main__":
    work(WAYS) or main()
