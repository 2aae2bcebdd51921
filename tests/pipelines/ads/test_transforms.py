"""The functions of `ads` on a handful of rows, as batches, and the rules of its feeds."""

import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from pipelines import ads
from tests.pipelines.ads.oracle import COLUMNS
from tests.pipelines.ads.plain_spark import as_table
from tidemill.connectors.feed import feed_of
from tidemill.connectors.violations import guard, violated

IMPRESSION = {
    "impression_id": "imp-1",
    "ad_id": "ad-1",
    "user_id": "user-1",
    "page": "/",
    "cost_micros": 100,
    "event_time": "12:00:00",
}
CLICK = {
    "click_id": "clk-1",
    "impression_id": "imp-1",
    "ad_id": "ad-1",
    "user_id": "user-1",
    "click_time": "12:10",
}
CHANGE = {
    "ad_id": "ad-1",
    "campaign_id": "cmp-1",
    "campaign": "One",
    "op": "upsert",
    "seq": 1,
    "changed_at": "2026-01-01T00:00:00Z",
}


def at(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{time}").replace(tzinfo=UTC)


def micros(time: str) -> int:
    return int(at(time).timestamp()) * 1_000_000


def frame(spark, stream, rows):
    """Return rows with the columns of an ingest stream's table."""
    schema = feed_of(stream).format.schema
    times = [name for name in schema.split() if name.endswith("_time")]
    names = [column.split()[0] for column in schema.split(", ")]
    values = [tuple(at(row[name]) if name in times else row[name] for name in names) for row in rows]
    return spark.createDataFrame(values, schema)


def impressions(spark, *rows):
    return frame(spark, ads.impressions, [IMPRESSION | row for row in rows])


def clicks(spark, *rows):
    return frame(spark, ads.clicks, [CLICK | row for row in rows])


def campaigns(spark, *versions):
    """Return versions of ad-1, each given as campaign, valid from, valid until."""
    rows = [
        ("ad-1", campaign_id, campaign_id.upper(), number, at(start), at(start), end and at(end))
        for number, (campaign_id, start, end) in enumerate(versions)
    ]
    schema = (
        "ad_id STRING, campaign_id STRING, campaign STRING, seq BIGINT, changed_at TIMESTAMP, "
        "__START_AT TIMESTAMP, __END_AT TIMESTAMP"
    )
    return spark.createDataFrame(rows, schema)


def test_an_impression_belongs_to_the_campaign_that_was_valid_at_its_time(spark):
    shown = impressions(
        spark, *({"impression_id": time, "event_time": time} for time in ("11:59:59", "12:00:00", "13:00:00"))
    )
    versions = campaigns(spark, ("before", "10:00:00", "12:00:00"), ("after", "12:00:00", "13:00:00"))

    made = as_table(
        ads.attribution(shown, clicks(spark), versions), ["impression_id", "campaign_id", "campaign"]
    )

    assert made == Counter(
        [("11:59:59", "before", "BEFORE"), ("12:00:00", "after", "AFTER"), ("13:00:00", None, None)]
    )


def test_a_click_counts_from_the_impression_to_the_end_of_the_hour(spark):
    times = ("11:59:59", "12:00:00", "13:00:00", "13:00:01")
    shown = impressions(spark, *({"impression_id": f"imp-{time}"} for time in times))
    clicked = clicks(
        spark, *({"impression_id": f"imp-{time}", "click_id": time, "click_time": time} for time in times)
    )

    made = as_table(ads.attribution(shown, clicked, campaigns(spark)), ["impression_id", "click_id"])

    assert made == Counter(
        [
            ("imp-11:59:59", None),
            ("imp-12:00:00", "12:00:00"),
            ("imp-13:00:00", "13:00:00"),
            ("imp-13:00:01", None),
        ]
    )


def test_tables_have_the_documented_columns(spark):
    shown, clicked, versions = impressions(spark, {}), clicks(spark), campaigns(spark)
    made = {
        ads.impressions: ads.impressions(shown),
        ads.clicks: ads.clicks(clicked),
        ads.attribution: ads.attribution(shown, clicked, versions),
        ads.campaign_minutes: ads.campaign_minutes(shown, versions),
        ads.campaign_totals: ads.campaign_totals(shown, versions),
        ads.user_sessions: ads.user_sessions(shown),
        ads.frequency_alerts: ads.frequency_alerts(shown),
    }

    assert {stream.name.stream: tuple(rows.columns) for stream, rows in made.items()} == {
        stream.name.stream: COLUMNS[stream.name.stream] for stream in made
    }


def test_minutes_add_up_each_campaign_and_the_ads_without_one(spark):
    shown = impressions(
        spark,
        {"event_time": "12:00:00", "cost_micros": 1},
        {"event_time": "12:00:59", "cost_micros": 2},
        {"event_time": "12:01:00", "cost_micros": 4},
        {"event_time": "12:00:30", "cost_micros": 8, "ad_id": "ad-2"},
    )

    made = as_table(
        ads.campaign_minutes(shown, campaigns(spark, ("one", "00:00:00", None))), COLUMNS["campaign_minutes"]
    )

    assert made == Counter(
        [
            (micros("12:00:00"), "one", 2, 3),
            (micros("12:01:00"), "one", 1, 4),
            (micros("12:00:00"), "(none)", 1, 8),
        ]
    )


def test_totals_add_up_to_the_total_spend(spark):
    shown = impressions(spark, {"cost_micros": 1}, {"cost_micros": 2}, {"cost_micros": 4, "ad_id": "ad-2"})

    made = as_table(
        ads.campaign_totals(shown, campaigns(spark, ("one", "00:00:00", None))), COLUMNS["campaign_totals"]
    )

    assert made == Counter([("one", 2, 3), ("(none)", 1, 4)])


def test_half_an_hour_without_an_impression_ends_a_session(spark):
    shown = impressions(
        spark,
        {"event_time": "12:00:00", "cost_micros": 1},
        {"event_time": "12:30:00", "cost_micros": 2},
        {"event_time": "13:00:01", "cost_micros": 4},
        {"event_time": "12:10:00", "cost_micros": 8, "user_id": "user-2"},
    )

    made = as_table(ads.user_sessions(shown), COLUMNS["user_sessions"])

    assert made == Counter(
        [
            ("user-1", micros("12:00:00"), micros("13:00:00"), 2, 3),
            ("user-1", micros("13:00:01"), micros("13:30:01"), 1, 4),
            ("user-2", micros("12:10:00"), micros("12:40:00"), 1, 8),
        ]
    )


GOOD = {
    ads.impressions: IMPRESSION | {"event_time": "2026-01-01T12:00:00Z"},
    ads.clicks: CLICK | {"click_time": "2026-01-01T12:10:00Z"},
    ads.campaigns: CHANGE,
}


@pytest.mark.parametrize("stream", GOOD, ids=str)
def test_each_rule_of_a_feed_is_violated_by_its_own_defect_only(spark, stream):
    rules = feed_of(stream).rules
    bad = {
        "has_impression_id": [{"impression_id": None}, {"impression_id": ""}],
        "has_ad_id": [{"ad_id": None}, {"ad_id": ""}],
        "has_user_id": [{"user_id": None}, {"user_id": ""}],
        "has_click_id": [{"click_id": None}, {"click_id": ""}],
        "has_event_time": [{"event_time": None}],
        "has_click_time": [{"click_time": None}],
        "cost_not_negative": [{"cost_micros": -1}, {"cost_micros": None}],
        "has_seq": [{"seq": None}],
        "has_changed_at": [{"changed_at": None}],
        "op_known": [{"op": "pause"}, {"op": None}],
        "has_campaign_id": [{"campaign_id": None}, {"campaign_id": ""}],
    }
    records = [(json.dumps(GOOD[stream]), ())] + [
        (json.dumps(GOOD[stream] | change), (rule,)) for rule in rules for change in bad[rule]
    ]
    parsed = spark.createDataFrame([(text,) for text, _ in records], "text STRING").select(
        "text", feed_of(stream).format.parsed(F.col("text")).alias("parsed")
    )

    columns = parsed.select("text", "parsed.*")
    broken = [F.when(F.expr(violated(sql, guard(columns))), F.lit(rule)) for rule, sql in rules.items()]
    made = columns.select("text", F.array_compact(F.array(*broken)).alias("broken"))

    assert as_table(made, ["text", "broken"]) == Counter(records)


def test_a_delete_needs_no_campaign(spark):
    rule = feed_of(ads.campaigns).rules["has_campaign_id"]
    ends = spark.sql("SELECT 'delete' AS op, CAST(NULL AS STRING) AS campaign_id")

    assert ends.selectExpr(violated(rule, guard(ends))).collect() == [(False,)]


def test_every_stream_has_a_description():
    assert [stream.name.stream for stream in ads.ads if not stream.description] == []


def test_streams_read_their_documented_sources():
    reads = {
        stream.name.stream: {source.upstream.stream: source.streaming for source in stream.sources.values()}
        for stream in ads.ads
        if not feed_of(stream)
    }

    assert reads == {
        "unique_impressions": {"impressions": True},
        "unique_clicks": {"clicks": True},
        "attribution": {"unique_impressions": True, "unique_clicks": True, "campaigns": False},
        "campaign_minutes": {"unique_impressions": True, "campaigns": False},
        "campaign_totals": {"unique_impressions": True, "campaigns": False},
        "user_sessions": {"unique_impressions": True},
        "frequency_alerts": {"unique_impressions": True},
    }
