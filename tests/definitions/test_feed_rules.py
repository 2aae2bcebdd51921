"""Which records of a feed go to quarantine: rules that raise, several JSON values in one record, headers of CSV."""

import json
from collections import Counter
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import functions as F

from tests.support.raising import raises
from tidemill import Csv, DeltaAppend, DeltaMerge, Expect, Feed, Json, Pipeline, QueryOptions
from tidemill.checks.evaluation import evaluate
from tidemill.testing import multiset

# The tests' Spark interprets expressions; compiled ones are evaluated in another order, shared parts first.
COMPILED = QueryOptions(
    options={"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
)
ENGINES = [pytest.param(QueryOptions(), id="interpreted"), pytest.param(COMPILED, id="compiled")]

PAYMENT = "id STRING, amount STRING, parts INT, items ARRAY<INT>, day STRING"
RULES = {
    "amount_positive": "CAST(amount AS DOUBLE) > 0",
    "amount_small": "CAST(amount AS DOUBLE) < 100",
    "amount_implicit": "amount BETWEEN 1 AND 1000",
    "part_large": "10 / parts >= 1",
    "next_part": "parts + 1 > 0",
    "third_item": "items[2] > 0",
    "recent": "to_date(day) >= DATE'2024-01-01'",
    "paid": "IF(id = 'broken', raise_error('broken'), true)",
}


def passes(check):
    """Whether a check in Python holds; one that raises does not."""
    try:
        return bool(check())
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False


def violations(payment):
    amount, parts, items, day = (payment.get(name) for name in ("amount", "parts", "items", "day"))
    held = {
        "amount_positive": passes(lambda: float(amount) > 0),
        "amount_small": passes(lambda: float(amount) < 100),
        "amount_implicit": passes(lambda: 1 <= int(amount) <= 1000),
        "part_large": passes(lambda: 10 / parts >= 1),
        "next_part": passes(lambda: 0 < parts + 1 < 2**31),
        "third_item": passes(lambda: items[2] > 0),
        "recent": passes(lambda: date.fromisoformat(day) >= date(2024, 1, 1)),
        "paid": payment["id"] != "broken",
    }
    return tuple(rule for rule in RULES if not held[rule])


GOOD = {"id": "p0", "amount": "5", "parts": 2, "items": [1, 2, 3], "day": "2024-05-01"}
PAYMENTS = [
    GOOD,
    GOOD | {"id": "p1", "amount": "five"},
    GOOD | {"id": "p2", "amount": None},
    GOOD | {"id": "p3", "amount": "500"},
    GOOD | {"id": "p4", "parts": 0},
    GOOD | {"id": "p5", "parts": 2**31 - 1},
    GOOD | {"id": "p6", "items": [1]},
    GOOD | {"id": "p7", "day": "yesterday"},
    GOOD | {"id": "broken"},
    GOOD | {"id": "p9", "amount": "-", "parts": 0, "items": [], "day": "2024-13-01"},
]


@pytest.mark.parametrize("query", ENGINES)
def test_a_record_for_which_a_rule_raises_goes_to_quarantine(scratch, query):
    feed = Feed("payments", format=Json(PAYMENT), rules=RULES)
    payments = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), query=query, name="payments")(
        lambda e: e
    )
    scratch.run(payments, [PAYMENTS])
    refused = {json.dumps(p): violations(p) for p in PAYMENTS if violations(p)}
    assert scratch.quarantined(payments) == multiset(refused.items())
    assert scratch.rows(payments, "id") == multiset((p["id"],) for p in PAYMENTS if not violations(p))
    assert len(refused) == len(PAYMENTS) - 1, "the oracle itself"


def awkward(events):
    """The first columns are ones from which no condition can be made: literals, a map, an empty struct."""
    return events.select(
        F.lit("shop").alias("origin"),
        F.create_map("id", "amount").alias("map"),
        F.struct(F.lit(1).alias("one")).alias("struct"),
        "*",
    )


def test_a_rule_of_the_output_that_raises_is_violated(scratch):
    rules = [
        Expect("positive", RULES["amount_positive"]),
        Expect("small", RULES["amount_small"]),
        Expect("shared", RULES["part_large"], on_violation="drop"),
        Expect("shared_too", "10 / parts < 100", on_violation="drop"),
    ]
    shop = Pipeline("shop")
    feed = Feed("payments", format=Json(PAYMENT))
    given = {"expect": rules, "query": COMPILED}
    payments = shop.stream(source=feed, sink=DeltaAppend(), name="payments")(lambda events: events)
    ingest = shop.stream(source=feed, sink=DeltaAppend(), name="ingest", **given)(awkward)
    native = shop.stream(source=payments, sink=DeltaAppend(), name="native", **given)(awkward)
    merge = DeltaMerge(keys=["id"], sequence_by="id")
    merged = shop.stream(source=payments, sink=merge, name="merged", **given)(awkward)
    scratch.drop_file("payments", PAYMENTS)
    results = {result.stream.stream: result for result in scratch.run_all(shop)}
    broken = [violations(payment) for payment in PAYMENTS]
    dropped = [payment for payment in PAYMENTS if "part_large" in violations(payment)]
    for stream in (ingest, native, merged):
        result = results[stream.name.stream]
        assert result.error is None
        assert dict(result.batches[0].violations) == {
            "positive": sum("amount_positive" in rules for rules in broken),
            "small": sum("amount_small" in rules for rules in broken),
            "shared": len(dropped),
            "shared_too": sum(payment["parts"] == 0 for payment in PAYMENTS),
        }
        assert result.total("rows_dropped") == len(dropped)
        assert scratch.rows(stream, "id") == multiset((p["id"],) for p in PAYMENTS if p not in dropped)


