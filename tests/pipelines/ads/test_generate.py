import hashlib
import json
import os
import time
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from socket import socket

import pytest
import typer
from confluent_kafka import Consumer
from typer.testing import CliRunner

from pipelines.ads.generate import Amounts, FeedAmounts, Kind, Record, arrivals, generate, produce, topics
from tests.pipelines.ads import oracle
from tests.support.raising import raises
from tidemill.cli.machine import demo_input
from tidemill.engines.dev.broker import Broker
from tidemill.errors import ConfigurationError

STREAMS = {feed: stream for stream, feed in oracle.FEED_OF.items()}
TIME_OF = {"ad-impressions": "event_time", "ad-clicks": "click_time"}
HALF_AN_HOUR = 30 * oracle.MINUTE


def records(**options) -> list[Record]:
    return [record for _, record in arrivals(**options)]


def lines_of(arrived: list[Record], feed: str) -> list[str]:
    return [record.text for record in arrived if record.feed == feed]


@pytest.fixture(scope="module")
def arrived() -> list[Record]:
    return records(events=50_000, seed=7)


@pytest.fixture(scope="module")
def expected(arrived) -> oracle.Expected:
    return oracle.expected({feed: lines_of(arrived, feed) for feed in STREAMS})


def test_the_same_seed_gives_the_same_events_on_every_machine(arrived):
    digest = hashlib.sha256("\n".join(record.text for record in arrived).encode()).hexdigest()

    # A changed checksum means a changed sequence, which breaks a sequence that is continued with --start.
    assert digest == "b64be1b1c5065408e6675a6002d7aeda0d6556f2c136726b4469467b64c2fa27"


def test_another_seed_gives_other_events():
    assert not set(records(events=300, seed=1)[200:]) & set(records(events=300, seed=2)[200:])


@pytest.mark.parametrize("seed", [14, 35, 79, 129])
def test_a_seed_whose_first_clicks_are_soon_too_old_has_duplicates_all_the_same(seed):
    kinds = Counter(record.kind for record in records(events=1_600, seed=seed, late=0))
    assert kinds[Kind.DUPLICATE] == 7 * 8  # none in the first block


@pytest.mark.parametrize("cut", [1, 199, 200, 1_234, 3_999])
def test_start_continues_the_sequence(cut):
    whole = records(events=4_000, seed=5)

    parts = [*records(events=cut, seed=5), *records(events=4_000 - cut, seed=5, start=cut)]

    assert [record for record in parts if record.kind is not Kind.LATE] == whole


def test_a_start_far_ahead_takes_no_longer():
    assert len(records(events=3, seed=5, start=10**9, late=0)) == 3


def test_the_amounts_are_those_of_the_files(tmp_path):
    first = generate(out=tmp_path, events=5_000, seed=7, files=4)
    second = generate(out=tmp_path, events=3_000, seed=7, files=2, start=first.next_start)

    made = oracle.records_of(tmp_path)
    for feed, stream in STREAMS.items():
        amounts = [first.feeds[feed], second.feeds[feed]]
        rows, quarantine = oracle.parse(stream, made[feed])
        assert len([line for line in made[feed] if line]) == sum(call.records for call in amounts)
        assert quarantine.total() == sum(call.quarantined for call in amounts)
        assert len(rows) - len(set(rows)) == sum(call.duplicate for call in amounts)
        broken = Counter(rule for (_, rules), count in quarantine.items() for rule in rules * count)
        assert broken["unparsable"] == sum(call.unparsable for call in amounts)
        assert broken["cost_not_negative"] == sum(call.negative_cost for call in amounts)
        assert sum(broken[rule] for rule in broken if rule.endswith("_id")) == sum(
            call.missing_id for call in amounts
        )


def test_every_event_is_one_record():
    amounts = generate_amounts(events=5_000, start=0)

    assert amounts.records == 5_000 + 190  # and the campaigns at the beginning of the sequence


def test_every_kind_of_record_occurs(arrived):
    kinds = {(record.feed, record.kind) for record in arrived}

    assert kinds == {
        *((feed, kind) for feed in STREAMS for kind in (Kind.FIRST, Kind.DUPLICATE, Kind.UNPARSABLE)),
        ("ad-impressions", Kind.MISSING_ID),
        ("ad-clicks", Kind.MISSING_ID),
        ("ad-impressions", Kind.NEGATIVE_COST),
    }


@pytest.mark.parametrize("feed", TIME_OF)
def test_no_record_is_more_than_half_an_hour_behind_an_earlier_one(arrived, feed):
    newest, behind = 0, 0
    for record in arrived:
        if record.feed == feed and record.kind in (Kind.FIRST, Kind.DUPLICATE):
            moment = oracle.microseconds(json.loads(record.text)[TIME_OF[feed]])
            newest = max(newest, moment)
            behind = max(behind, newest - moment)

    assert 0.95 * HALF_AN_HOUR < behind <= HALF_AN_HOUR


