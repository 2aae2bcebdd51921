"""The stateful operators in a plan as Spark prints it, and the verdict about two lists of them; without a JVM."""

import json
from dataclasses import dataclass, replace

import pytest

from tests.support.raising import raises
from tidemill.plans.operators import STATE_TYPES, have_timers, kept_aggregates, operators_of, with_types
from tidemill.plans.state_compatibility import check, verdict
from tidemill.records.manifest import (
    AcceptedChange,
    Generation,
    StatefulOperator,
    first_manifest,
    read_manifest,
    write_manifest,
)
from tidemill.run.spark.classic import stable
from tidemill.storage.memory_store import MemoryStore
from tidemill.text.names import StreamName

STREAM = StreamName("air", "result")
TIME = "precisetimestampconversion(t#4-T600000ms, TimestampType, LongType)"
REMAINDER = f"(({TIME} - {{offset}}) % {{slide}})"
START = f"({TIME} - CASE WHEN ({REMAINDER} < cast(0 as bigint)) THEN ({REMAINDER} + {{slide}}) ELSE {REMAINDER} END)"
WINDOW = (
    f"named_struct(start, knownnullable(precisetimestampconversion(({START} - {{shift}}), LongType, TimestampType)), "
    f"end, knownnullable(precisetimestampconversion((({START} - {{shift}}) + {{size}}), LongType, TimestampType)))"
)
SESSION = (
    f"named_struct(start, precisetimestampconversion({TIME}, LongType, TimestampType), end, "
    "knownnullable(precisetimestampconversion(precisetimestampconversion(cast(t#4-T600000ms + "
    "cast(5 minutes as interval) as timestamp), TimestampType, LongType), LongType, TimestampType)))"
)
HOUR = 3_600_000_000
SOURCE = 'StreamingRelation delta, [carrier#1, origin#2, n#3L, t#4], name="flights"'
MARKED = (
    f"EventTimeWatermark db8578a5-cc5e-4caf-87bf-1a444105c6bb, t#4: timestamp, 10 minutes\n   +- {SOURCE}"
)


def window(size, slide, offset=0, shift=0):
    return WINDOW.format(size=size, slide=slide, offset=offset, shift=shift)


def plan(*nodes: str) -> str:
    """Return a plan of one node per line, the first one at the top."""
    lines = "\n+- ".join(nodes).split("\n")
    depths = [0]
    for line in lines[1:]:
        depths.append(depths[-1] + (3 if line.lstrip().startswith("+- ") else 0))
    return "\n".join(
        " " * max(0, depth - 3) + line.lstrip() for depth, line in zip(depths, lines, strict=True)
    )


def properties(*nodes: str) -> dict[str, str]:
    [operator] = operators_of(plan(*nodes))
    return dict(operator.properties)


def test_a_key_is_what_the_projections_below_compute_it_from():
    direct = properties("Aggregate [origin#2], [origin#2 AS carrier#9, count(1) AS count#8L]", SOURCE)
    below = properties(
        "Aggregate [carrier#9], [carrier#9, count(1) AS count#8L]",
        "Project [upper(name#7) AS carrier#9]",
        "Project [concat(origin#2, , x) AS name#7, n#3L]",
        SOURCE,
    )
    assert (direct["group keys"], direct["aggregates"]) == ("origin", "count(1)")
    assert below["group keys"] == "upper(concat(origin, , x))"
    assert below["sources"] == "flights"


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        (window(HOUR, HOUR), "t, 1 hour"),
        (window(3 * HOUR, HOUR), "t, 3 hours, every 1 hour"),
        (window(HOUR // 2, HOUR // 2, HOUR // 4), "t, 30 minutes, offset 15 minutes"),
        (window(90_000_000, 90_000_000), "t, 90 seconds"),
    ],
)
def test_a_window_is_shown_as_it_was_declared(expression, shown):
    known = properties(
        "~Aggregate [window#7-T600000ms, carrier#1], [window#7-T600000ms, carrier#1, count(1) AS count#8L]",
        f"~Project [{expression} AS window#7-T600000ms, carrier#1, origin#2, n#3L, t#4-T600000ms]",
        "~Filter isnotnull(t#4-T600000ms)",
        MARKED,
    )
    assert known["window"] == shown
    assert known["group keys"] == "window, carrier"
    assert known["watermark"] == "t: 10 minutes"
    assert "filters" not in known


