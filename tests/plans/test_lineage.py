"""The columns that each output column is computed from, in plans as Spark prints them; without a JVM."""

import pytest

from tidemill.plans.lineage import lineage_of

FLIGHTS = 'StreamingRelation delta, [carrier#1, n#3L, tags#4, _batch#5], name="flights"'
READ = f"""CollectMetrics tidemill_read_flights, [count(1) AS rows#8L], 12
+- Project [carrier#1, n#3L, tags#4]
   +- {FLIGHTS}"""
OTHERS = """CollectMetrics tidemill_read_others, [count(1) AS rows#18L], 13
+- StreamingRelation delta, [carrier#11, n#13L], name="others\""""
NAMES = "Relation [carrier#21,name#22] parquet"
CARRIER, N, TAGS = ("flights", "carrier"), ("flights", "n"), ("flights", "tags")


def plan(*nodes: str) -> str:
    """Return a plan of one node per argument, the first one at the top, each below the one before."""
    text = ""
    for node in reversed(nodes):
        head, *rest = node.split("\n")
        text = "\n".join([head, *rest, *_below(text)])
    return text


def _below(text: str, branch: str = "+- ", rest: str = "   ") -> list[str]:
    first, *others = text.split("\n")
    return [f"{branch}{first}", *(f"{rest}{line}" for line in others)] if text else []


def both(node: str, left: str, right: str) -> str:
    return "\n".join([node, *_below(left, ":- ", ":  "), *_below(right)])


def test_a_column_comes_from_all_columns_of_its_expressions():
    text = plan(
        "Project [lower(code#7) AS code#9, total#6L, n#3L, 1 AS one#10]",
        "Filter (total#6L > 3)",
        "Project [concat(CARRIER#1, , cast(n#3L as string)) AS code#7, (n#3L + n#3L) AS total#6L, n#3L]",
        READ,
    )
    assert lineage_of(text, ["code", "total", "n", "one"]) == {"code": (CARRIER, N), "total": (N,), "n": (N,)}


def test_aggregates_lambdas_and_exploded_arrays_are_read():
    text = plan(
        "Aggregate [carrier#1], [carrier#1, sum(n#3L) AS total#30L, count(1) AS rows#31L, max(tag#32) AS tag#33, "
        "max(long#34) AS long#35]",
        "Generate explode(tags#4), false, [tag#32]",
        "Project [carrier#1, n#3L, tags#4, filter(tags#4, lambdafunction((length(lambda x_1#40) > 1), "
        "lambda x_1#40, false)) AS long#34]",
        READ,
    )
    assert lineage_of(text, ["carrier", "total", "rows", "tag", "long"]) == {
        "carrier": (CARRIER,),
        "total": (N,),
        "tag": (TAGS,),
        "long": (TAGS,),
    }


def test_each_side_of_a_join_and_a_snapshot_has_its_own_columns():
    streams = both("Join LeftOuter, (carrier#1 = carrier#11)", READ, OTHERS)
    joined = plan(
        "Project [coalesce(n#3L, n#13L) AS n#50L, name#22]",
        both("Join Inner, (carrier#1 = carrier#21)", streams, f"Project [carrier#21, name#22]\n+- {NAMES}"),
    )
    snapshot = f"Project [carrier#21, name#22]\n+- {NAMES}"
    expected = {"n": (N, ("others", "n")), "name": (("names", "name"),)}
    assert lineage_of(joined, ["n", "name"], {"names": snapshot}) == expected
    assert lineage_of(joined, ["n", "name"]) == {"n": expected["n"]}, "a table that is no source"
    semi = both("Join LeftSemi, (carrier#1 = carrier#11)", READ, OTHERS)
    assert lineage_of(semi, ["carrier", "n", "tags"]) == {"carrier": (CARRIER,), "n": (N,), "tags": (TAGS,)}


def test_a_column_of_a_union_comes_from_every_branch():
    text = both("Union false, false", plan("Project [carrier#1, n#3L]", READ), OTHERS)
    assert lineage_of(text, ["carrier", "n"]) == {
        "carrier": (CARRIER, ("others", "carrier")),
        "n": (N, ("others", "n")),
    }
    partly = plan("Project [f(carrier#11)#60 AS carrier#61, n#13L]", OTHERS)
    text = both("Union false, false", plan("Project [carrier#1, n#3L]", READ), partly)
    assert lineage_of(text, ["carrier", "n"]) == {"n": (N, ("others", "n"))}


def test_the_rows_of_an_expansion_are_alternatives():
    text = plan(
        "Aggregate [key#70, spark_grouping_id#71L], [key#70, sum(n#3L) AS total#72L]",
        "Expand [[n#3L, carrier#1, 0], [n#3L, null, 1]], [n#3L, key#70, spark_grouping_id#71L]",
        READ,
    )
    assert lineage_of(text, ["key", "total"]) == {"key": (CARRIER,), "total": (N,)}


@pytest.mark.parametrize(
    "expression",
    [
        "f(carrier#1)#80",
        "scalar-subquery#80 []",
        "concat(carrier#1, , the name#3)",
        "concat(carrier#1, , seen#3)",
        "concat(carrier#1, , see #99)",
        "_batch#5",
    ],
)
def test_a_column_that_cannot_be_read_is_left_out(expression):
    text = plan(f"Project [{expression} AS a#81, n#3L]", READ)
    assert lineage_of(text, ["a", "n"]) == {"n": (N,)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        FLIGHTS,
        plan("MapInPandas f(carrier#1)#80, [carrier#81, n#82L]", READ),
        plan("Project [carrier#81, n#82L]", "MapInPandas f(carrier#1)#80, [carrier#81, n#82L]", READ),
        plan("Project [carrier#1, concat(n#3L, )) AS n#82L]", READ),
        plan("Project [x, carrier#1 AS carrier#81, n#3L]", READ),
        plan("Project [n#3L, carrier#1]", READ),
        plan("Project [carrier#1, n#3L, n#3L]", READ),
        "Union false, false\n:- LocalRelation <empty>, [a#1]\n+- LocalRelation <empty>, [a#1, b#2]",
        "Expand [[n#3L], [n#3L, 1]], [carrier#1, n#3L]\n+- LocalRelation <empty>, [n#3L]",
        "\n".join(f"{'   ' * depth}+- Filter true" for depth in range(3000)),
    ],
)
def test_a_plan_that_cannot_be_read_has_no_lineage(text):
    assert lineage_of(text, ["carrier", "n"]) == {}


def test_what_delta_and_tidemill_add_to_rows_is_no_column_of_the_source():
    changes = """CollectMetrics tidemill_read_flights, [count(1) AS rows#8L], 12
+- StreamingRelation delta, [carrier#1, _change_type#2, _origin#6], name="flights\""""
    text = plan(
        "Project [carrier#1, _change_type#2, concat(carrier#1, _change_type#2) AS both#3, _origin#6]", changes
    )
    expected = {"carrier": (CARRIER,), "both": (CARRIER,)}
    assert lineage_of(text, ["carrier", "_change_type", "both", "_origin"]) == expected