def test_feeds_are_not_more_than_half_an_hour_apart(arrived):
    newest = dict.fromkeys(TIME_OF, 0)
    for record in arrived[400:]:
        if record.feed in TIME_OF and record.kind is Kind.FIRST:
            moment = oracle.microseconds(json.loads(record.text)[TIME_OF[record.feed]])
            assert moment >= max(newest.values()) - HALF_AN_HOUR
            newest[record.feed] = max(newest[record.feed], moment)


def test_a_change_of_a_campaign_arrives_before_every_event_that_it_applies_to(arrived):
    newest = 0
    for record in arrived:
        if record.kind is Kind.FIRST:
            values = json.loads(record.text)
            if record.feed == "ad-campaigns":
                assert oracle.microseconds(values["changed_at"]) >= newest or values["seq"] == 0
            else:
                newest = max(newest, oracle.microseconds(values[TIME_OF[record.feed]]))


def test_changes_of_an_ad_are_ordered_by_their_sequence_and_some_arrive_out_of_order(arrived):
    changes = [json.loads(r.text) for r in arrived if r.feed == "ad-campaigns" and r.kind is Kind.FIRST]
    overtaken = 0
    for ad_id in {change["ad_id"] for change in changes}:
        of_ad = [change for change in changes if change["ad_id"] == ad_id]
        sequences = [change["seq"] for change in of_ad]
        by_sequence = sorted(of_ad, key=lambda change: change["seq"])
        assert len(set(sequences)) == len(sequences)
        assert by_sequence == sorted(of_ad, key=lambda change: change["changed_at"])
        overtaken += sequences != sorted(sequences)
    assert overtaken
    assert {change["op"] for change in changes} == {"upsert", "delete"}


def test_an_impression_is_clicked_at_most_once_and_also_at_the_edges_of_the_hour(expected):
    shown_at = {row[0]: row[5] for row in expected["unique_impressions"]}
    clicks = [row for row in expected["unique_clicks"] if row[1] in shown_at]

    assert max(Counter(click[1] for click in clicks).values()) == 1
    after = [click[4] - shown_at[click[1]] for click in clicks]
    assert {0, oracle.HOUR, oracle.HOUR + 1_000} <= set(after)
    assert all(delay >= 0 for delay in after)
    assert any(delay > oracle.HOUR + oracle.MINUTE for delay in after)


def test_a_click_arrives_after_its_impression(arrived):
    shown = set()
    for record in arrived:
        if record.feed == "ad-impressions":
            shown.add(record.key)
        elif record.feed == "ad-clicks":
            assert record.key in shown or record.key.startswith("imp-unreported-")


def test_impressions_have_campaigns_or_none_and_sessions_end(expected):
    without = sum(count for row, count in expected["attribution"].items() if row[8] is None)
    assert 0.02 < without / expected["attribution"].total() < 0.4
    assert expected["user_sessions"].total() > 1_000
    assert expected["campaign_totals"].total() == 21


def test_a_few_users_see_an_ad_too_often(expected):
    users = {row[2] for row in expected["unique_impressions"]}
    alerted = {row[0] for row in expected["frequency_alerts"]}
    assert 0.05 < len(alerted) / len(users) < 0.1
    assert oracle.ALLOWED + 1 in {row[3] for row in expected["frequency_alerts"]}


def test_late_impressions_arrive_with_a_later_start_only():
    late = [record for record in records(events=600, seed=7, start=1_000) if record.kind is Kind.LATE]
    moment = oracle.microseconds("2026-01-01T00:16:40Z")

    assert not [record for record in records(events=600, seed=7) if record.kind is Kind.LATE]
    assert len({record.key for record in late}) == len(late) == 7
    assert all(
        oracle.microseconds(json.loads(record.text)["event_time"]) <= moment - 72 * oracle.HOUR
        for record in late
    )
    assert len([r for r in records(events=2, seed=7, start=1_000) if r.kind is Kind.LATE]) == 7