def test_a_row_for_which_a_fail_rule_raises_stops_the_batch(scratch):
    rule = Expect("positive", RULES["amount_positive"], on_violation="fail")
    feed = Feed("payments", format=Json(PAYMENT))
    strict = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), expect=[rule], name="payments")(
        lambda e: e
    )
    with raises("expectation-violated", "'positive'") as raised:
        scratch.run(strict, [PAYMENTS[:2]])
    assert raised.value.error_class == "EXPECTATION_FAILED"
    assert raised.value.rule == "positive"
    assert scratch.rows(strict) == Counter()
    (alone,) = evaluate(strict, scratch.target, datetime.now(UTC), names=["positive"])
    assert (alone.status, alone.summary) == ("error", str(raised.value))


def test_a_rule_that_is_not_a_condition_is_still_refused(scratch):
    feed = Feed("payments", format=Json(PAYMENT), rules={"amount": "parts"})
    payments = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="payments")(
        lambda events: events
    )
    with raises("query-failed", "DATATYPE_MISMATCH"):
        scratch.run(payments, [PAYMENTS[:1]])


NESTED = "id INT, inner STRUCT<a: INT, b: STRING>, ratio DOUBLE"
ONE_VALUE = {
    '{"id":1}': 1,
    '  {"id":2} \t': 2,
    '{"id":3,"inner":{"a":1,"b":"x"}}': 3,
    '{"id":4,"inner":{"b":"},{"}}': 4,
    '{"id":5,"ratio":NaN,"inner":{"a":1}}': 5,
    "{'id':6,'inner':{'a':1}}": 6,
    '{"id":7,"unknown":[{"id":8},{"id":9}]}': 7,
    '{"id":10,"inner":{"b":"say \\"}\\""}}': 10,
}
MORE = [
    '{"id":1}{"id":2}',
    '{"id":1} {"id":2}',
    '{"id":1},{"id":2}',
    '{"id":1}, 5]',
    '{"id":1}]',
    '{"id":1}],[{"id":2}',
    '{"id":1},0],[',
    '{"id":1} trailing',
    '{"id":1}}',
    '{"id":1,"inner":{"a":1}} {',
    '{"id":1},',
    '[{"id":1},{"id":2}]',
    '{"id":1',
    "5",
]


def test_a_record_with_more_than_one_json_value_is_unparsable(scratch):
    feed = Feed("events", format=Json(NESTED))
    events = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), query=COMPILED, name="events")(
        lambda e: e
    )
    # A blank line is no record; a file with the line ends of Windows has a \r at the end of each.
    result = scratch.run(events, [[*ONE_VALUE, *MORE, '{"id":11}\r', "", "  "]])[0]
    assert scratch.rows(events, "id") == multiset((n,) for n in [*ONE_VALUE.values(), 11])
    assert scratch.quarantined(events) == multiset((line, ("unparsable",)) for line in MORE)
    assert result.total("rows_read") == len(ONE_VALUE) + len(MORE) + 1


def test_json_that_an_option_allows_is_one_value(scratch):
    options = {"allowComments": "true", "allowUnquotedFieldNames": "true", "mode": "FAILFAST"}
    lines = ["{id:1,inner:{a:1}} // of the shop", "{id:2/*}*/}", "{id:3}{id:4}"]
    feed = Feed("events", format=Json(NESTED, options))
    events = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="events")(lambda events: events)
    scratch.run(events, [lines])
    assert scratch.rows(events, "id") == multiset([(1,), (2,)])
    assert scratch.quarantined(events, "raw") == multiset([("{id:3}{id:4}",)])


@pytest.mark.parametrize(
    ("options", "headers", "rows"),
    [
        ({}, ["id,net amount", '\ufeffID , "Net Amount"', ' "id","net amount" '], ["o1,5", "o2,6"]),
        ({"sep": "|"}, ["id|net amount", "ID | NET AMOUNT"], ["o1|5", "o2|6"]),
        (
            {"delimiter": "\t", "quote": "'"},
            ["id\tnet amount", "'id'\t'net amount'"],
            ["o1\t5", "'o2'\t6"],
        ),
    ],
)
def test_the_header_of_every_csv_file_is_left_out(scratch, options, headers, rows):
    feed = Feed("orders", format=Csv("id STRING, `net amount` INT", options, header=True))
    orders = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="orders")(
        lambda events: events.withColumnRenamed("net amount", "amount")
    )
    for header in headers:
        scratch.drop_file("orders", [header, *rows])
    result = scratch.run(orders)[0]
    assert scratch.rows(orders, "id", "amount") == multiset([("o1", 5), ("o2", 6)] * len(headers))
    assert scratch.quarantined(orders) == Counter()
    assert result.total("rows_read") == len(rows) * len(headers)


def test_a_line_that_is_no_header_is_a_record(scratch):
    lines = ["id,amount", "id,7", "amount,id", "id", "id,amount,more", "xid,amount"]
    feed = Feed("orders", format=Csv("id STRING, amount STRING", header=True))
    orders = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="orders")(lambda events: events)
    result = scratch.run(orders, [lines])[0]
    assert result.total("rows_read") == len(lines) - 1
    assert scratch.rows(orders) == multiset([("id", "7"), ("amount", "id"), ("xid", "amount")])
    assert scratch.quarantined(orders, "raw") == multiset([("id",), ("id,amount,more",)])


def test_the_option_header_is_refused_with_the_argument():
    with raises("option-is-argument", "header=True"):
        Csv("id STRING", {"header": "true"})
