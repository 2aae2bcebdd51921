"""The one module that uses internals of classic Spark; on Spark Connect each has another way."""

import json
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import DataFrame, Observation, SparkSession

_UNSTABLE = (
    (re.compile(r"^(.*CollectMetrics .*\]), \d+$", re.MULTILINE), r"\1"),  # the id of a DataFrame
    (re.compile(r"(?<=\w)@[0-9a-f]{1,8}\b"), ""),
    (re.compile(r"\blambda ([a-z]+)_\d+#"), r"lambda \1#"),
    (re.compile(r"#\d+L?"), ""),
    (re.compile(r"\b(CTERelation(?:Def|Ref)) \d+"), r"\1"),
    (
        re.compile(r"\b_pyspark_(?:connect_temp_view_)?[0-9a-f]{32}\b"),
        "_pyspark",
    ),  # a DataFrame in a SQL text
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), ""),
)
_ASYNC = "asyncProgressTrackingEnabled"
_ASYNC_REFUSED = "Async progress tracking cannot be used"
_LISTENER_SECONDS = 1.0
_LONGEST_LISTENER_SECONDS = 60.0
_LISTENER_POLL_SECONDS = 0.002
_ALL_FIELDS = 2**31 - 1
_NOT_NULL = re.compile(r"isnotnull\([^()]*#(\d+)L?(?:-T\d+ms)?\)")
_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== Optimized Logical Plan ==", re.DOTALL)


