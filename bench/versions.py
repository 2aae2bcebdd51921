"""Print what the numbers were measured with: the machine, Java, Python, and the packages that are compared."""

import os
import platform
from importlib.metadata import version

import psutil

from tidemill.engines.java import require_java

PACKAGES = ("pyspark", "delta-spark", "dagster", "dagster-pyspark", "tidemill")


def main() -> None:
    """Print the line."""
    machine = f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()}"
    languages = f"Java {require_java().version}, Python {platform.python_version()}"
    print(", ".join([machine, languages, *(f"{name} {version(name)}" for name in PACKAGES)]))


if __name__ == "__main__":
    main()
