"""Compare the pipeline `ads` in Tidemill with the same queries by hand, alternately in one session.

Both read the same files, write Delta tables, use the same confs, and start in a JVM that has run each of them
once already. A round is a new piece of input, and the time of a whole round is compared. The script prints one line
of docs/performance.md: the ratio, the time that Tidemill adds per stream, and the memory of the JVM that both share.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from by_hand import Baseline
from side_by_side import peak_mb

from pipelines.ads import ads
from pipelines.ads.generate import generate
from tidemill.engines.engine import SparkEngine
from tidemill.run.spark.classic import jvm_pid
from tidemill.storage.lake import Lake
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

STREAMS = 9


def main() -> None:
    """Measure and print the line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--events", type=int, default=20_000)
    options = arguments.parse_args()
    engine = SparkEngine(SparkSettings(shuffle_partitions=2))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ours = Scratch(lake=Lake.at(root / "lake"), landing=root / "landing", engine=engine)
        by_hand = Baseline(engine.new(), landing=root / "landing", lake=root / "by_hand")
        times: dict[str, list[float]] = {"ours": [], "by hand": []}
        start = 0
        for number in range(options.rounds + 1):
            start = generate(
                out=root / "landing", events=options.events, seed=7, files=4, start=start, late=0
            ).next_start
            pair = [("ours", lambda: run_ours(ours)), ("by hand", by_hand.run)]
            for name, run in pair if number % 2 else reversed(pair):
                began = time.perf_counter()
                run()
                if number:  # the first round warms up both
                    times[name].append(time.perf_counter() - began)
    memory = peak_mb(jvm_pid(engine.new()))
    engine.stop()
    ratios = [a / b for a, b in zip(times["ours"], times["by hand"], strict=True)]
    added = [(a - b) / STREAMS for a, b in zip(times["ours"], times["by hand"], strict=True)]
    print(
        f"ours {statistics.median(times['ours']):.2f} s, by hand {statistics.median(times['by hand']):.2f} s "
        f"(medians of {options.rounds} rounds of {options.events:,} events); ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}); added per stream {statistics.median(added):.2f} s; "
        f"JVM {memory:,.0f} MB"
    )


def run_ours(scratch: Scratch) -> None:
    """Run the streams one after the other, as by hand."""
    from tidemill.run.execute.pipeline_run import PipelineRun

    run = PipelineRun(
        list(ads), target=scratch.target, engine=scratch.engine, run_id=str(time.time_ns()), max_parallel=1
    )
    failed = [result.error for result in run.iter_results() if result.error]
    if failed:
        raise failed[0]


if __name__ == "__main__":
    main()
