"""Compare options of the JVM: three hops in mode `local`, with our options and with others.

Our own options come first, so that those of a target take precedence. The processes run alternately over the same
files, and the script compares the last table of each with the input. It prints a table of docs/performance.md.
"""

import argparse
import tempfile
from pathlib import Path

from bench.increment.processes import Processes

OPTIONS = {
    "serial": "-XX:+UseSerialGC",
    "parallel": "-XX:+UseParallelGC",
    "G1": "-XX:+UseG1GC",
    "one-compiler": "-XX:TieredStopAtLevel=1",
    "all-compilers": "-XX:TieredStopAtLevel=4",
}
TARGET = """
[targets.{name}]
lake = "{name}"
landing = "landing"
[targets.{name}.spark.conf]
"spark.driver.extraJavaOptions" = "{options}"
"""


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=25_000)
    arguments.add_argument("--only", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    options = arguments.parse_args()
    config = 'pipelines = ["bench.increment.hops:hops"]\n'
    config += "".join(TARGET.format(name=name, options=OPTIONS[name]) for name in options.only)
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder), config)
        ways = {f"`{OPTIONS[name]}`": processes.tidemill(name, only_new_rows=True) for name in options.only}
        processes.compare(ways, options.rounds, options.rows)


if __name__ == "__main__":
    main()
