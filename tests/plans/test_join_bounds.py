"""Stream-stream joins: one that Spark would lose rows of is refused, one without a bound is a warning."""

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.errors import TerminalError
from tidemill.plans.join_bounds import join_findings
from tidemill.run.spark.classic import explained
from tidemill.testing import multiset

AUCTION = "id BIGINT, opens TIMESTAMP, expires TIMESTAMP"
BID = "auction BIGINT, at TIMESTAMP"


def market(condition):
    """Auctions and bids, ingested, and their join on a condition."""
    pipeline = Pipeline("market")

    @pipeline.stream(source=Feed("auctions", Json(AUCTION)), sink=DeltaAppend())
    def auctions(events):
        return events

    @pipeline.stream(source=Feed("bids", Json(BID)), sink=DeltaAppend())
    def bids(events):
        return events

    @pipeline.stream(
        source={
            "auctions": auctions.with_watermark("opens", "0 seconds"),
            "bids": bids.with_watermark("at", "0 seconds"),
        },
        sink=DeltaAppend(),
    )
    def matched(auctions, bids):
        return auctions.join(bids, F.expr(condition)).select("id", "at")

    return pipeline


def minute(number):
    return f"2026-01-01T00:{number:02}:00Z"


def arrive(scratch, pipeline, *, auctions=(), bids=()):
    rows = [{"id": i, "opens": minute(o), "expires": minute(e)} for i, o, e in auctions]
    scratch.arrive(pipeline["auctions"], "events", rows)
    scratch.arrive(pipeline["bids"], "events", [{"auction": i, "at": minute(m)} for i, m in bids])


WITHIN = "id = auction AND at >= opens AND at <= expires"
REWRITTEN = "id = auction AND at >= opens AND unix_micros(at) <= unix_micros(expires)"


def test_a_join_that_evicts_by_another_column_than_it_bounds_is_refused_with_the_rewrite(scratch):
    pipeline = market(WITHIN)
    arrive(scratch, pipeline, auctions=[(1, 0, 10)], bids=[(1, 5)])
    results = {result.stream.stream: result for result in scratch.run_all(pipeline)}
    error = results["matched"].error
    assert (error.code, type(error)) == ("join-loses-matches", TerminalError)
    assert "'at' by 'expires'" in error.what
    assert "unix_micros(at) <= unix_micros(expires)" in error.fix
    assert not Path(scratch.lake.table(pipeline["matched"].name).uri).exists()


@pytest.mark.campaign
def test_the_rewritten_join_keeps_every_match_over_runs(scratch):
    pipeline = market(REWRITTEN)
    arrive(scratch, pipeline, auctions=[(1, 0, 10), (2, 5, 6)], bids=[(2, 5)])
    scratch.run_all(pipeline)
    arrive(scratch, pipeline, bids=[(1, 6)])
    results = {result.stream.stream: result for result in scratch.run_all(pipeline)}
    assert scratch.rows(pipeline["matched"], "id") == multiset([(2,), (1,)])
    [warning] = results["matched"].warnings
    assert "never evicts rows of its left side" in warning


@pytest.mark.parametrize(
    ("condition", "findings"),
    [
        (WITHIN, [("loses_rows", "left")]),
        (REWRITTEN, [("unbounded", "left")]),
        ("id = auction AND at >= opens AND at <= opens + INTERVAL 10 MINUTES", []),
        ("id = auction AND at BETWEEN opens AND expires AND at <= opens + INTERVAL 1 HOUR", []),
        ("id = auction AND NOT at > expires AND at >= opens", [("loses_rows", "left")]),
        ("id = auction", [("unbounded", "left"), ("unbounded", "right")]),
        ("id = auction AND at = opens", []),
    ],
)
def test_findings_follow_what_spark_derives(scratch, condition, findings):
    spark = scratch.engine.new()
    sides = []
    for name, schema, column in (("auctions", AUCTION, "opens"), ("bids", BID, "at")):
        (scratch.landing / name).mkdir(parents=True, exist_ok=True)
        rows = spark.readStream.schema(schema).json(str(scratch.landing / name))
        sides.append(rows.withWatermark(column, "0 seconds"))
    joined = sides[0].join(sides[1], F.expr(condition))
    assert [(finding.kind, finding.side) for finding in join_findings(explained(joined))] == findings


def physical(*definitions):
    """Return a join that bounds `at` by the last definition; each is a projection above the one before."""
    bound = definitions[-1].rpartition(" AS ")[2]
    full = f"((at#8-T0ms >= opens#2-T0ms) AND (at#8-T0ms <= {bound}))"
    condition = f"condition = [ leftOnly = null, full = {full} ], state info [ opId = 0 ]"
    cleanup = "left value predicate: (opens#2-T0ms <= -1000), right value predicate: (at#8-T0ms <= -1000)"
    join = f"[id#1L], [auction#7L], Inner, {condition}, state cleanup [ {cleanup} ], 2, Append"
    lines = [f"*(1) StreamingSymmetricHashJoin {join}"]
    for depth, definition in enumerate(reversed(definitions)):
        lines.append(
            f"{':  ' * (depth > 0)}{'   ' * (depth - 1)}{'+- ' if depth else ':- '}Project [id#1L, {definition}]"
        )
    left = f":  {'   ' * (len(definitions) - 1)}+- StreamingRelation json, [id#1L, opens#2]"
    return "\n".join(["== Physical Plan ==", *lines, left, "+- StreamingRelation json, [auction#7L, at#8]"])


@pytest.mark.parametrize(
    ("definitions", "kinds"),
    [
        (["opens#2 + INTERVAL '10' MINUTE AS late#3"], ["loses_rows"]),
        (["opens#2 + INTERVAL '-10' MINUTE AS early#3"], []),
        (["opens#2 + INTERVAL '-10' MINUTE AS a#3", "a#3 + INTERVAL '-01' MINUTE AS b#4"], []),
        (["opens#2 + INTERVAL '-10' MINUTE AS a#3", "a#3 + INTERVAL '20' MINUTE AS b#4"], ["loses_rows"]),
    ],
)
def test_a_bound_is_followed_through_every_projection(definitions, kinds):
    assert [finding.kind for finding in join_findings(physical(*definitions))] == kinds
