"""Errors of Spark as errors of Tidemill; as pyspark 4.2.0 prints them, with less of the stacks."""

import pytest

from tidemill.checkpoint.format.errors import FileAbsentError
from tidemill.errors import CheckpointError, TerminalError, TransientError
from tidemill.run.spark.error_translation import CarriedError, translated
from tidemill.text.names import StreamName

ORDERS = StreamName("shop", "orders")
WORKER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/srv/shop/pipelines/orders.py", line 43, in price
    raise ValueError("bad price %s" % n)
  File "/venv/lib/python3.12/site-packages/pyspark/worker.py", line 9, in process
    raise
ValueError: bad price 2
 SQLSTATE: 38000
"""
# `str(error)` has the first line of the worker's message only.
STOPPED = f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {WORKER.splitlines()[0]}"
STACK = f"""org.apache.spark.sql.streaming.StreamingQueryException: {WORKER}
=== Streaming Query ===
\tat org.apache.spark.sql.execution.StreamExecution.runStream(StreamExecution.scala:390)
Caused by: org.apache.spark.api.python.PythonException: {WORKER}\tat org.apache.spark.api.python.BasePythonRunner
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


class Stopped(Exception):  # noqa: N818 - as pyspark's
    _stackTrace = STACK  # noqa: N815


@pytest.mark.parametrize("error", [Stopped(STOPPED), RuntimeError(WORKER)])
def test_an_error_in_a_python_worker_has_its_type_its_message_and_its_line(error):
    failure = translated(error, ORDERS)
    assert (failure.code, failure.error_class) == ("query-failed", "ValueError")
    assert failure.what == "ValueError: bad price 2 (/srv/shop/pipelines/orders.py:43)."


def test_an_error_of_java_in_a_batch_function_is_reported_with_its_cause():
    text = """[FOREACH_BATCH_USER_FUNCTION_ERROR] A function of the user raised:
Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.
: java.io.IOException: Input/output error
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
    error = translated(RuntimeError(text), ORDERS)
    assert error.error_class == "java.io.IOException"
    assert "java.io.IOException: Input/output error" in error.what


@pytest.mark.parametrize(
    "error",
    [
        TransientError('it has "quotes",\na {brace} and ünïcode.', code="database-unavailable"),
        TerminalError("it was refused.", code="sink-write-refused", lost="Nothing.", fix="ask."),
        FileAbsentError("commits/3"),
    ],
)
def test_an_error_of_tidemill_leaves_a_batch_function_as_it_is(error):
    message = f"[FOREACH_BATCH_USER_FUNCTION_ERROR] {CarriedError(error)} SQLSTATE: 39000 {{}}\n\tat x.y"
    failure = translated(RuntimeError(message), ORDERS)
    assert isinstance(error, type(failure))
    assert (failure.code, failure.transient) == (error.code, error.transient)
    assert str(failure).startswith(str(error.of("shop/orders")))


@pytest.mark.parametrize(
    ("message", "error", "code"),
    [
        ("java.net.ConnectException: Connection refused", TransientError, "query-interrupted"),
        (
            "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected.",
            TransientError,
            "query-interrupted",
        ),
        (
            "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 3: ...",
            TransientError,
            "upstream-columns-changed",
        ),
        (
            "[STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES] Each source must have a unique name.",
            TerminalError,
            "source-used-twice",
        ),
        (
            "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key schema.",
            CheckpointError,
            "state-incompatible",
        ),
        (
            "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] It does not match the state metadata.",
            CheckpointError,
            "state-incompatible",
        ),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED]", CheckpointError, "checkpoint-not-sound"),
    ],
    ids=lambda value: value.split()[0].strip("[]:") if isinstance(value, str) else value.__name__,
)
def test_what_spark_reports_has_a_code_and_the_type_that_decides_about_a_retry(message, error, code):
    stopped = (
        f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {message} SQLSTATE: XXKST"
    )
    failure = translated(RuntimeError(stopped), ORDERS)
    assert (failure.code, type(failure)) == (code, error)
    assert failure.stream == str(ORDERS)


def test_the_fix_of_an_input_that_is_used_twice_is_an_expression_of_python():
    failure = translated(RuntimeError("[STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES]"), ORDERS)
    assert "source={'left': s, 'right': s}" in failure.fix


def test_a_message_ends_before_the_plan():
    error = translated(
        RuntimeError("It cannot be planned;\n~Project [n#1L]\n+- ~StreamingRelation delta"), ORDERS
    )
    assert error.what == "RuntimeError: It cannot be planned."


def test_a_query_listener_that_spark_cannot_create_is_named():
    text = """An error occurred while calling o86.streams.
: org.apache.spark.SparkException: Exception when registering StreamingQueryListener.
\tat org.apache.spark.errors.SparkCoreErrors$.x(SparkCoreErrors.scala:1)
Caused by: java.lang.ClassNotFoundException: shop.Listener
\tat java.base/java.net.URLClassLoader.findClass(URLClassLoader.java:445)
"""
    error = translated(RuntimeError(text), ORDERS)
    assert error.code == "listener-not-loaded"
    assert "java.lang.ClassNotFoundException: shop.Listener." in str(error)
    unknown = translated(RuntimeError("Exception when registering StreamingQueryListener."), ORDERS)
    assert unknown.code == "listener-not-loaded"