def test_a_window_that_slides_and_a_session_window():
    sliding = properties(
        "Aggregate [window#7], [window#7, count(1) AS count#8L]",
        "Filter isnotnull(t#4-T600000ms)",
        f"Expand [[{window(HOUR, HOUR // 2)}, t#4-T600000ms], "
        f"[{window(HOUR, HOUR // 2, shift=HOUR // 2)}, t#4-T600000ms]], [window#7, t#4-T600000ms]",
        MARKED,
    )
    assert (sliding["window"], sliding.get("steps")) == ("t, 1 hour, every 30 minutes", None)
    [session] = operators_of(
        plan(
            "Aggregate [session_window#7], [session_window#7, count(1) AS count#8L]",
            f"Project [{SESSION} AS session_window#7, t#4-T600000ms]",
            MARKED,
        )
    )
    assert (session.kind, session.properties["session window"]) == ("session window", "t, 5 minutes")


def test_the_sides_of_a_join_are_told_apart_and_a_lookup_is_a_step():
    [join] = operators_of(
        "Project [carrier#1, n#3L]\n"
        "+- Join Inner, ((carrier#1 = carrier#11) AND (t#14 >= t#4))\n"
        "   :- Filter (n#3L > 1)\n"
        f"   :  +- {SOURCE}\n"
        '   +- StreamingRelation delta, [carrier#11, n#13L, t#14, x#15], name="others"\n'
    )
    assert join.kind == "stream-stream join"
    assert join.properties == {
        "type": "Inner",
        "condition": "((left.carrier = right.carrier) AND (right.t >= left.t))",
        "left columns": "carrier, n, t",
        "right columns": "carrier, t",
        "filters": "(left.n > 1)",
        "sources": "flights, others",
    }
    [lookup] = operators_of(
        "Aggregate [name#21], [name#21, count(1) AS count#8L]\n"
        "+- Join Inner, (carrier#1 = carrier#20)\n"
        f"   :- {SOURCE}\n"
        "   +- Relation [carrier#20,name#21] parquet\n"
    )
    assert lookup.properties["group keys"] == "static.name"
    assert lookup.properties["steps"] == "Join Inner, (carrier = static.carrier)"


def test_the_branches_of_a_union_count_only_where_they_differ():
    def union(second: str) -> str:
        return (
            "Aggregate [carrier#1], [carrier#1, count(1) AS count#8L]\n"
            "+- Union false, false\n"
            "   :- CollectMetrics counted, [count(1) AS rows#90L], 7\n"
            "   :  +- Project [carrier#1]\n"
            f"   :     +- {SOURCE}\n"
            f"   +- {second}\n"
            '      +- StreamingRelation delta, [carrier#11, x#15], name="others"\n'
        )

    [same] = operators_of(union("Project [carrier#11]"))
    [other] = operators_of(union("Project [x#15 AS carrier#16]"))
    assert same.properties["group keys"] == "carrier"
    assert other.properties["group keys"] == "(carrier or x)"


def test_a_literal_with_a_bracket_loses_no_difference():
    def keys(pattern: str) -> dict[str, str]:
        nodes = [
            "Aggregate [e#9], [e#9, count(1) AS count#8L]",
            f"Project [split(origin#2, {pattern}, -1) AS e#9]",
        ]
        return properties(*nodes, SOURCE)

    assert keys("[(") != keys("[,")
    assert keys("[(") == keys("[(")
    many = properties("Aggregate [rlike(origin#2, [)], [count(1) AS count#8L]", SOURCE)
    assert "rlike(origin, [)" in many["expressions"]


def test_what_differs_in_each_process_is_left_out():
    def made(number: int) -> dict[str, str]:
        return properties(
            f"Aggregate [k#{number}], [k#{number}, count(1) AS count#{number + 1}L]",
            f"Filter ((rand({number}) < 0.5) AND exists(xs#{number + 2}, lambdafunction((lambda x_{number}#99 > 0), "
            f"lambda x_{number}#99, false)))",
            f"Sample 0.0, 0.1, false, {number}",
            f"CollectMetrics counted, [count(1) AS rows#{number + 3}L], {number}",
            f"Project [origin#{number + 4} AS k#{number}, xs#{number + 2}]",
            f'StreamingRelation delta, [origin#{number + 4}, xs#{number + 2}], name="flights"',
        )

    assert made(100) == made(7000)
    assert made(100)["steps"] == "Sample 0.0, 0.1, false"


def test_a_fingerprint_sees_nothing_that_differs_in_each_process():
    def made(number: int) -> str:
        return stable(
            f"Filter exists(xs#{number}, lambdafunction((lambda x_{number}#{number} > 0), "
            f"lambda x_{number}#{number}))\n"
            f"+- CollectMetrics counted, [count(1) AS rows#{number}L], {number}\n"
            f"   +- StreamingRelationV2 KafkaSourceProvider@{number}, kafka, Table@3bae{number}, [xs#{number}]"
        )

    assert made(100) == made(7000)
    assert made(100).startswith("Filter exists(xs, lambdafunction((lambda x > 0), lambda x))")


