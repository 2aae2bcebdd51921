"""Errors of Spark, Delta and Kafka as typed errors of Tidemill, with a fix."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

from tidemill import errors
from tidemill.connectors.delta.stand_in import NOT_RUN_MARK
from tidemill.connectors.jdbc.errors import database_error
from tidemill.definitions.expectations import FAIL_MARK
from tidemill.errors import (
    NOTHING_LOST,
    CheckpointError,
    DataLossError,
    LeaseLostError,
    SchemaChangeError,
    TerminalError,
    TidemillError,
    TransientError,
    UpstreamChangeError,
)
from tidemill.run.spark.refusals import refusal
from tidemill.sinks.delta_merge import DUPLICATE_KEY_MARK, NULL_KEY_MARK
from tidemill.text.names import StreamName

_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_OUTER = {
    "STREAM_FAILED",
    "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FOREACH_USER_FUNCTION_ERROR",
    "PYTHON_EXCEPTION",
    "TASK_WRITE_FAILED",
}
# The frames of a Python traceback, which are indented, the line after them, and the error of Java that it is about:
# py4j puts that on a line of its own.
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(
    rf"{re.escape(_TRACEBACK)}\n((?:[ \t]+.*\n)+)((?:\w+\.)*\w+)(?:: ?(.*))?$(?:\n: (.+)$)?", re.MULTILINE
)
_FRAME = re.compile(r'^[ \t]+File "([^"\n]+)", line (\d+)', re.MULTILINE)
_NOT_OF_USERS = re.compile(
    rf"/pyspark/|/site-packages/|/lib/python3|^{re.escape(str(Path(__file__).parents[2]))}/"
)
# What follows a message: a stack, Spark's state of the error, or a part of the plan.
_REST = re.compile(r"\n\s+at |\nJVM stacktrace|SQLSTATE|=== Streaming Query ===|\n\n|;\n[~'!+]")
_MESSAGE_LIMIT = 400

_TRANSIENT = re.compile(
    r"TimeoutException|DisconnectException|NotLeaderOrFollower|NetworkException|BrokerNotAvailable|"
    r"ConnectException|Connection refused|Connection reset|UNAVAILABLE|DEADLINE_EXCEEDED|"
    r"DELTA_CONCURRENT_|ConcurrentAppendException|ConcurrentModificationException|FetchFailed|"
    r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Py4JNetworkError|No space left on device|Too many open files"
)

_LISTENER = re.compile(r"Exception when registering StreamingQueryListener(?s:.*Caused by: (?-s:(.+)))?")

_VERIFY = "tidemill checkpoint verify {stream}   (names the damaged file and its fix)"


class _Known(NamedTuple):
    """Errors of the engines that mean the same."""

    pattern: re.Pattern[str]
    kind: type[TidemillError]
    code: str
    fix: str


_KNOWN = (
    _Known(
        re.compile(r"SaslAuthenticationException|Authentication failed|AuthenticationException"),
        TerminalError,
        code="kafka-access-refused",
        fix="correct the cluster's username and password in the target (they come from the environment).",
    ),
    _Known(
        re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRange|data may have been lost|failOnDataLoss"),
        DataLossError,
        code="kafka-offsets-missing",
        fix="restore the data; or compute the stream again from what its sources have: tidemill rebuild, with "
        "--allow-missing.",
    ),
    _Known(
        re.compile(r"DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE"),
        UpstreamChangeError,
        code="upstream-rows-changed",
        fix="rows of the table that is read were changed or deleted: read its change feed, or rebuild this stream.",
    ),
    _Known(
        re.compile(r"DELTA_SCHEMA_CHANGED"),
        TransientError,
        code="upstream-columns-changed",
        fix="run it again: the table that is read got new columns, and the next run reads it with them.",
    ),
    _Known(
        re.compile(r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH"),
        CheckpointError,
        code="state-incompatible",
        fix="undo the change of the code, which does not fit the state in the checkpoint, or give the stream a new "
        "name.",
    ),
    _Known(
        re.compile(
            r"CANNOT_LOAD_STATE_STORE|STATE_STORE_|Incomplete log file|STREAMING_CHECKPOINT_|doesn't exist"
            r"|CONCURRENT_STREAM_LOG_UPDATE|STREAMING_STATEFUL_OPERATOR_MISSING"
        ),
        CheckpointError,
        code="checkpoint-not-sound",
        fix=_VERIFY,
    ),
    _Known(
        re.compile(r"DELTA_FAILED_TO_MERGE_FIELDS|DELTA_METADATA_MISMATCH|_LEGACY_ERROR_TEMP_DELTA_0007"),
        SchemaChangeError,
        code="column-type-changed",
        fix="cast the column in the function to the table's type, or write to a stream of another name.",
    ),
    _Known(
        re.compile(r"\[PATH_NOT_FOUND\]"),
        TerminalError,
        code="folder-missing",
        fix="create the folder, or correct the path of the source.",
    ),
    _Known(
        re.compile(r"DUPLICATE_SOURCE_NAMES"),
        TerminalError,
        code="source-used-twice",
        fix="the function uses one of its inputs twice: give it two arguments that read the same source, "
        "source={{'left': s, 'right': s}}.",
    ),
    _Known(
        re.compile(
            r"UNRESOLVED_COLUMN|UNSUPPORTED_STREAMING_OPERATOR|STREAMING_OUTPUT_MODE|PARSE_SYNTAX_ERROR"
        ),
        TerminalError,
        code="query-invalid",
        fix="correct the function or the rule.",
    ),
)


def translated(
    error: BaseException, stream: StreamName, *, unfinished_batch: int | None = None
) -> TidemillError:
    """Return a Tidemill error for any error of a run.

    Args:
        error: A Tidemill error (which gets the stream's name), or any other.
        stream: The stream it happened to.
        unfinished_batch: The batch that was planned and not committed, which the next run repeats; None where
            no batch began.
    """
    text = _text(error)
    known_error = error if isinstance(error, TidemillError) else _carried(text)
    if known_error is not None:
        if known_error.stream is None:
            known_error = known_error.of(stream)
        if isinstance(known_error, CheckpointError) and not known_error.fix:
            known_error.fix = _VERIFY.format(stream=stream)
        return known_error
    for translate in (_marked, _lease_lost, _listener_missing, database_error):
        if own := translate(text, stream):
            return own
    error_class, message = _innermost(text, type(error).__name__)
    if refused := refusal(text, stream, location=_call(error), error_class=error_class):
        return refused
    for known in _KNOWN:
        if known.pattern.search(text):
            fix = known.fix.format(stream=stream)
            return known.kind(message, code=known.code, stream=stream, fix=fix, error_class=error_class)
    if _TRANSIENT.search(text):
        return TransientError(message, stream=stream, error_class=error_class, code="query-interrupted")
    then = "run it again." if unfinished_batch is None else f"the next run repeats batch {unfinished_batch}."
    return TerminalError(
        message, stream=stream, fix=f"correct the cause; {then}", error_class=error_class, code="query-failed"
    )


def _text(error: BaseException) -> str:
    """Return the message of an error and of its causes: the reason is often in the last of them."""
    stacks = (getattr(error, name, None) for name in ("_stackTrace", "_stacktrace"))  # classic, Connect
    stack = next((stack for stack in stacks if isinstance(stack, str)), "")
    return "\n".join([_string(error), *_causes(stack)])


def _causes(stack: str) -> Iterator[str]:
    """Yield the messages of the causes in a stack, a line each, and the tracebacks of Python in them."""
    traceback = False
    for line in stack.splitlines():
        if line.startswith("Caused by: "):
            traceback = line.endswith(_TRACEBACK)
            yield line
        elif traceback and not line.startswith("\tat "):
            yield line
        else:
            traceback = False


def _string(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error of the user's whose `__str__` raises
        return ""


def message_of(error: BaseException) -> str:
    """Return the type and the message of an error, which always succeeds."""
    return f"{type(error).__name__}: {_string(error)}".removesuffix(": ")


def _innermost(text: str, fallback: str) -> tuple[str, str]:
    """Return the innermost error class and its message on one line, without a stack.

    An error of Python inside a batch function or a worker has no class of Spark's: it is the line after its
    traceback, which has the line of the user's code.
    """
    classes = _CLASS.findall(text)
    inner = [error_class for error_class in classes if error_class not in _OUTER]
    raised = _PYTHON_ERROR.findall(text)
    if not inner and raised:
        frames, name, reason, of_java = raised[-1]
        if of_java:
            name, _, reason = of_java.partition(": ")
        return name, _one_line(f"{name}: {reason}" if reason else name, _location(frames))
    error_class = (inner or classes or [fallback])[-1]
    start = text.rfind(f"[{error_class}]")
    return error_class, _one_line(text[start:] if start >= 0 else f"{error_class}: {text}".removesuffix(": "))


def _location(frames: str) -> str:
    """Return the file and line of the innermost frame of the user's code, or of any; empty where there is no frame."""
    locations = _FRAME.findall(frames)
    own = [frame for frame in locations if not _NOT_OF_USERS.search(frame[0])]
    return "".join(f" ({file}:{line})" for file, line in (own or locations)[-1:])


def _call(error: BaseException) -> str:
    """Return what the innermost frame of the user's code called that raised an error, with the file and line."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    calls = [
        f" ({called.co_name}() at {code.co_filename}:{line})"
        for (code, line), (called, _) in pairwise(frames)
        if not _NOT_OF_USERS.search(code.co_filename)
    ]
    return "".join(calls[-1:])


def _one_line(message: str, location: str = "") -> str:
    message = _REST.split(message)[0]
    message = " ".join(message.split())
    if len(message) > _MESSAGE_LIMIT:
        return f"{message[:_MESSAGE_LIMIT]} ...{location}"
    if location:
        return f"{message.removesuffix('.')}{location}."
    return message if message.endswith((".", "!", "?")) else f"{message}."


class _Mark(NamedTuple):
    """An error that a plan of Tidemill raises on purpose.

    Attributes:
        what: What happened, with the groups of the pattern.
        pattern: What follows the mark in the message.
    """

    mark: str
    what: str
    lost: str
    fix: str
    error_class: str
    code: str
    pattern: str = r"([^\n]*)"


_MARKS = (
    _Mark(
        FAIL_MARK,
        "a row violates the expectation {0!r} ({1}), which is declared on_violation='fail'.",
        lost="No data was lost, and no row of the batch is in the table.",
        fix="correct the input or the function, or declare the expectation with 'drop' or 'warn'.",
        error_class="EXPECTATION_FAILED",
        code="expectation-violated",
        pattern=r"(\w+):([^\n]*)",
    ),
    _Mark(
        NULL_KEY_MARK,
        "a row has NULL in one of the merge's columns {0}, so it has no key in the table.",
        lost="No data was lost, and no row of the batch was written.",
        fix="filter such rows, or quarantine them where the feed is ingested.",
        error_class="MERGE_NULL_KEY",
        code="merge-key-null",
    ),
    _Mark(
        DUPLICATE_KEY_MARK,
        "a batch has two rows with the same {0}, the merge's keys, and no order between them.",
        lost="No data was lost, and no row of the batch was written.",
        fix="give keys= all columns that the output is grouped by, or name the column that orders changes in "
        "sequence_by=.",
        error_class="MERGE_DUPLICATE_KEY",
        code="merge-key-twice",
    ),
    _Mark(
        NOT_RUN_MARK,
        "it cannot be checked before {0} has run: its function reads rows of that table, which does not exist yet.",
        lost=NOTHING_LOST,
        fix="run the streams that it reads.",
        error_class="TABLE_NOT_WRITTEN",
        code="upstream-not-run",
    ),
)


def _marked(text: str, stream: StreamName) -> TidemillError | None:
    """Return the error that a plan of Tidemill has raised; None where no mark is in the message."""
    for known in _MARKS:
        if match := re.search(f"{known.mark}:{known.pattern}", text):
            groups = [re.split(r" SQLSTATE|\s+==", group)[0].strip() for group in match.groups()]
            return TerminalError(
                known.what.format(*groups),
                stream=stream,
                lost=known.lost,
                fix=known.fix,
                error_class=known.error_class,
                rule=groups[0] if known.mark == FAIL_MARK else None,
                code=known.code,
            )
    return None


_CARRIED = "TIDEMILL_ERROR:"
_FIELDS = ("code", "lost", "fix", "error_class", "rule")


class CarriedError(Exception):
    """An error of Tidemill on its way out of a batch function, from which Spark returns the message only."""

    def __init__(self, error: TidemillError) -> None:
        kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        content = {name: getattr(error, name) for name in _FIELDS}
        content["what"] = error._event  # noqa: SLF001 - as its message has it
        super().__init__(f"{_CARRIED}{json.dumps({'kind': kind, **content})}")


def _carried(text: str) -> TidemillError | None:
    """Return the error that a batch function has raised; None where it has raised none of Tidemill."""
    _, mark, rest = text.partition(_CARRIED)
    if not mark:
        return None
    content, _ = json.JSONDecoder().raw_decode(rest)
    kind: type[TidemillError] = getattr(errors, content.pop("kind"))
    return kind(content.pop("what"), **content)


def _lease_lost(text: str, stream: StreamName) -> TidemillError | None:
    # foreachBatch runs in another process on Spark Connect, and comes back as text.
    if LeaseLostError.__name__ not in text:
        return None
    return LeaseLostError(
        "another run has taken this stream over, so this one stopped before it wrote.", stream=stream
    )


def _listener_missing(text: str, stream: StreamName) -> TidemillError | None:
    match = _LISTENER.search(text)
    if match is None:
        return None
    reason = match[1] or "it cannot be loaded"
    return TerminalError(
        f"Spark cannot create a query listener of the target: {reason}.",
        stream=stream,
        fix="correct spark.sql.streaming.streamingQueryListeners in the target's [spark.conf], or add the jar of the "
        "class to spark.jars there.",
        code="listener-not-loaded",
    )
