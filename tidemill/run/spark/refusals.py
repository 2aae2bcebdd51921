"""What Spark refuses to stream: the operation, why streaming cannot do it, and the way around."""

import re
from typing import NamedTuple

from tidemill.errors import TerminalError
from tidemill.text.names import StreamName


class Refusal(NamedTuple):
    """An operation that Spark refuses to stream.

    Attributes:
        pattern: Spark's error class or its sentence; most refusals share one class.
        operation: What the stream does, with the named groups of the pattern.
        reason: Why streaming cannot do it.
        fix: The way around.
        code: The code of the error.
    """

    pattern: str
    operation: str
    reason: str
    fix: str
    code: str


_OUTER_JOIN = (
    "for two streams, use a left outer join with watermarks and a time range, and keep the rows whose right side is "
    "NULL; put a stream that is compared with a snapshot on the left."
)
_CONDITIONAL = "one conditional aggregate per value, such as F.count(F.when(F.col('kind') == 'a', 1))"

# What Spark names by its classes.
_WORDS = {
    "LeftOuter": "left outer",
    "RightOuter": "right outer",
    "FullOuter": "full outer",
    "LeftSemi": "left semi",
    "Append": "append",
    "Update": "update",
    "Complete": "complete",
}

REFUSALS = (
    Refusal(
        r"Limits are not supported on streaming",
        operation="a limit in update mode",
        reason="rows replace those of earlier batches, so no batch knows which ones the limit has let through",
        fix="for a top-N, sort and limit in a batch asset downstream that reads the table; or after an aggregation in "
        "complete mode, with DeltaOverwrite().",
        code="operation-unsupported",
    ),
    Refusal(
        r"Offset is not supported on streaming",
        operation="an offset",
        reason="a batch does not know how many rows were skipped before it",
        fix="skip rows in a batch asset downstream that reads the table.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Sorting is not supported on streaming",
        operation="a sort, as in orderBy, sortWithinPartitions and randomSplit",
        reason="rows that arrive later would belong between rows that are already written",
        fix="for a top-N or an order, sort in a batch asset downstream that reads the table; or after an aggregation "
        "in complete mode, with DeltaOverwrite().",
        code="operation-unsupported",
    ),
    Refusal(
        r"Distinct aggregations are not supported on streaming",
        operation="an aggregation of distinct values",
        reason="its state would have to keep every value of every group",
        fix="use F.approx_count_distinct; or deduplicate in a stream of its own, with dropDuplicates, and aggregate in "
        "a stream that reads its table.",
        code="operation-unsupported",
    ),
    Refusal(
        r"pivot is not supported on a streaming",
        operation="a pivot without its values",
        reason="the columns of the output would depend on rows that have not arrived",
        fix=f"write {_CONDITIONAL}; or, in append mode, name the values: pivot(column, [...]).",
        code="operation-unsupported",
    ),
    Refusal(
        r"(?s)Detected pattern of possible 'correctness' issue.*\bpivotfirst\(",
        operation="a pivot in update or complete mode",
        reason="it is two aggregations, and the second one would count a group again whenever it changes",
        fix=f"write {_CONDITIONAL}; or use append mode with a watermark.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Detected pattern of possible 'correctness' issue|Multiple applyInPandasWithStates are not supported|"
        r"applyInPandasWithState in \w+ mode is not supported (?:with|after) aggregation",
        operation="a stateful operation on the result of another one",
        reason="the first one emits a row again when it changes, and the second one would count it again or drop it "
        "as late",
        fix="compute the first result in a stream of its own, and the second one from its table, in another stream or "
        "a batch asset; aggregations and joins can follow each other in append mode with a watermark.",
        code="operation-unsupported",
    ),
    Refusal(
        r"NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING\] Window function is not supported in (?P<function>\w+)",
        operation="the window function {function}",
        reason="it needs all rows of a partition at once",
        fix="for the newest row per key, use DeltaMerge(keys=, sequence_by=); for a row and those before it, "
        "applyInPandasWithState or transformWithState; for a rank, a batch asset downstream.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Stream-stream (?P<join>\w+) join .* without a watermark",
        operation="a {join} join of two streams without a watermark and a time range",
        reason="nothing says when a row can no longer get a match",
        fix="declare with_watermark(column, delay) on both sources, and limit the time between two rows in the "
        "condition, such as r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR.",
        code="watermark-missing",
    ),
    Refusal(
        r"(?P<join>\w+) join between two streaming .* not supported in (?P<mode>\w+) output mode",
        operation="a {join} join of two streams in {mode} mode",
        reason="its rows are written once, when the watermark has passed them, and never replaced",
        fix="use append mode, and aggregate in a stream that reads the table.",
        code="output-mode-unsuitable",
    ),
    Refusal(
        r"LeftAnti joins with a streaming",
        operation="a left anti join with a stream on its right",
        reason="a match could still arrive after the row was written",
        fix=_OUTER_JOIN,
        code="operation-unsupported",
    ),
    Refusal(
        r"(?P<join>\w+) joins? with (?:a )?streaming \S+ on the (?P<side>left|right) and a static",
        operation="a {join} join of a stream on its {side} and a snapshot",
        reason="it keeps rows of the snapshot, and a later batch could still match them",
        fix="keep the rows of the stream: put it on the left of a left outer or left semi join, or on the right of a "
        "right outer join. Find the rows of the snapshot that have no match in a batch asset.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Intersect of streaming",
        operation="an intersection",
        reason="its state would have to keep every row of both sides",
        fix="use a left semi join, with watermarks and a time range if both sides are streams, and dropDuplicates.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Except on a streaming",
        operation="subtract, exceptAll or EXCEPT with a stream on its right",
        reason="a row that takes another one away could still arrive",
        fix=_OUTER_JOIN,
        code="operation-unsupported",
    ),
    Refusal(
        r"Sampling is not supported on streaming",
        operation="a sample",
        reason="it is a share of all rows, which have not all arrived",
        fix="filter by a hash of a key, such as F.pmod(F.xxhash64('id'), F.lit(100)) < 10 for 10 percent.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Expression\(s\): (?P<expression>[^;\n]+?) is not supported",
        operation="the expression {expression}",
        reason="it numbers the rows of one batch, and begins again with the next one",
        fix="compute an id from the row, such as F.xxhash64 of its key, or of _origin in the table of a feed; or use "
        "F.expr('uuid()'), which gives a repeated batch other ids.",
        code="operation-unsupported",
    ),
    Refusal(
        r"Union between streaming and batch",
        operation="a union of a stream and a snapshot",
        reason="the rows of the snapshot would be added again by each batch",
        fix="read both as streams, without .static(); or unite the tables where they are read, such as in a batch "
        "asset.",
        code="operation-unsupported",
    ),
    Refusal(
        r"INVALID_SUBQUERY_EXPRESSION\.STREAMING_QUERY",
        operation="a subquery that reads a stream",
        reason="it would be evaluated over rows that have not all arrived",
        fix="write IN and EXISTS as a left semi join with watermarks and a time range; or read the table of the "
        "subquery with .static().",
        code="operation-unsupported",
    ),
    Refusal(
        r"EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE\] The event time `(?P<column>[^`]+)` has the invalid type "
        r"\"(?P<type>[^\"]+)\"",
        operation="a watermark on the column {column}, which is of type {type}",
        reason="an event time is a timestamp",
        fix="make the column a TIMESTAMP in the schema of the source, or in the stream that writes the table.",
        code="operation-unsupported",
    ),
    Refusal(
        r"dropDuplicatesWithinWatermark is not supported on streaming",
        operation="dropDuplicatesWithinWatermark without a watermark",
        reason="nothing says how long a key is remembered",
        fix="declare with_watermark(column, delay) on the source; or use dropDuplicates, whose state grows forever.",
        code="watermark-missing",
    ),
    Refusal(
        r"Event-time timeout not supported without watermark",
        operation="an event-time timeout without a watermark",
        reason="nothing says when a time has passed",
        fix="declare with_watermark(column, delay) on the source.",
        code="watermark-missing",
    ),
    Refusal(
        r"STREAMING_OUTPUT_MODE\.UNSUPPORTED_OPERATION\].* for streaming aggregations without watermark",
        operation="an aggregation without a watermark in append mode",
        reason="a group is written once, and nothing says when it is complete",
        fix="declare with_watermark(column, delay) on the source, and group by F.window of that column or by the "
        "column itself (on a warm server, withColumn loses it: make the window in groupBy or select); or use "
        "QueryOptions(output_mode='update') with DeltaMerge(keys=[...]).",
        code="watermark-missing",
    ),
    Refusal(
        r"STREAMING_OUTPUT_MODE\.UNSUPPORTED_OPERATION\].* mode: (?P<mode>\w+)\..* for no streaming aggregations",
        operation="{mode} mode without an aggregation",
        reason="each batch would write all rows since the beginning, and only an aggregation keeps its result",
        fix="use append mode, the default, with DeltaAppend() or DeltaMerge(keys=[...]).",
        code="output-mode-unsuitable",
    ),
    Refusal(
        r"STREAMING_OUTPUT_MODE\.UNSUPPORTED_OPERATION\].* for session window streaming aggregations",
        operation="a session window in update mode",
        reason="a session that grows becomes another session, and its earlier row would stay",
        fix="use append mode with a watermark; or complete mode with DeltaOverwrite().",
        code="output-mode-unsuitable",
    ),
    Refusal(
        r"(?P<function>\w+) in (?P<own>\w+) mode is not supported with (?P<mode>\w+) output mode",
        operation="{function} with the output mode {own} in a stream in {mode} mode",
        reason="both say whether its rows replace earlier ones",
        fix="give its argument outputMode and QueryOptions(output_mode=) the same value.",
        code="output-mode-unsuitable",
    ),
    Refusal(
        r"Queries with streaming sources must be executed",
        operation="an action inside the function",
        reason="the function describes the query, and runs before there are rows",
        fix="return the DataFrame. Work on the rows of each batch with BatchSink(function), and on the whole table in "
        "a batch asset downstream.",
        code="action-in-function",
    ),
    Refusal(
        r"CALL_ON_STREAMING_DATASET_UNSUPPORTED",
        operation="a batch write inside the function",
        reason="the function describes the query, and runs before there are rows",
        fix="return the DataFrame, and declare what is written with sink=, such as DeltaAppend() or "
        "BatchSink(function).",
        code="action-in-function",
    ),
    Refusal(
        r"WRITE_STREAM_NOT_ALLOWED",
        operation="a result that reads no stream",
        reason="new rows of the sources would not reach it",
        fix="return rows of a streaming source.",
        code="operation-unsupported",
    ),
)


def refusal(
    text: str, stream: StreamName, *, location: str = "", error_class: str | None = None
) -> TerminalError | None:
    """Return Spark's refusal to stream an operation as one line; None for any other error.

    Args:
        text: Spark's message.
        stream: The stream that was refused.
        location: Where its function calls the operation; empty where Spark refuses the whole query.
        error_class: Spark's error class.
    """
    for known in REFUSALS:
        if match := re.search(known.pattern, text):
            parts = {name: _WORDS.get(part, part) for name, part in match.groupdict().items()}
            operation = known.operation.format_map(parts)
            return TerminalError(
                f"Spark cannot stream {operation}{location}: {known.reason}.",
                stream=stream,
                fix=known.fix,
                code=known.code,
                error_class=error_class,
            )
    return None
