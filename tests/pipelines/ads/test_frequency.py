"""The alerts of `ads` in the table and in a topic, over several runs and kills."""

import json
from collections import Counter

import pytest

from pipelines.ads import ads
from pipelines.ads.generate import generate
from tests.pipelines.ads import oracle
from tests.pipelines.ads.alert_streams import alerts_into
from tests.pipelines.ads.tables import assert_equal, tables
from tests.support.killed import killed_when
from tests.support.topics import messages, new_topic
from tidemill.checkpoint import commit_batches

TIMES = ("window_start", "first_seen", "last_seen")
STREAM = ads["frequency_alerts"]


def alerts_in(broker, topic):
    """The messages of a topic as rows of the table."""
    alerts: Counter = Counter()
    for key, value, _, _ in messages(broker, topic):
        alert = json.loads(value)
        assert key.decode() == alert["user_id"]
        alert |= {name: oracle.microseconds(alert[name]) for name in TIMES}
        alerts[tuple(alert[column] for column in oracle.COLUMNS["frequency_alerts"])] += 1
    return alerts


def open_windows(impressions):
    """Return how many windows of users are still open: the state has a row for each."""
    watermark = max(row[5] for row in impressions) // 1000 * 1000 - oracle.DELAY
    starts = {(row[2], row[5] // oracle.ALERT_WINDOW * oracle.ALERT_WINDOW) for row in impressions}
    return sum(start + oracle.ALERT_WINDOW > watermark for _, start in starts)


@pytest.mark.kafka
@pytest.mark.campaign
def test_alerts_are_in_the_table_and_in_the_topic_after_kills(scratch, broker, tmp_path):
    topic = new_topic(broker, scratch)
    upstream, alerts = [ads["impressions"], ads["unique_impressions"]], alerts_into(topic)
    start = generate(out=scratch.landing, events=11_000, seed=7, files=1).next_start
    scratch.run_all(upstream)
    killed = ["tests.pipelines.ads.alert_streams", scratch.lake.uri, str(scratch.landing)]
    killed += [broker.bootstrap, topic]
    # Its first batch has the rows and emits nothing; the second one has no rows, and its timers fire.
    killed_when(killed, tmp_path, point=f"{STREAM.name}:after-sink")
    assert list(commit_batches(scratch.checkpoint(STREAM.name))) == []
    killed_when(killed, tmp_path, point=f"{STREAM.name}:between-sinks")
    assert list(commit_batches(scratch.checkpoint(STREAM.name))) == [0]
    sent = alerts_in(broker, topic)
    assert sent
    assert not scratch.rows(STREAM)
    for events in (2_000, 3_000):
        start = generate(out=scratch.landing, events=events, seed=7, files=1, start=start, late=0).next_start
        *_, result = scratch.run_all([*upstream, alerts])
        assert result.error is None
    made, expected = tables(scratch, ("frequency_alerts",)), oracle.expected(scratch.landing)
    assert_equal(made, expected)
    assert result.state_rows == open_windows(expected["unique_impressions"])
    assert alerts_in(broker, topic) == made["frequency_alerts"] + sent, "sent again after the kill"


def test_without_a_topic_the_alerts_need_no_broker():
    assert [sink.name for sink in STREAM.sinks] == ["main"]
    assert [sink.name for sink in alerts_into("alerts").sinks] == ["kafka", "main"]