def is_classic(spark: "SparkSession") -> bool:
    """Return whether the session has a JVM of its own and is not behind Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def jvm_pid(spark: "SparkSession") -> int | None:
    """Return the process id of the session's own JVM; None on Spark Connect."""
    if not is_classic(spark):
        return None
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to the JVM's process id
    return int(jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def use_scheduler_pool(spark: "SparkSession", pool: str) -> None:
    """Put the jobs of this thread into a pool of their own, so that streams share the cores fairly."""
    if is_classic(spark):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def wait_for_listeners(spark: "SparkSession") -> None:
    """Wait until the listeners of the application have each event that happened before, for a minute at most."""
    bus = spark.sparkContext._jsc.sc().listenerBus()  # noqa: SLF001 - no public way
    with suppress(Exception):  # the time is up, or the JVM has ended
        bus.waitUntilEmpty(int(_LONGEST_LISTENER_SECONDS * 1000))


def local_checkpoint(rows: "DataFrame") -> "DataFrame":
    """Return rows as one execution of their plan computed them, so that no other execution computes them again.

    Spark Connect computes them in their session, and pyspark then looks for the result in the active session of the
    thread, which may be another one.
    """
    spark = rows.sparkSession
    if is_classic(spark):
        return rows.localCheckpoint(eager=True)
    connect: Any = type(spark)
    thread = connect._active_session  # noqa: SLF001 - there is no public way to set it
    active = getattr(thread, "session", None)
    thread.session = spark
    try:
        checkpoint = rows.localCheckpoint(eager=True)
    finally:
        thread.session = active
    # pyspark gives the metrics of a checkpoint to no observation.
    plan: Any = rows._plan  # noqa: SLF001 - of Spark Connect
    for name, metrics in rows.executionInfo.flows if rows.executionInfo else ():
        if name in plan.observations:
            plan.observations[name]._result.update(metrics)  # noqa: SLF001
    return checkpoint


def release_checkpoint(rows: "DataFrame") -> None:
    """Free the blocks of a local checkpoint; Spark Connect frees them when the DataFrame is collected."""
    if is_classic(rows.sparkSession):
        rows._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001 - no public way


def observed_metrics(spark: "SparkSession", observation: "Observation") -> dict[str, Any] | None:
    """Return what an observation counted; None where the plan that was executed no longer had it.

    Classic Spark reports the end of an execution to its listeners some moments later, in order, and `get` would wait
    forever for metrics that never come: those of an execution that has ended after this one come after them.

    Args:
        spark: A session of the application.
        observation: An observation of rows whose execution has ended.
    """
    return observation.get or None if not is_classic(spark) or _is_known(spark, observation) else None


def observed_json(spark: "SparkSession", observation: "Observation") -> dict[str, Any] | None:
    """Return what an observation counted as `observed_metrics` does, with the values that progress has as JSON."""
    if not is_classic(spark):
        return observation.get or None
    if not _is_known(spark, observation):
        return None
    metrics: dict[str, Any] = json.loads(observation._jo.getRow().json())  # type: ignore[union-attr]  # noqa: SLF001
    return metrics


def named_observations(rows: "DataFrame", names: "Collection[str]") -> "dict[str, Observation]":
    """Return observations that a plan has by name as objects that receive their metrics, by name.

    A user observes by name, because only a query without batches of its own could take an object.

    Args:
        rows: A DataFrame that has not been executed.
        names: The names.
    """
    from pyspark.sql import Observation

    spark = rows.sparkSession
    if not is_classic(spark):
        return _connect_observations(rows, names)
    manager = rows._jdf.sparkSession().observationManager()  # noqa: SLF001 - no public way to a named observation
    observations = {}
    for node in _nodes(rows._jdf.queryExecution().analyzed()):  # noqa: SLF001
        if str(node.nodeName()) == "CollectMetrics" and (name := str(node.name())) in names:
            observation = Observation(name)
            observation._jo = manager.getOrNewObservation(name, node.dataframeId())  # noqa: SLF001
            observations[name] = observation
    return observations


def _connect_observations(rows: "DataFrame", names: "Collection[str]") -> "dict[str, Observation]":
    """Replace the names of observations in a plan of Spark Connect by objects: the client fills those only."""
    from pyspark.sql.connect.observation import Observation
    from pyspark.sql.connect.plan import CollectMetrics, LogicalPlan

    observations: dict[str, Any] = {}
    pending: list[Any] = [rows._plan]  # noqa: SLF001 - of Spark Connect
    known = set()
    while pending:
        plan = pending.pop()
        known.add(id(plan))
        if isinstance(plan, CollectMetrics) and (name := str(plan._observation)) in names:  # noqa: SLF001
            observations[name] = plan._observation = Observation(name)  # noqa: SLF001
            plan._observation._result = {}  # noqa: SLF001
        pending += [
            part for part in vars(plan).values() if isinstance(part, LogicalPlan) and id(part) not in known
        ]
    return observations


def _is_known(spark: "SparkSession", observation: "Observation") -> bool:
    """Wait until an observation has metrics, or never will; return whether it has."""
    if not _has_ended(observation, _LISTENER_SECONDS):
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        later = Observation()
        spark.range(1).observe(later, F.count(F.lit(1)).alias("rows")).collect()
        _has_ended(later, _LONGEST_LISTENER_SECONDS)  # a listener that is overloaded drops events
    return _has_ended(observation, 0) and bool(observation._jo.getRow().length())  # type: ignore[union-attr]  # noqa: SLF001


def _has_ended(observation: "Observation", seconds: float) -> bool:
    """Wait for the end of an observation; return whether it has come."""
    future = observation._jo.future()  # type: ignore[union-attr]  # noqa: SLF001 - no public way to look without waiting
    deadline = time.monotonic() + seconds
    while not future.isCompleted() and time.monotonic() < deadline:
        time.sleep(_LISTENER_POLL_SECONDS)
    return bool(future.isCompleted())


def task_slots(spark: "SparkSession") -> int | None:
    """Return how many tasks Spark can run at the same time; None with Spark Connect, which does not say it."""
    return spark.sparkContext.defaultParallelism if is_classic(spark) else None


def check_supported(rows: "DataFrame", output_mode: str) -> None:
    """Raise what the start of a query would raise about its plan; nothing is read.

    A start comes after the tables were made ready, and a refusal must leave them as they are.

    Args:
        rows: A streaming DataFrame.
        output_mode: The query's output mode.
    """
    spark = rows.sparkSession
    if is_classic(spark):
        sql = spark.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001 - no public way
        mode = getattr(sql.streaming.OutputMode, output_mode.capitalize())()
        plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        return
    # A start checks the plan first, and then refuses this trigger together with this option.
    writer = rows.writeStream.format("noop").outputMode(output_mode).option(_ASYNC, "true")
    try:
        writer.trigger(availableNow=True).start().stop()
    except Exception as refused:
        if _ASYNC_REFUSED not in str(refused):
            raise


def explained(rows: "DataFrame") -> str:
    """Return the extended explain string of a streaming DataFrame; an empty one where Spark cannot explain it.

    Its physical plan is the one that a query would run, with Spark's own decisions about state.
    """
    spark = rows.sparkSession
    limit = "spark.sql.debug.maxToStringFields"  # longer lists of columns and conditions would be cut off
    before = spark.conf.get(limit)
    spark.conf.set(limit, "10000")
    try:
        if is_classic(spark):
            python_utils = spark.sparkContext._jvm.PythonSQLUtils  # type: ignore[union-attr]  # noqa: SLF001
            return str(python_utils.explainString(rows._jdf.queryExecution(), "extended"))  # noqa: SLF001
        return str(rows._explain_string(extended=True))  # type: ignore[operator]  # noqa: SLF001
    except Exception:  # noqa: BLE001 - the start of the query will report what is wrong with the plan
        return ""
    finally:
        spark.conf.set(limit, str(before))


def plan_text(rows: "DataFrame", locations: dict[str, str]) -> str:
    """Return the analyzed plan, the same in every process.

    Args:
        rows: Any DataFrame, streaming or not.
        locations: What to write instead of each location.
    """
    if is_classic(rows.sparkSession):
        text = rows._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - semanticHash() is not stable
    else:
        text = ""
        with suppress(Exception):  # the check or the start of the query reports what is wrong with the plan
            explained = rows._explain_string(extended=True)  # type: ignore[operator]  # noqa: SLF001 - the only text there
            analyzed = _ANALYZED.search(explained)
            text = analyzed[1] if analyzed else explained
    return stable(_located(text, locations))


def stable(plan: str) -> str:
    """Return a plan without what differs in each process: ids, the addresses of objects, the numbers of variables."""
    for pattern, word in _UNSTABLE:
        plan = pattern.sub(word, plan)
    return plan


def _located(plan: str, locations: dict[str, str]) -> str:
    for location, word in locations.items():
        plan = plan.replace(location, word)
    return plan


def full_plan(rows: "DataFrame", locations: dict[str, str]) -> str:
    """Return the analyzed plan with all columns and with the ids of expressions.

    Args:
        rows: A streaming DataFrame.
        locations: What to write instead of each location.
    """
    if is_classic(rows.sparkSession):
        analyzed = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way to a plan
        text = str(analyzed.treeString(True, False, _ALL_FIELDS, False, False))
    else:
        match = _ANALYZED.search(explained(rows))
        text = match[1].partition("\n")[2] if match else ""  # the schema comes first
    return _located(text, locations)


def state_types(rows: "DataFrame") -> list[tuple[str, str]]:
    """Return the name of each stateful node of the optimized plan, and the types of what it keeps.

    The optimizer decides which columns a join keeps, and replaces aggregates by others. Spark compares the types, in
    their order, with those in the checkpoint; names do not count.

    Returns:
        The nodes from the sink down; none on Spark Connect, where types are not known.
    """
    if not is_classic(rows.sparkSession):
        return []
    try:
        analyzed = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way to a plan
        optimizer = rows._jdf.sparkSession().sessionState().optimizer()  # noqa: SLF001
        catalyst = rows.sparkSession.sparkContext._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]  # noqa: SLF001
        return list(_typed(optimizer.execute(analyzed.clone()), catalyst))
    except Exception:  # noqa: BLE001 - types refine a verdict that is sound without them
        return []


