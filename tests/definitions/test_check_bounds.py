"""Bounds of checks: parsed and refused when they are declared, with the field and the value."""

from datetime import timedelta

import pytest

from tests.support.raising import raises
from tidemill import Checks, DeltaAppend, Feed, Json, Pipeline, StateBounds
from tidemill.checks.evaluation import check_names

FEED = Feed("orders", Json("id STRING, at TIMESTAMP"))


def declared(pipeline: Pipeline, **options):
    return pipeline.stream(source=FEED, sink=DeltaAppend(), name="orders", **options)(lambda events: events)


@pytest.mark.parametrize(
    ("kind", "fields", "value"),
    [
        (Checks, {"watermark_lag": "soon"}, "Checks: watermark_lag is 'soon'"),
        (Checks, {"late_share": 1.5}, "late_share is 1.5"),
        (Checks, {"quarantine_share": True}, "quarantine_share is True"),
        (Checks, {"backlog": {"rows": 5}}, "backlog has 'rows'"),
        (Checks, {"backlog": {"files": 0}}, "backlog['files'] is 0"),
        (Checks, {"backlog": 5}, "backlog is 5"),
        (Checks, {"severity": {"late": "warn"}}, "severity has 'late'"),
        (Checks, {"severity": {"late_rows": "fatal"}}, "severity['late_rows'] is 'fatal'"),
        (Checks, {"event_time": ""}, "event_time is ''"),
        (Checks, {"state": {"rows": 1}}, "state is {'rows': 1}"),
        (StateBounds, {"rows": 0}, "StateBounds: rows is 0"),
        (StateBounds, {"growth": -1}, "growth is -1"),
    ],
)
def test_a_wrong_bound_is_refused(kind, fields, value):
    with raises("argument-invalid", value):
        kind(**fields)


def test_lengths_of_time_are_parsed():
    assert Checks(freshness="1 day 12 hours").freshness == timedelta(hours=36)


def test_a_stream_has_the_checks_of_its_pipeline_unless_it_has_its_own():
    lenient, own = Checks(late_share=0.5), Checks(quarantine_share=0.1)
    assert declared(Pipeline("shop", checks=lenient)).checks == lenient
    assert declared(Pipeline("shop", checks=lenient), checks=own).checks == own


@pytest.mark.parametrize(
    "declare", [lambda c: Pipeline("shop", checks=c), lambda c: declared(Pipeline("shop"), checks=c)]
)
def test_something_else_is_refused(declare):
    with raises("argument-invalid", "checks is 5"):
        declare(5)


def test_a_freshness_that_cannot_be_evaluated_is_refused():
    with raises("freshness-without-event-time", "shop/orders"):
        declared(Pipeline("shop"), checks=Checks(freshness="1 day"))


def test_only_checks_that_can_be_evaluated_are_offered():
    always = {"checkpoint_sound", "exactly_once", "backlog"}
    pipeline = Pipeline("shop", checks=Checks(freshness="1 day"))
    orders = declared(pipeline)
    unique = pipeline.stream(source=orders.with_watermark("at", "1 hour"), sink=DeltaAppend(), name="unique")(
        lambda rows: rows
    )
    assert set(check_names(orders)) == always | {"quarantine"}
    assert set(check_names(unique)) == always | {"watermark", "late_rows", "state_bounded", "freshness"}
    dated = declared(Pipeline("shop"), checks=Checks(freshness="1 day", event_time="at"))
    assert "freshness" in check_names(dated)
