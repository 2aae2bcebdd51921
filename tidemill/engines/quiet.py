"""What Spark and pyspark print on stderr although nothing is wrong, silenced where it comes from.

Two lines about the log level are silenced in log4j2.properties.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

# Spark's launcher asks for an incubator module, and Java has no option against the warning about it.
_START_LINES = (b"WARNING: Using incubator modules: jdk.incubator.vector",)
# The Python worker that reads the schemas of a stateful processor prints its steps, with an empty line after each.
_STATEFUL_WORKER = b"Streaming TransformWithStateInPandas Python worker"
_STDERR = 2


def silence_query_contexts() -> None:
    """Keep pyspark from printing each failed analysis as JSON with the JVM's stack, about 10 kB.

    The exception that it raises has the same message, and a run reports it.
    """
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def jvm_stderr() -> Iterator[int]:
    """Give a file descriptor for the stderr of a JVM that starts in the `with` block.

    Its lines go to the stderr of this process as it is at that time, which Dagster redirects per run.
    """
    reader, writer = os.pipe()
    Thread(target=_forward, args=(reader,), name="jvm-stderr", daemon=True).start()
    try:
        yield writer
    finally:
        os.close(writer)


def _forward(reader: int) -> None:
    with open(reader, "rb", buffering=0) as pipe:
        rest, noise = b"", False
        while chunk := pipe.read(65_536):
            *lines, rest = (rest + chunk).split(b"\n")
            kept = []
            for line in lines:
                noise = _is_noise(line.strip(), after_noise=noise)
                if not noise:
                    kept.append(line + b"\n")
            _write(b"".join(kept))
        _write(rest)


def _is_noise(line: bytes, *, after_noise: bool) -> bool:
    return line in _START_LINES or _STATEFUL_WORKER in line or (after_noise and not line)


def _write(content: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more; the JVM's pipe must be emptied all the same
        while content:
            content = content[os.write(_STDERR, content) :]
