"""The query of a stream: its sources loaded, its function applied, its output checked."""

import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.connectors.connector import OWN_OBSERVATION, READ_OBSERVATION, SourceContext, observed_input
from tidemill.connectors.feed import Feed, feed_of
from tidemill.connectors.registry import connector_of
from tidemill.connectors.violations import OBSERVATION, observed
from tidemill.definitions.columns import (
    BATCH,
    END_AT,
    ORIGIN,
    RAW,
    START_AT,
    TABLE_COLUMNS,
    VIOLATED,
    refuse_reserved,
)
from tidemill.definitions.sql import SqlFunction
from tidemill.errors import TerminalError
from tidemill.plans.lineage import Lineage, lineage_of, watermarks_in
from tidemill.plans.observations import Observations, is_own, observations_in
from tidemill.plans.open_windows import open_windows
from tidemill.plans.operators import operators_of, with_types
from tidemill.plans.plan_tree import parse_plan, reads_all
from tidemill.records.manifest import StatefulOperator
from tidemill.run.batch.row_json import check_readable, json_columns
from tidemill.run.batch.validation_rules import is_repeatable, uses_time_of_batch
from tidemill.run.batch.writer import batch_column
from tidemill.run.spark.classic import (
    check_supported,
    explained,
    full_plan,
    is_classic,
    plan_text,
    state_types,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidemill.definitions.stream import Stream

_STATEFUL = re.compile(
    r"^\W*(Aggregate|Deduplicate\w*|Distinct|Join|FlatMapGroups\w*|TransformWithState\w*|Window|"
    r"GlobalLimit|Sort)\b",
    re.MULTILINE,
)
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A stream's query, not started.

    Attributes:
        rows: The streaming DataFrame: the output, or for a feed its records.
        output: The columns of the output.
        fingerprint: The fingerprint of the plan and of the function's source.
        operators: Its stateful operators, the one nearest to the sink first; None where the plan cannot be read.
        validates: For a feed, whether its records are validated in the plan of `rows`, and not batch by batch.
        repeatable: For a feed, whether its rules refuse the same records each time that they are evaluated.
        reads_all: For a feed, whether its function reads each record whatever the records are.
        warnings: What the plan does that its author may not expect, one sentence each.
        lineage: The columns of the sources that each output column is computed from, where the plan shows them.
        watermarks: The sources whose watermarks make up that of the query; None where its function sets others.
        observations: What its function observes.
        schemas: The columns of the sources that infer them, as DDL, by source.
    """

    rows: "DataFrame"
    output: "StructType"
    fingerprint: str
    operators: tuple[StatefulOperator, ...] | None = ()
    validates: bool = False
    repeatable: bool = True
    reads_all: bool = True
    warnings: tuple[str, ...] = ()
    lineage: Lineage = field(default_factory=dict)
    watermarks: tuple[str, ...] | None = ()
    observations: Observations = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)


def build(stream: "Stream", context: SourceContext, generation: int) -> Query:
    """Load the sources and apply the function and the expectations.

    Raises:
        TerminalError: The function does not return a DataFrame, or a feed's function is stateful, or a row of the
            output would have no JSON.
        Exception: Spark's error about the function.
    """
    feed = feed_of(stream)
    built = _of_tables(stream, context) if feed is None else _of_feed(stream, feed, context, generation)
    if stream.quarantines_rows:
        check_readable(json_columns(built.output))
    return built


def _of_tables(stream: "Stream", context: SourceContext) -> Query:
    inputs = {
        name: connector_of(source).open(source, context, name) for name, source in stream.sources.items()
    }
    locations = _locations(context)
    static = {
        name: full_plan(rows, locations)
        for name, rows in inputs.items()
        if not stream.sources[name].streaming
    }
    output = output_of(stream, *inputs.values())
    refuse_reserved(output.columns, _reserved(stream, inputs.values()), where="the function's output")
    rows = observed(output, stream.expect)
    plan = full_plan(rows, locations)
    watermarks = watermarks_in(plan)
    return Query(
        rows=rows,
        output=output.schema,
        fingerprint=fingerprint(stream, plan_text(rows, locations)),
        operators=_operators(rows, plan),
        warnings=(*_checked_joins(stream, rows), *_open_windows(stream, plan), *_undeclared(watermarks)),
        lineage=lineage_of(plan, output.columns, static),
        watermarks=_declared(watermarks),
        observations=_observations(stream, plan),
        schemas=context.schemas,
    )


def _of_feed(stream: "Stream", feed: Feed, context: SourceContext, generation: int) -> Query:
    # Before the feed is loaded: its own columns would be ambiguous.
    refuse_reserved(
        _parsed_columns(feed), (*TABLE_COLUMNS, RAW, VIOLATED), where=f"the schema of {feed.describe()}"
    )
    name = next(iter(stream.sources))
    locations = _locations(context)
    lines = feed.lines(context, name)
    records = observed_input(feed.validated_lines(lines), name)
    output = output_of(stream, records.drop(RAW, VIOLATED))
    ours = [column for column in TABLE_COLUMNS if column != ORIGIN]
    refuse_reserved(output.columns, ours, where="the function's output")
    text = plan_text(output, locations)
    before = len(_STATEFUL.findall(plan_text(records, locations)))
    operators = _STATEFUL.findall(text)
    if len(operators) > before and operators[0] == "Join":
        raise TerminalError(
            "the function joins its feed, whose records are quarantined batch by batch: it would see one batch of the "
            "feed at a time, and other data without a pinned version.",
            fix="ingest the feed with a stream of its own, and join in a stream that reads its table, with each other "
            "table as a source, such as customers.static().",
            code="feed-not-alone",
        )
    if len(operators) > before:
        # What no stream can do is refused as such: another stream would not help.
        check_supported(output, "complete" if "Aggregate" in operators else "append")
        raise TerminalError(
            f"the function uses the stateful operation {operators[0]!r} on a feed, whose records are "
            "quarantined batch by batch: it would see one batch at a time.",
            fix="ingest the feed with a stateless function, and do this in a stream that reads its table.",
            code="feed-with-state",
        )
    # The quarantine needs the raw record, so it comes before the function, and the function runs per batch.
    with_batch = output.withColumn(BATCH, batch_column(generation, 0))
    plan, validating = full_plan(output, locations), full_plan(records, locations)
    tree = parse_plan(plan)
    validates = uses_time_of_batch(validating)
    return Query(
        rows=records if validates else observed_input(lines, name),
        output=with_batch.schema,
        fingerprint=fingerprint(stream, text),
        validates=validates,
        repeatable=is_repeatable(feed, records, parse_plan(validating)),
        reads_all=tree is not None and reads_all(tree),
        lineage=lineage_of(plan, output.columns, {}),
        observations=_observations(stream, plan),
    )


def _observations(stream: "Stream", plan: str) -> Observations:
    """Return what a function observes, without Tidemill's own observations.

    Raises:
        TerminalError: It uses a name that is Tidemill's, or that cannot be shown.
    """
    ours = {OBSERVATION, *(f"{READ_OBSERVATION}{name}" for name in stream.sources)}
    observations = {name: metrics for name, metrics in observations_in(plan).items() if name not in ours}
    for name, metrics in observations.items():
        if is_own(name):
            raise TerminalError(
                f"the function observes {name!r}, and Tidemill's own observations begin with {OWN_OBSERVATION!r}.",
                fix=f"give it another name, for example {name.removeprefix(OWN_OBSERVATION)!r}.",
                code="name-reserved",
            )
        for text in (name, *metrics):
            if len(text) > _LONGEST_NAME or not text.isprintable():
                raise TerminalError(
                    f"the function observes {text[:_LONGEST_NAME]!r}, and a name of an observation or of a metric is "
                    f"one line of at most {_LONGEST_NAME} characters.",
                    fix="give it a shorter name, a metric with alias().",
                    code="name-invalid",
                )
    return observations


def _locations(context: SourceContext) -> dict[str, str]:
    """Return what stands for the locations of a target, so that a fingerprint is the same in each of them."""
    return {context.target.lake.uri: "<lake>"}


def _operators(rows: "DataFrame", plan: str) -> tuple[StatefulOperator, ...] | None:
    operators = operators_of(plan)
    return with_types(operators, state_types(rows)) if operators else operators


def fingerprint(stream: "Stream", plan: str) -> str:
    """Return a short hash of a plan and of the function's source, the same in every process."""
    try:
        function = stream.function
        source = function.code if isinstance(function, SqlFunction) else inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt, or a callable object
        source = ""
    return hashlib.sha256(f"{plan}\n{source}".encode()).hexdigest()[:16]


def _declared(watermarks: Sequence[str | None]) -> tuple[str, ...] | None:
    """Return the sources that declare all of a plan's watermarks; None where its function sets one."""
    names = tuple(name for name in watermarks if name is not None)
    return names if len(names) == len(watermarks) else None


def _undeclared(watermarks: Sequence[str | None]) -> tuple[str, ...]:
    """Return a warning where a run cannot continue the watermarks of the runs before it."""
    if len(watermarks) < 2 or None not in watermarks:  # noqa: PLR2004 - one watermark is in the checkpoint
        return ()
    return (
        (
            "its function sets watermarks with withWatermark, and Spark forgets those of inputs without new rows when "
            "a run ends: the watermark may stand still, and what it closes is not emitted. "
            "Fix: declare them where the sources are declared, with with_watermark(column, delay)."
        ),
    )


def _checked_joins(stream: "Stream", rows: "DataFrame") -> tuple[str, ...]:
    """Return a warning per stream-stream join whose state grows forever."""
    if sum(source.streaming for source in stream.sources.values()) < 2:  # noqa: PLR2004 - two inputs make a join
        return ()
    from tidemill.plans.join_bounds import join_findings

    findings = join_findings(explained(rows))
    for finding in findings:
        if finding.kind == "loses_rows":
            raise TerminalError(
                f"its join bounds {finding.other!r} by {finding.bound!r}, and Spark would evict the rows of that "
                f"side by their watermark column {finding.watermark!r}: rows that still have matches would be lost "
                "without a trace.",
                fix=f"write the condition as unix_micros({finding.other}) <= unix_micros({finding.bound}), which "
                "Spark does not derive a bound from (the state of that side then needs a bound on "
                f"{finding.watermark!r}, or grows forever).",
                code="join-loses-matches",
            )
    sides = [finding.side for finding in findings if finding.join == "Inner"]
    if not sides:
        return ()
    side = "both sides" if len(sides) > 1 else f"its {sides[0]} side"
    # Spark Connect gives the columns of `withColumn` metadata of their own, empty ones (measured on Spark 4.2).
    on_connect = (
        ""
        if is_classic(rows.sparkSession)
        else " On a warm server and with Spark Connect, a window that withColumn makes has no watermark: write "
        "select('*', F.window(column, length).alias(name))."
    )
    return (
        (
            f"its stream-stream join never evicts rows of {side}: the state grows forever. Fix: add a condition on the "
            f"watermark columns of both sides, such as b.time <= a.time + INTERVAL 1 HOUR.{on_connect}"
        ),
    )


def _open_windows(stream: "Stream", plan: str) -> tuple[str, ...]:
    """Return a warning per windowed aggregation whose state is never cleaned."""
    if stream.query.output_mode != "update":
        return ()
    return tuple(
        f"its windows of {column} stay in the state forever, because the watermark is on another column. "
        "Fix: put the watermark on the column that the windows are made of."
        for column in open_windows(plan)
    )


def output_of(stream: "Stream", *inputs: "DataFrame") -> "DataFrame":
    """Return the output of a stream's function.

    Raises:
        TerminalError: It is not a DataFrame, or the function has started a query, which is stopped.
        Exception: What the function raises.
    """
    queries = inputs[0].sparkSession.streams
    before = {query.runId for query in queries.active}
    try:
        output: object = stream(*inputs)
    finally:
        started = [query for query in queries.active if query.runId not in before]
        for query in started:
            query.stop()
    if started:
        raise TerminalError(
            f"the function started a streaming query of its own ({started[0].name or 'without a name'}), which would "
            "run on after the run; it was stopped.",
            lost="What it wrote until then stays where it wrote it.",
            fix="return the DataFrame, and declare the output with sink=, such as BatchSink(function).",
            code="function-starts-query",
        )
    if not hasattr(output, "writeStream"):
        raise TerminalError(
            f"the function returned {type(output).__name__}, not a DataFrame.",
            fix="return a DataFrame.",
            code="function-invalid",
        )
    return output  # type: ignore[return-value]


def _reserved(stream: "Stream", inputs: "Iterable[DataFrame]") -> list[str]:
    """Return the columns that the output must not have.

    The validity of another stream's versions passes through a function, unless the stream has versions of its own.
    """
    has_versions = any(sink.has_versions for sink in stream.tables)
    known = set() if has_versions else {column for rows in inputs for column in rows.columns}
    return [column for column in TABLE_COLUMNS if column not in known.intersection((START_AT, END_AT))]


def _parsed_columns(feed: Feed) -> list[str]:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(str(feed.format.schema))
    return schema.fieldNames() if isinstance(schema, StructType) else []


def pinned_confs(confs: Mapping[str, str]) -> dict[str, str]:
    """Return the confs that a checkpoint pins at its first start, and those that it should but does not."""
    return {key: value for key, value in confs.items() if "shuffle" in key or "streaming" in key}