def test_the_columns_of_a_source_with_options_are_known():
    kafka = (
        "StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@6e71ff5d, kafka, Table@3bae550a, "
        "[kafka.bootstrap.servers=h:1, subscribe=x], [key#448, value#449], StreamingRelation kafka, "
        '[key#441, value#442], name=<Unassigned>, name="k"'
    )
    known = properties("Deduplicate [value#449]", kafka)
    assert known == {"keys": "value", "sources": "k"}


@pytest.mark.parametrize(
    "behind", ["python_row, false, 0", "pandas, true, 1, [StructField(n,LongType,true)]"]
)
def test_timers_of_the_processing_time_are_seen_also_beside_an_initial_state(behind):
    node = f"TransformWithStateInPySpark udf(n#3L)#7, 1, [user#8, n#9L], Update, ProcessingTime, {behind}"
    [operator] = operators_of(plan(node, SOURCE))
    assert operator.properties["mode"] == "Update, ProcessingTime"
    assert have_timers([operator])


@pytest.mark.parametrize(
    "nodes",
    [
        ("Aggregate [a#1], [a#1, count(1) AS n#2L]", "Relation [a#1,b#2] parquet"),
        ("Project [carrier#1]", SOURCE),
    ],
)
def test_a_plan_without_a_stream_or_without_state_has_no_operators(nodes):
    assert operators_of(plan(*nodes)) == ()


@pytest.mark.parametrize(
    "unreadable", ["", "Join Inner, (a#1 = b#2)\n+- StreamingRelation delta, [a#1, b#2]"]
)
def test_a_plan_that_cannot_be_read_is_not_judged(unreadable):
    assert operators_of(unreadable) is None
    assert verdict(GENERATION, Tail(), None, "b").kind == "unknown"


def test_a_column_that_a_source_gained_changes_no_operator():
    def made(columns: str) -> tuple[StatefulOperator, ...] | None:
        return operators_of(
            plan(
                "Aggregate [k#20, g#12L], [k#20, g#12L, count(1) AS count#8L]",
                f"Expand [[{columns}, k#9, 0], [{columns}, null, 1]], [{columns}, k#20, g#12L]",
                "Project [upper(name#7) AS k#9]",
                f"MapInPandas f({columns})#99, [name#7], false",
                f'StreamingRelation delta, [{columns}], name="flights"',
            )
        )

    [operator] = made("carrier#1, origin#2") or ()
    assert made("carrier#1, origin#2, extra#3") == (operator,)
    assert operator.properties["group keys"] == "(upper(name of MapInPandas f) or null), (0 or 1)"
    assert operator.properties["steps"] == "MapInPandas f"


# The verdict.


@dataclass(frozen=True)
class Tail:
    """What a verdict reads of a checkpoint."""

    latest_commit: object | None = "a commit"
    stateful: bool = True


OPERATOR = StatefulOperator(
    kind="aggregate", properties={"group keys": "carrier", STATE_TYPES: "string; long not null"}
)
GENERATION = Generation(number=1, began_at="", why="first run", fingerprint="a", operators=(OPERATOR,))


def with_property(name: str, value: str) -> StatefulOperator:
    return replace(OPERATOR, properties={**OPERATOR.properties, name: value})


def judge(*operators, generation=GENERATION, tail=Tail(), fingerprint="b"):
    return verdict(generation, tail, operators, fingerprint)


@pytest.mark.parametrize(
    ("operators", "kind"),
    [
        ([OPERATOR], "safe"),
        ([with_property("group keys", "origin")], "mixes_state"),
        ([with_property("filters", "(n > 3)")], "mixes_state"),
        ([with_property("sources", "flights, others")], "safe"),
        ([with_property(STATE_TYPES, "long; long not null")], "refused_by_spark"),
        ([with_property(STATE_TYPES, "string; long")], "refused_by_spark"),
        ([with_property(STATE_TYPES, "string; long not null, long")], "refused_by_spark"),
        ([with_property(STATE_TYPES, "string not null; long not null")], "safe"),
        ([with_property(STATE_TYPES, "")], "safe"),
        ([], "refused_by_spark"),
        ([OPERATOR, OPERATOR], "refused_by_spark"),
        ([replace(OPERATOR, kind="session window")], "refused_by_spark"),
    ],
)
def test_a_difference_decides_the_verdict(operators, kind):
    result = judge(*operators)
    assert result.kind == kind
    if kind == "safe":
        check(STREAM, result)
    else:
        with raises("code-changed") as refused:
            check(STREAM, result)
        assert "tidemill accept air/result --change" in refused.value.fix
        assert "tidemill rebuild air/result" in refused.value.fix


