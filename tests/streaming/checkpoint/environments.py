"""Pythons with some version of Spark: our own, and one with Spark 3.5 that is made when it is first asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from resources.jars import spark_jars
from resources.jars.location import cache_root

OURS = ".".join(pyspark.__version__.split(".")[:2])
OLD = "3.5"
_LOCK = Path(__file__).with_name("spark35.lock")


def spark(version: str) -> tuple[str, str]:
    """A Python with that Spark, and the jars that its sessions take, joined by commas.

    Raises:
        ValueError: there is no environment for that version.
    """
    if version == OURS:
        return sys.executable, ",".join(str(jar) for jar in spark_jars())
    if version == OLD:
        return str(_old()), ""
    raise ValueError(f"There are environments for Spark {OURS} and {OLD}, not for {version}.")


def make(into: Path, *arguments: str, version: str = OURS, **environment: str) -> None:
    """Makes checkpoints with that Spark: `make.py` in a process of its own."""
    python, jars = spark(version)
    done = subprocess.run(
        [python, str(Path(__file__).with_name("make.py")), str(into), *arguments],
        env={**os.environ, "TIDEMILL_TEST_JARS": jars, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _old() -> Path:
    """The Python of the environment with Spark 3.5, in the cache beside the jars."""
    place = cache_root() / f"spark-{OLD}"
    python, ready = place / "bin" / "python", place / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        # pyspark comes as source: what builds it, the last in the lock, is there before it.
        builder = place / "builder.lock"
        builder.write_text(_LOCK.read_text()[_LOCK.read_text().index("setuptools==") :])
        for lock in (builder, _LOCK):
            options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-build-isolation"]
            subprocess.run([str(python), "-m", "pip", "install", *options, "-r", str(lock)], check=True)
        ready.touch()
    return python