def _typed(node: Any, catalyst: Any) -> "Iterator[tuple[str, str]]":
    """Yield the stateful nodes of a plan in the JVM, with their types."""
    if not node.isStreaming():
        return
    name = str(node.nodeName())
    if name == "Aggregate":
        buffers = dict.fromkeys(
            buffer for part in each(node.aggregateExpressions()) for buffer in _buffers(part)
        )
        yield name, f"{_types(node.groupingExpressions())}; {', '.join(types for _, types in buffers)}"
    elif name.startswith("Deduplicate"):
        yield name, _types(node.keys())
    elif name == "Join" and node.left().isStreaming() and node.right().isStreaming():
        keys = catalyst.planning.ExtractEquiJoinKeys.unapply(node)
        key = _types(keys.get()._2()) if keys.isDefined() else ""  # noqa: SLF001 - a tuple of Scala
        yield name, f"{key}; {_types_of_side(node.left())}; {_types_of_side(node.right())}"
    elif name == "FlatMapGroupsInPandasWithState":
        timeout = "" if str(node.timeout().toString()) == "NoTimeout" else ", timeout"
        state = f"{_described(json.loads(node.stateType().json()))}{timeout}"
        yield name, f"{_types(node.groupingAttributes())}; {state}"
    elif name == "GlobalLimit" or name.startswith(("FlatMapGroupsWithState", "TransformWithState")):
        yield name, ""
    for child in each(node.children()):
        yield from _typed(child, catalyst)