def test_names_and_modification_times_ascend_over_all_calls_and_clocks(tmp_path):
    first = generate(out=tmp_path, events=2_000, seed=7, files=5)
    ahead = time.time() + 3_600
    os.utime(max((tmp_path / "ad-clicks").iterdir()), (ahead, ahead))
    generate(out=tmp_path, events=2_000, seed=7, files=7, start=first.next_start)

    for feed in STREAMS:
        files = sorted((tmp_path / feed).iterdir())
        times = [file.stat().st_mtime_ns // 1_000_000 for file in files]
        assert len(files) == 12
        assert all(earlier < later for earlier, later in pairwise(times))


def test_the_files_hold_the_records_in_the_order_of_arrival(tmp_path):
    generate(out=tmp_path, events=2_000, seed=7, files=5)

    in_files = oracle.records_of(tmp_path)
    arrived = records(events=2_000, seed=7)
    assert {f: [line for line in lines if line] for f, lines in in_files.items()} == {
        feed: lines_of(arrived, feed) for feed in STREAMS
    }


def test_more_files_than_events(tmp_path):
    generate(out=tmp_path, events=3, seed=7, files=100, start=1_000, late=0)

    assert sum(1 for _ in tmp_path.rglob("*.json")) == 3


def test_an_interrupted_call_leaves_complete_files_only(tmp_path, monkeypatch):
    move, moved = Path.replace, []

    def full_disk(file: Path, target: Path) -> Path:
        if len(moved) == 4:
            raise OSError("no space left")
        moved.append(target)
        return move(file, target)

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        generate(out=tmp_path, events=2_000, seed=7, files=5)

    visible = [file for file in tmp_path.rglob("*") if file.is_file() and not file.name.startswith(".")]
    assert sorted(visible) == sorted(moved)


def test_existing_events_are_not_overwritten(tmp_path):
    generate(out=tmp_path, events=100, seed=7, files=2)
    before = oracle.records_of(tmp_path)

    for start in (0, 50):
        with raises("files-exist", "Nothing was written"):
            generate(out=tmp_path, events=100, seed=8, files=3, start=start)
    assert oracle.records_of(tmp_path) == before


@pytest.mark.parametrize("wrong", [{"events": 0}, {"start": -1}, {"files": 0}, {"late": -1}])
def test_a_number_out_of_range_is_refused_by_name(tmp_path, wrong):
    with raises("argument-invalid", next(iter(wrong))):
        generate(**{"out": tmp_path / "new", "events": 1, "seed": 7, "files": 1} | wrong)
    assert not (tmp_path / "new").exists()


def generate_amounts(*, events: int, start: int) -> Amounts:
    counted = Counter((r.feed, r.kind.value) for r in records(events=events, seed=7, start=start))
    kinds = [kind.value for kind in Kind]
    feeds = {feed: FeedAmounts(**{kind: counted[feed, kind] for kind in kinds}) for feed in STREAMS}
    return Amounts(7, start, events, feeds)


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(demo_input.generate)
    return app


def test_the_command_prints_the_amounts_for_programs(command, tmp_path):
    result = CliRunner().invoke(
        command, ["--out", str(tmp_path), "--events", "500", "--files", "2", "--start", "1000", "--json"]
    )

    document = json.loads(result.stdout)
    amounts = generate_amounts(events=500, start=1_000)
    assert document["schema_version"] == 1
    assert (document["start"], document["next_start"], document["records"]) == (1_000, 1_500, 507)
    assert document["feeds"] == {
        feed: {"records": of_feed.records, **asdict(of_feed)} for feed, of_feed in amounts.feeds.items()
    }


def test_the_command_prints_the_amounts_for_people(command, tmp_path):
    result = CliRunner().invoke(command, ["--out", str(tmp_path), "--events", "500"])

    assert result.exit_code == 0
    assert "690 records" in result.stdout
    assert "--start 500" in result.stdout


@pytest.mark.parametrize("target", [[], ["--out", "here", "--kafka", "localhost:9092"]])
def test_the_command_needs_one_destination(command, target):
    result = CliRunner().invoke(command, target)

    assert isinstance(result.exception, ConfigurationError)
    assert "one of the two" in str(result.exception)


@pytest.mark.campaign
@pytest.mark.kafka
def test_topics_get_every_record_and_keep_those_of_one_key_in_order(empty_broker):
    first = produce(bootstrap=empty_broker.bootstrap, events=3_000, seed=7)
    produce(bootstrap=empty_broker.bootstrap, events=1_000, seed=7, start=first.next_start)

    arrived = [*records(events=3_000, seed=7), *records(events=1_000, seed=7, start=3_000)]
    messages = read_topics(empty_broker.bootstrap, len(arrived))
    for feed in STREAMS:
        partitions = {partition for topic, partition, *_ in messages if topic == feed}
        assert partitions == set(range(4))
        assert in_order_by_key([(key, text) for topic, _, key, text in messages if topic == feed]) == (
            in_order_by_key([(record.key, record.text) for record in arrived if record.feed == feed])
        )


def in_order_by_key(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    by_key: dict[str, list[str]] = {}
    for key, text in pairs:
        by_key.setdefault(key, []).append(text)
    return by_key


def read_topics(bootstrap: str, count: int) -> list[tuple[str, int, str, str]]:
    """Read this many messages as topic, partition, key and text; those of a partition keep their order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    messages: list[tuple[str, int, str, str]] = []
    deadline = time.monotonic() + 60
    try:
        consumer.subscribe(list(STREAMS))
        while len(messages) < count:
            assert time.monotonic() < deadline, f"{len(messages)} of {count} messages within a minute"
            messages += [
                (message.topic(), message.partition(), message.key().decode(), message.value().decode())
                for message in consumer.consume(10_000, timeout=1)
            ]
        assert not consumer.consume(1, timeout=1)
    finally:
        consumer.close()
    return messages


@pytest.fixture
def empty_broker():
    """A separate broker: the topics have the names of the feeds, and other tests fill them too."""
    with Broker() as running:
        yield running


def test_a_broker_that_is_down_is_a_transient_error(monkeypatch):
    monkeypatch.setattr(topics, "_DEADLINE_S", 1)
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        with raises("demo-not-sent", "Nothing was sent"):
            produce(bootstrap=f"127.0.0.1:{taken.getsockname()[1]}", events=1, seed=7)
