"""The start of a classic Spark application, with no conf on a command line and nothing but errors on stderr."""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.engines import class_archive
from tidemill.engines.jars import log_store
from tidemill.engines.quiet import jvm_stderr
from tidemill.storage.object_store import SCHEMES
from tidemill.target.spark_settings import SparkSettings
from tidemill.text.secret import REDACTED_WORDS, Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_EXTENSIONS = "spark.sql.extensions"
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_RENAMES = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
# Compiling again for speed takes more than half of the CPU of a short run, and pays in long ones. With one compiler
# level the code cache would have 48 MB; once it is full, nothing is compiled any more.
_COMPILE_ONCE = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
# Java's own choice on two cores is G1, whose threads compete with the tasks. Without room for classes, loading them
# causes full collections. docs/performance.md has the measurements.
_ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
_FEW_CORES = 2
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_LAST = "SPARK_DIST_CLASSPATH"
# A cluster has its own memory, interface, event log and size of tasks.
_LAPTOP = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Spark keeps what its interface would show, also without one: plans of 1,000 executions, 50 kB or more each.
    "spark.sql.ui.retainedExecutions": "20",
    # Delta computes the state of a table in 50 tasks; on a few cores two do the same in a tenth of the time.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def application_confs(settings: SparkSettings, *, little: bool = False) -> dict[str, str]:
    """Return the confs of a classic application: Delta, its jars, and defaults that suit a laptop or a cluster.

    A target may override each default. Its jars and its extensions are added to ours.

    Args:
        settings: What the target says.
        little: Whether little data waits, so that the JVM ends before compiling for speed would pay.

    Raises:
        ConfigurationError: A variable that holds a secret is not set, or the jars are not available.
    """
    from tidemill.engines.jars import spark_jars

    of_store = store_confs(settings)
    given = {
        key: value.reveal() if isinstance(value, Secret) else value
        for key, value in (of_store | dict(settings.conf)).items()
    }
    ours = [str(jar) for jar in spark_jars()]
    in_this_process = settings.mode == "local"  # and as short as a run
    java_options = [
        # The JVM reads our log settings before Spark's own, which print a page of warnings at every start.
        f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}",
        # When a batch function is stopped, Spark searches its traceback with a regular expression that needs
        # about 1 MB of stack per 1,000 characters. A stack takes memory only where it is used.
        "-Xss32m",
        *(_COMPILE_ONCE if little and in_this_process else ()),
        *(class_archive.options() if in_this_process else ()),
        *(_collector(given.get(_JAVA_OPTIONS, "")) if settings.is_on_this_machine else ()),
        given.get(_JAVA_OPTIONS, ""),
    ]
    return {
        "spark.app.name": "tidemill",
        "spark.master": settings.master,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.scheduler.mode": "FAIR",
        # Spark keeps 100 compiled plans. The batches of a few streams need more, and compile each again every time.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.ui.showConsoleProgress": "false",
        # Spark's own default leaves out the keys of Azure, of Google and of encryption.
        "spark.redaction.regex": f"(?i){REDACTED_WORDS}",
        **(_LAPTOP if settings.is_on_this_machine else {}),
        **({"spark.driver.memory": settings.driver_memory} if settings.driver_memory else {}),
        **given,
        "spark.jars": _added([*ours, *jars_of_store(settings)], given.get("spark.jars")),
        # Classes of the class path can be in the archive; those of `spark.jars`, which a cluster needs, cannot.
        **({_CLASS_PATH: _added(ours, given.get(_CLASS_PATH), between=":")} if in_this_process else {}),
        _EXTENSIONS: _added(["io.delta.sql.DeltaSparkSessionExtension"], given.get(_EXTENSIONS)),
        _JAVA_OPTIONS: " ".join(filter(None, java_options)),
    }


def jars_of_store(settings: SparkSettings) -> list[str]:
    """Return the jars with which Spark reaches S3; none where a target does not."""
    from tidemill.engines.jars import store_jars

    return [] if settings.store is None else [str(jar) for jar in store_jars("s3")]


