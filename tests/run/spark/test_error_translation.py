"""Errors of Spark as errors of Tidemill; as pyspark 4.2.0 prints them, with less of the stacks."""

import pytest

from tidemill.checkpoint.format.errors import FileAbsentError
from tidemill.errors import TerminalError, TransientError
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
