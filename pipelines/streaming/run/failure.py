"""What Spark, Delta and Kafka throw, as errors of ours: typed, with what to do."""

import re

from pipelines.streaming.errors import (
    CheckpointError,
    DataLossError,
    LeaseLostError,
    SchemaChangeError,
    TerminalError,
    TidemillError,
    TransientError,
    UpstreamChangeError,
)
from pipelines.streaming.expectations import FAIL_MARK
from pipelines.streaming.names import StreamName
from pipelines.streaming.sinks.merge import NULL_KEY_MARK

_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_OUTER = {
    "STREAM_FAILED",
    "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FOREACH_USER_FUNCTION_ERROR",
    "TASK_WRITE_FAILED",
}
_MESSAGE_LIMIT = 400

_TRANSIENT = re.compile(
    r"TimeoutException|DisconnectException|NotLeaderOrFollower|NetworkException|BrokerNotAvailable|"
    r"ConnectException|Connection refused|Connection reset|UNAVAILABLE|DEADLINE_EXCEEDED|"
    r"DELTA_CONCURRENT_|ConcurrentAppendException|ConcurrentModificationException|FetchFailed|"
    r"Py4JNetworkError|No space left on device|Too many open files"
)

_KNOWN: tuple[tuple[re.Pattern[str], type[TidemillError], str], ...] = (
    (
        re.compile(r"SaslAuthenticationException|Authentication failed|AuthenticationException"),
        TerminalError,
        "Correct the cluster's username and password in the target (they come from the environment).",
    ),
    (
        re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRange|data may have been lost|failOnDataLoss"),
        DataLossError,
        "Restore the data; or move the stream's table, checkpoint, control and ledger folders away to rebuild it.",
    ),
    (
        re.compile(r"DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE"),
        UpstreamChangeError,
        "The table that is read had rows changed or deleted; read its change feed, or rebuild this stream.",
    ),
    (
        re.compile(r"DELTA_SCHEMA_CHANGED"),
        TransientError,
        "The table that is read got new columns; the next run reads it with them.",
    ),
    (
        re.compile(r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH"),
        CheckpointError,
        "The change of the code does not fit the state in the checkpoint: undo it, or give the stream a new name.",
    ),
    (
        re.compile(
            r"CANNOT_LOAD_STATE_STORE|STATE_STORE_|Incomplete log file|STREAMING_CHECKPOINT_|doesn't exist"
            r"|CONCURRENT_STREAM_LOG_UPDATE|STREAMING_STATEFUL_OPERATOR_MISSING"
        ),
        CheckpointError,
        "Run `tidemill checkpoint verify {stream}` to see which file is damaged and what fixes it.",
    ),
    (
        re.compile(r"DELTA_FAILED_TO_MERGE_FIELDS|DELTA_METADATA_MISMATCH|_LEGACY_ERROR_TEMP_DELTA_0007"),
        SchemaChangeError,
        "Cast the column in the function to the table's type, or write to a stream of another name.",
    ),
    (
        re.compile(
            r"UNRESOLVED_COLUMN|UNSUPPORTED_STREAMING_OPERATOR|STREAMING_OUTPUT_MODE|PARSE_SYNTAX_ERROR"
        ),
        TerminalError,
        "Correct the function or the rule; nothing was read yet.",
    ),
)


def translated(error: BaseException, stream: StreamName) -> TidemillError:
    """An error of ours for whatever a run met.

    Args:
        error: Ours (it gets the stream's name), or any other.
        stream: The stream it happened to.
    """
    if isinstance(error, TidemillError):
        if error.stream is None:
            return type(error)(
                error.what, stream=stream, lost=error.lost, fix=error.fix, error_class=error.error_class
            )
        return error
    text = _text(error)
    for translate in (_expectation, _null_key, _lease_lost):
        if found := translate(text, stream):
            return found
    classes = _CLASS.findall(text)
    inner = [found for found in classes if found not in _OUTER] or classes
    error_class = inner[-1] if inner else type(error).__name__
    said = _said(text, error_class)
    for pattern, kind, fix in _KNOWN:
        if pattern.search(text):
            return kind(said, stream=stream, fix=fix.format(stream=stream), error_class=error_class)
    if _TRANSIENT.search(text):
        return TransientError(said, stream=stream, error_class=error_class)
    return TerminalError(
        said,
        stream=stream,
        fix="Correct the cause; the next run repeats the batch that failed.",
        error_class=error_class,
    )


def _text(error: BaseException) -> str:
    """What an error says, and what its causes say: the reason is often in the last of them."""
    stacks = (getattr(error, name, None) for name in ("_stackTrace", "_stacktrace"))  # classic, Connect
    stack = next((found for found in stacks if isinstance(found, str)), "")
    return "\n".join([str(error), *(line for line in stack.splitlines() if line.startswith("Caused by: "))])


def _said(text: str, error_class: str) -> str:
    """The innermost message in one line, with its class and without the Java stack."""
    start = text.rfind(f"[{error_class}]")
    said = text[start:] if start >= 0 else f"{error_class}: {text}"
    said = re.split(r"\n\s+at |\nJVM stacktrace|SQLSTATE|=== Streaming Query ===|\n\n", said)[0]
    said = " ".join(said.split())
    return said if len(said) <= _MESSAGE_LIMIT else said[:_MESSAGE_LIMIT] + " ..."


def _expectation(text: str, stream: StreamName) -> TidemillError | None:
    found = re.search(rf"{FAIL_MARK}:(\w+):([^\n]*)", text)
    if not found:
        return None
    condition = re.split(r" SQLSTATE|\s+==", found[2])[0]
    return TerminalError(
        f"a row violates the expectation {found[1]!r} ({condition.strip()}), which is declared on_violation='fail'.",
        stream=stream,
        lost="Nothing was lost, and nothing of the batch is in the table.",
        fix="Correct the input or the function, or declare the expectation with 'drop' or 'warn'.",
        error_class="EXPECTATION_FAILED",
    )


def _null_key(text: str, stream: StreamName) -> TidemillError | None:
    found = re.search(rf"{NULL_KEY_MARK}:([^\n]*)", text)
    if not found:
        return None
    columns = re.split(r" SQLSTATE|\s+==", found[1])[0]
    return TerminalError(
        f"a row has NULL in one of the merge's columns {columns.strip()}, so it has no place in the table.",
        stream=stream,
        lost="Nothing was lost, and nothing of the batch was written.",
        fix="Filter such rows, or quarantine them where the feed is ingested.",
        error_class="MERGE_NULL_KEY",
    )


def _lease_lost(text: str, stream: StreamName) -> TidemillError | None:
    # foreachBatch runs in another process on Spark Connect, and comes back as text.
    if LeaseLostError.__name__ not in text:
        return None
    return LeaseLostError(
        "another run has taken this stream over, so this one stopped before it wrote.", stream=stream
    )
