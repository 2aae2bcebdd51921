"""Compare `tidemill run ads` without new input with plain PySpark that starts its nine queries and finds nothing.

Both are whole processes, run alternately and timed from the outside. The script prints one line of
docs/performance.md.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
BY_HAND = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from by_hand import Baseline
from resources.engine.engine import SparkEngine
from resources.engine.settings import SparkSettings
engine = SparkEngine(SparkSettings(shuffle_partitions=2))
Baseline(engine.new(), landing=Path(sys.argv[2]) / "landing", lake=Path(sys.argv[2]) / "by_hand").run()
engine.stop()
"""


def main() -> None:
    """Measure and print the line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    tidemill = str(Path(sys.executable).with_name("tidemill"))
    with tempfile.TemporaryDirectory() as folder:
        landing = f"{folder}/landing"
        generate = ["demo", "generate", "--out", landing, "--events", "20000", "--files", "4"]
        commands = {
            "ours": [tidemill, "run", "ads", "--landing", landing, "--lake", f"{folder}/lake"],
            "by hand": [sys.executable, "-c", BY_HAND, str(HERE), folder],
        }
        timed([tidemill, *generate])
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 2):
            for name, command in commands.items():
                seconds = timed(command)
                if number > 1:  # the first round processes all input, the second fills the caches of files
                    times[name].append(seconds)
    ratios = [b / a for a, b in zip(times["ours"], times["by hand"], strict=True)]
    print(
        f"ours {statistics.median(times['ours']):.2f} s ({min(times['ours']):.2f} to {max(times['ours']):.2f}), "
        f"by hand {statistics.median(times['by hand']):.2f} s (medians of {rounds}); "
        f"ratio by hand / ours {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )


def timed(command: list[str]) -> float:
    """Run a process and return its seconds."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=HERE.parent)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