def store_confs(settings: SparkSettings) -> dict[str, str | Secret]:
    """Return the confs with which Spark reads S3, and writes a lake on it; none where a target has neither.

    Checkpoints are written without renames, which are copies there, and commits of Delta by a conditional PUT: its own
    log store for S3 loses commits of concurrent writers. docs/guarantees.md has both.
    """
    if settings.store is None:
        return {}
    log_stores = {f"spark.delta.logStore.{scheme}.impl": log_store.CLASS for scheme in sorted(SCHEMES)}
    # The manager without renames refuses checkpoints in a folder.
    checkpoints = {_CHECKPOINTS: _WITHOUT_RENAMES} if settings.has_lake_on_store else {}
    return {**settings.store.spark_confs(), **checkpoints, **log_stores}


def _collector(given: str) -> tuple[str, ...]:
    """Return options for a garbage collector; none if the target or the environment chooses one: a JVM refuses two."""
    words = " ".join([given, *(os.environ.get(variable, "") for variable in _JAVA_VARIABLES)])
    if re.search(r"-XX:\+Use\w+GC\b", words):
        return ()
    few = (os.cpu_count() or 1) <= _FEW_CORES
    return ("-XX:+UseSerialGC" if few else "-XX:+UseParallelGC", _ROOM_FOR_CLASSES)


def _added(ours: list[str], given: str | None, between: str = ",") -> str:
    """Return a list of Spark's with what a target adds to it."""
    theirs = [entry.strip() for entry in (given or "").split(between)]
    return between.join(dict.fromkeys([*ours, *filter(None, theirs)]))


def start(confs: Mapping[str, str], *, last: Sequence[str] = ()) -> "SparkSession":
    """Start Spark in this process with these confs and return its first session.

    Args:
        confs: The confs.
        last: The jars at the end of the class path: the archive of classes was made without them, and a JVM ignores an
            archive unless its class path begins with that of the archive.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if confs["spark.master"].startswith("local"):
        # Python workers must run this very Python; otherwise a stateful processor fails without an error message.
        # The machines of a cluster have their own: spark.pyspark.python, or PYSPARK_PYTHON.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkContext._gateway is None:  # noqa: SLF001 - a builder would put its confs on the command line
        with _read_by_spark_submit(confs), _at_end_of_class_path(last), jvm_stderr() as stderr:
            gateway = launch_gateway(popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    builder = SparkSession.builder
    for key, value in confs.items():  # through a socket: the JVM runs, perhaps since an earlier application
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _read_by_spark_submit(confs: Mapping[str, str]) -> Iterator[None]:
    """For the length of a `with` block, let spark-submit read confs from a file that only this user can read.

    pyspark would pass them as `--conf key=value`, which every user of the machine can see in `ps`.
    """
    given = os.environ.get(_SUBMIT_ARGS)
    descriptor, path = tempfile.mkstemp(prefix="tidemill-", suffix=".conf")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in confs.items())
        os.environ[_SUBMIT_ARGS] = (
            f"--load-spark-defaults --properties-file {shlex.quote(path)} {given or 'pyspark-shell'}"
        )
        yield
    finally:
        if given is None:
            os.environ.pop(_SUBMIT_ARGS, None)
        else:
            os.environ[_SUBMIT_ARGS] = given
        Path(path).unlink()


@contextmanager
def _at_end_of_class_path(jars: Sequence[str]) -> Iterator[None]:
    """For the length of a `with` block, let spark-submit put jars behind all others."""
    given = os.environ.get(_LAST)
    try:
        if jars:
            os.environ[_LAST] = ":".join([*([given] if given else []), *jars])
        yield
    finally:
        if given is None:
            os.environ.pop(_LAST, None)
        else:
            os.environ[_LAST] = given


def _escaped(text: str) -> str:
    """Return a string as java.util.Properties reads it back."""
    escapes = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"}
    return "".join(escapes.get(char, f"\\{char}" if char in " =:#!" else char) for char in text)
