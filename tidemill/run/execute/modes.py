"""What suits a mode of low latency, and the settings of Spark in one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.connectors.feed import feed_of
from tidemill.connectors.registry import connector_of
from tidemill.definitions.options import Mode
from tidemill.errors import ConfigurationError, TerminalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.definitions.stream import Stream

_SHORTEST: Mapping[Mode, timedelta] = {"real-time": timedelta(seconds=5)}
# Their tasks run as long as the query, or as its batches: one for each partition, all at the same time.
HOLDS_CORES = ("real-time", "continuous")
OPTIONS: Mapping[Mode, Mapping[str, str]] = {"async": {"asyncProgressTrackingEnabled": "true"}}
# The only one that it has; of rows without state it is the same as `append`.
OUTPUT_MODES: Mapping[Mode, str] = {"real-time": "update"}
# The checkpoint of such a query is read by nobody else, and continuous processing knows no names of sources.
_CONFS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
}
_REFUSED = re.compile(
    r"real.time.mode|continuous processing|async progress|does not support continuous", re.IGNORECASE
)


def check_mode(streams: "Sequence[Stream]", mode: Mode, every: timedelta) -> None:
    """Check what the declarations say about a mode.

    Raises:
        ConfigurationError: A stream cannot run in this mode, or the interval is too short.
    """
    if mode == "micro-batch":
        return
    if every and every < _SHORTEST.get(mode, every):
        raise ConfigurationError(
            f"a batch in {mode} mode lasts at least {_SHORTEST[mode].seconds} s.",
            fix=f"tidemill run --follow={_SHORTEST[mode].seconds}s --mode {mode}",
            code="mode-unsuitable",
        )
    for stream in streams:
        reason = next(_obstacles(stream), None)
        if reason is not None:
            raise ConfigurationError(
                f"{reason}, and Spark runs the {mode} mode only from one KafkaSource to a KafkaSink, without rules.",
                stream=stream.name,
                fix="select the streams that can, or leave --mode out.",
                code="mode-unsuitable",
            )


def _obstacles(stream: "Stream") -> "Iterator[str]":
    """Yield why a stream needs micro-batches, as far as its declaration says it: each the begin of a sentence."""
    if feed_of(stream) is not None:
        yield "its feed is validated batch by batch"
    if len(stream.sources) > 1:
        yield f"it has {len(stream.sources)} sources"
    for source in stream.sources.values():
        if not connector_of(source).is_direct:
            yield f"it reads {source.describe()}"
        if source.watermark is not None:
            yield "its source has a watermark"
    if stream.expect:
        yield "its expectations are counted batch by batch"
    if stream.main.has_rows:
        yield "it writes a table"
    sinks = stream.external_sinks
    if len(sinks) > 1:
        yield f"it has {len(sinks)} sinks"
    yield from (f"its sink {sink.name!r} is written batch by batch" for sink in sinks if not sink.is_direct)


@contextmanager
def own_confs(spark: "SparkSession") -> "Iterator[None]":
    """Give a session the confs of these queries, and then those that it had."""
    before = {name: spark.conf.get(name) for name in _CONFS}
    for name, value in _CONFS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            spark.conf.set(name, str(kept))


@contextmanager
def refusals(mode: Mode) -> "Iterator[None]":
    """Raise what Spark refuses in a mode as one line."""
    try:
        yield
    except Exception as error:
        text = str(error).partition("\n")[0]
        if _REFUSED.search(text) is None:
            raise
        raise refusal(mode, f"Spark refuses it ({text})") from error


def refusal(mode: Mode, reason: str) -> TerminalError:
    """Return the error of a stream that cannot run in a mode."""
    return TerminalError(
        f"it cannot run in {mode} mode: {reason}.",
        fix="leave --mode out: tidemill run --follow.",
        code="mode-unsuitable",
    )