def _buffers(expression: Any) -> "Iterator[tuple[str, str]]":
    """Yield each aggregate function in an expression, with the types that Spark keeps for it."""
    if str(expression.getClass().getSimpleName()) == "AggregateExpression":
        yield str(expression.toString()), _types(expression.aggregateFunction().aggBufferAttributes())
        return
    for child in each(expression.children()):
        yield from _buffers(child)


def _types_of_side(node: Any) -> str:
    """Return the types of the rows that a join keeps of one side."""
    never_null: set[str] = set()
    pushable: set[str] = set()
    side = node
    # A filter makes columns NOT NULL for the operators above it, unless it is pushed into the source. These two stop
    # it, and a projection forgets it.
    while str(side.nodeName()) in ("Filter", "EventTimeWatermark", "CollectMetrics"):
        if str(side.nodeName()) == "Filter":
            pushable |= set(_NOT_NULL.findall(str(side.condition().toString())))
        else:
            never_null |= pushable
        side = side.child()
    return ", ".join(_type(column, never_null) for column in each(node.output()))


def _types(expressions: Any) -> str:
    return ", ".join(map(_type, each(expressions)))


def _type(expression: Any, never_null: "Collection[str]" = ()) -> str:
    nullable = bool(expression.nullable()) and not (
        never_null and str(expression.exprId().id()) in never_null
    )
    return _described(json.loads(expression.dataType().json()), nullable=nullable)


def _described(kind: Any, *, nullable: bool = True) -> str:
    """Return a type of Spark's JSON without the names of fields, which do not count."""
    match kind:
        case {"type": "struct", "fields": fields}:
            inner = (_described(field["type"], nullable=field["nullable"]) for field in fields)
            described = f"struct<{', '.join(inner)}>"
        case {"type": "array", "elementType": element, "containsNull": contains_null}:
            described = f"array<{_described(element, nullable=contains_null)}>"
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}:
            described = f"map<{_described(key)}, {_described(value, nullable=contains_null)}>"
        case _:
            described = str(kind)
    return described if nullable else f"{described} not null"


def _nodes(plan: Any) -> "Iterator[Any]":
    """Yield a node of a plan in the JVM, and all below it."""
    yield plan
    for child in each(plan.children()):
        yield from _nodes(child)


def each(sequence: Any) -> "Iterator[Any]":
    """Yield the members of a Scala sequence."""
    return (sequence.apply(position) for position in range(sequence.size()))