def test_the_same_code_changes_nothing():
    assert judge(OPERATOR, fingerprint="a").kind == "nothing"


def test_a_checkpoint_without_a_batch_takes_any_code_that_fits_the_types_of_its_attempt():
    attempted, new = Tail(latest_commit=None), Tail(latest_commit=None, stateful=False)
    other_types = with_property(STATE_TYPES, "long; long not null")
    assert judge(with_property("group keys", "origin"), tail=attempted).kind == "safe"
    assert judge(other_types, tail=attempted).kind == "refused_by_spark"
    assert judge(other_types, tail=new).kind == "safe"
    assert judge(other_types, tail=attempted, generation=replace(GENERATION, operators=None)).kind == "safe"


def test_a_manifest_without_operators_is_judged_by_what_is_known():
    old = replace(GENERATION, operators=None)
    assert judge(OPERATOR, generation=old).kind == "unknown"
    assert judge(OPERATOR, generation=old, fingerprint="a").kind == "nothing"
    assert judge(generation=old, tail=Tail(stateful=False)).kind == "safe"
    assert judge(OPERATOR, generation=old, tail=Tail(stateful=False)).kind == "refused_by_spark"


def test_a_difference_names_the_operator_and_both_values():
    second = with_property("group keys", "origin")
    result = judge(OPERATOR, second, generation=replace(GENERATION, operators=(OPERATOR, OPERATOR)))
    assert [str(difference) for difference in result.differences] == [
        "aggregate (2 of 2): group keys 'carrier' -> 'origin'"
    ]


def test_types_are_added_where_the_optimizer_kept_the_operators():
    bare = StatefulOperator(kind="session window", properties={"session window": "t, 5 minutes"})
    [typed] = with_types((bare,), [("Aggregate", "string; long")])
    assert typed.properties[STATE_TYPES] == "string; long"
    assert with_types((bare,), [("Deduplicate", "string")]) == (bare,)
    assert with_types((bare,), []) == (bare,)


def test_a_rewind_behind_an_accepted_change_goes_back_to_the_operators_of_its_state():
    middle, newest = with_property("filters", "(n > 3)"), with_property("filters", "(n > 4)")
    first = AcceptedChange(accepted_at="", last_batch=3, differences=(), before=(OPERATOR,))
    second = AcceptedChange(accepted_at="", last_batch=5, differences=(), before=(middle,))
    generation = replace(GENERATION, operators=(newest,), accepted_changes=(first, second))
    for batch, operator, accepted in ((3, OPERATOR, ()), (4, middle, (first,)), (6, newest, (first, second))):
        rewound = generation.at(batch)
        assert (rewound.operators, rewound.accepted_changes) == ((operator,), accepted)


@pytest.mark.parametrize(
    ("expression", "aggregates"),
    [
        ("(count(1) + 1000)", ["count(1)"]),
        ("(sum(n#3L) / max(abs((n#3L + 1))))", ["sum(n#3L)", "max(abs((n#3L + 1)))"]),
        ("(count(n#3L) FILTER (WHERE (n#3L > 1)) * 2)", ["count(n#3L) FILTER (WHERE (n#3L > 1))"]),
        ("round(sum(max(count)#8L), 2)", ["sum(max(count)#8L)"]),
        ("array_max(collect_list(n#3L, 0, 0))", ["collect_list(n#3L, 0, 0)"]),
        ("(sum(count)#8L + max(n#3L))", ["max(n#3L)"]),
        ("mine(n#3L)#9", ["mine(n#3L)#9"]),
    ],
)
def test_state_is_kept_for_aggregate_functions_and_not_for_what_is_around_them(expression, aggregates):
    assert kept_aggregates(expression) == aggregates


def test_operators_are_in_the_manifest_and_an_older_manifest_has_none():
    files = MemoryStore()
    accepted = AcceptedChange(accepted_at="", last_batch=3, differences=("a change",), before=(OPERATOR,))
    manifest = first_manifest({}).with_active(operators=(), accepted_changes=(accepted,))
    write_manifest(files, manifest)
    assert read_manifest(files, STREAM) == manifest
    content = json.loads(files.read("manifest.json"))
    for name in ("operators", "accepted_changes"):
        del content["generations"][0][name]
    files.replace("manifest.json", json.dumps(content).encode())
    active = read_manifest(files, STREAM).active
    assert (active.operators, active.accepted_changes) == (None, ())
