"""Spark's classes in an archive that a JVM maps at its start, instead of loading and verifying each of them.

An archive belongs to a Java, a pyspark and a set of jars. It is made once, by a JVM that runs small streams and writes
the classes that it has loaded when it ends (`-XX:ArchiveClassesAtExit`, JEP 350), and is kept in the cache, next to
the jars. A JVM checks an archive itself; one of another Java or with other jars is ignored.
"""

import hashlib
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tidemill.cache import cache_root
from tidemill.engines.installed import pyspark_folder
from tidemill.engines.jars.sets import SPARK
from tidemill.engines.java import Java, find_java

_TRAINING = "tidemill.engines.archive_training"
_SECONDS = 600
_NEW_LOG_TAG = (24,)  # since this Java the messages about archives have another tag


def archive() -> Path | None:
    """Return the file of the archive, whether it exists or not; None without a Java."""
    java = find_java()
    return None if java is None else _archive_of(java)


def _archive_of(java: Java) -> Path:
    identity = "\n".join([java.version, str(java.path.resolve()), str(pyspark_folder()), SPARK.folder().name])
    return _folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def options() -> tuple[str, ...]:
    """Return the options of a JVM that uses the archive; none where it was not made."""
    java = find_java()
    if java is None or not (path := _archive_of(java)).is_file():
        return ()
    # An archive that does not fit is only ignored, and says so in messages that would be printed.
    tags = ("aot", "cds") if java.numbers >= _NEW_LOG_TAG else ("cds", "cds+dynamic")
    return (shlex.quote(f"-XX:SharedArchiveFile={path}"), *(f"-Xlog:{tag}=off" for tag in tags))


def make(console: Console | None = None) -> Path | None:
    """Make the archive unless it is there, and return it; None where it cannot be made, which costs time only.

    Archives of environments that no longer exist are removed.
    """
    path = archive()
    if path is None or path.is_file():
        return path
    console = console or Console(stderr=True)
    started = time.monotonic()
    console.print(f"Archiving the classes of Spark, once, into {path}", soft_wrap=True, markup=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned()
        with tempfile.TemporaryDirectory(prefix=".make-", dir=path.parent) as work:
            made = Path(work) / path.name
            with console.status("running small streams"):
                _train(made)
            path.with_suffix(".home").write_text(f"{pyspark_folder()}\n", encoding="utf-8")
            made.replace(path)
    except (OSError, subprocess.SubprocessError) as error:
        console.print(f"Spark starts without an archive: {error}", soft_wrap=True, markup=False)
        return None
    console.print(f"Archived in {time.monotonic() - started:.0f} s")
    return path


def _train(into: Path) -> None:
    """Run the training in a process of its own, whose JVM writes the archive when it ends."""
    command = [sys.executable, "-m", _TRAINING, str(into)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    if not into.is_file():
        reasons = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise FileNotFoundError(f"the JVM has not written {into.name} ({reasons[0]})")


def _remove_abandoned() -> None:
    for record in _folder().glob("*.home"):
        if not Path(record.read_text(encoding="utf-8").strip()).exists():
            record.with_suffix(".jsa").unlink(missing_ok=True)
            record.unlink()


def _folder() -> Path:
    return cache_root() / "classes"
