"""Python environments with a version of Spark: our own, and one with Spark 3.5 that is created on first use."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tidemill.cache import cache_root
from tidemill.engines.jars import spark_jars

OURS = ".".join(pyspark.__version__.split(".")[:2])
OLD = "3.5"
_LOCK = Path(__file__).with_name("spark35.lock")


def spark(version: str) -> tuple[str, str]:
    """Return a Python with that version of Spark, and the jars of its sessions, separated by commas.

    Raises:
        ValueError: There is no environment for that version.
    """
    if version == OURS:
        return sys.executable, ",".join(str(jar) for jar in spark_jars())
    if version == OLD:
        return str(_old()), ""
    raise ValueError(f"There are environments for Spark {OURS} and {OLD}, not for {version}.")


def make(into: Path, *arguments: str, version: str = OURS, **environment: str) -> None:
    """Create checkpoints with that version of Spark: run `make.py` in its own process.

    Raises:
        RuntimeError: `make.py` failed.
    """
    python, jars = spark(version)
    process = subprocess.run(
        [python, str(Path(__file__).with_name("make.py")), str(into), *arguments],
        env={**os.environ, "TIDEMILL_TEST_JARS": jars, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RuntimeError(process.stderr[-3000:])


def _old() -> Path:
    """Return the Python of the environment with Spark 3.5, in the cache beside the jars."""
    environment = cache_root() / f"spark-{OLD}"
    python, ready = environment / "bin" / "python", environment / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        # pyspark is a source distribution: its build tool, the last entry of the lock, is installed first.
        builder = environment / "builder.lock"
        builder.write_text(_LOCK.read_text()[_LOCK.read_text().index("setuptools==") :])
        for lock in (builder, _LOCK):
            options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-build-isolation"]
            subprocess.run([str(python), "-m", "pip", "install", *options, "-r", str(lock)], check=True)
        ready.touch()
    return python
