"""The Java that would run Spark, and whether Spark runs on it, found without starting a JVM.

Standard library only, and nothing from this repository at import: `make` runs this file with the bare system Python,
before there is a virtual environment.

Sources: Spark 4.2 runs on Java 17, 21 and 25 (Spark overview). G1 of Java 22 up to 25.0.2 may move objects
that native code holds, which corrupts zstd-compressed Parquet on its way to disk (JDK-8377811, SPARK-55852).
Spark's launcher asks for the module jdk.incubator.vector.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST_MAJOR = 17
CORRUPTING = ((22,), (25, 0, 3))
"""The first Java whose G1 pins regions (JEP 423), and the first one in which that no longer corrupts data."""
NEEDED_MODULE = "jdk.incubator.vector"
PROBE_SECONDS = 20
"""`java -version` takes 0.1 s; a machine that needs longer has another problem."""

NEEDED = "Spark needs Java 17, 21 or 25 (from 25.0.3)"
HOW_TO_GET = (
    "Debian, Ubuntu: sudo apt install openjdk-17-jre-headless (Debian 13: openjdk-21-jre-headless); "
    "macOS: brew install --cask temurin@21; SDKMAN: sdk install java"
)


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java.

    Attributes:
        path: The `java` program, as Spark's launcher would call it.
        version: Its version as it reports it, for example `17.0.15` or `1.8.0_402`.
        modules: Its modules, if its `release` file lists them; else None.
    """

    path: Path
    version: str
    modules: frozenset[str] | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version for comparison; `1.8.0_402` is (8, 0, 402)."""
        numbers = tuple(int(part) for part in re.findall(r"\d+", self.version.partition("+")[0]))
        return numbers[1:] if numbers[:1] == (1,) else numbers


def find_java(environ: Mapping[str, str] | None = None) -> Java | None:
    """Return the Java that Spark's launcher would use: that of JAVA_HOME if it is set, else `java` on PATH.

    A `java` that cannot report its version is none; macOS has such a placeholder if no Java is installed.
    """
    path = _launcher(os.environ if environ is None else environ)
    if path is None:
        return None
    return _from_release_file(path) or _from_probe(path)


def complaint(java: Java | None, environ: Mapping[str, str] | None = None) -> str | None:
    """Return one line: the fault of this Java, what Spark needs and how to get it; None if Spark runs on it."""
    fault = _absent(os.environ if environ is None else environ) if java is None else _unfit(java)
    return f"{fault}; {NEEDED}. {HOW_TO_GET}." if fault else None


def require_java() -> Java:
    """Return the Java that Spark would use.

    Raises:
        ConfigurationError: There is none, or Spark does not run on it.
    """
    java = find_java()
    fault = complaint(java)
    if java is None or fault:
        from tidemill.errors import ConfigurationError

        raise ConfigurationError(fault or _absent(os.environ), code="java-missing")
    return java


def _launcher(environ: Mapping[str, str]) -> Path | None:
    if home := environ.get("JAVA_HOME"):
        path = shutil.which("java", path=str(Path(home) / "bin"))
    else:
        path = shutil.which("java", path=environ.get("PATH", os.defpath))
    return Path(path) if path else None


def _from_release_file(java: Path) -> Java | None:
    # Every JDK and JRE since 8 has this file in its home, which links such as /usr/bin/java lead to.
    try:
        release = (java.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = dict(re.findall(r'^(\w+)="([^"]*)"', release, flags=re.MULTILINE))
    if not re.match(r"\d", fields.get("JAVA_VERSION", "")):
        return None
    modules = frozenset(fields["MODULES"].split()) if "MODULES" in fields else None
    return Java(java, fields["JAVA_VERSION"], modules)


def _from_probe(java: Path) -> Java | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d[^"]*)"', done.stderr + done.stdout)
    return Java(java, version[1]) if version else None


def _absent(environ: Mapping[str, str]) -> str:
    if home := environ.get("JAVA_HOME"):
        return f"No working Java: JAVA_HOME is {home}, which has no bin/java that reports its version"
    return "No working Java: JAVA_HOME is not set and no java on PATH reports its version"


def _unfit(java: Java) -> str | None:
    head = f"Found Java {java.version} at {java.path}"
    first, fixed = CORRUPTING
    if java.numbers < (OLDEST_MAJOR,):
        return f"{head}: too old"
    if first <= java.numbers < fixed:
        return f"{head}: its garbage collector can corrupt data (JDK-8377811)"
    if java.modules is not None and NEEDED_MODULE not in java.modules:
        return f"{head}: a reduced runtime without the module {NEEDED_MODULE}"
    return None


if __name__ == "__main__":
    sys.exit(complaint(find_java()))
