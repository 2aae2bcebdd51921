"""The whole pipeline `ads` in Tidemill, compared with the oracle: files, Kafka, late rows, any cut into runs."""

import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pipelines.ads import ads
from pipelines.ads.generate import generate, produce
from tests.pipelines.ads import oracle
from tests.pipelines.ads.tables import ALL, assert_equal, tables
from tidemill.checkpoint import read_offset
from tidemill.target.target import KafkaCluster, TopicBinding

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.testing import Scratch

# The streams that drop late rows, and what they read; the test through a broker runs all streams.
WITH_LATE_ROWS = ("impressions", "clicks", "unique_impressions", "unique_clicks")
EVENTS = 14_000  # a little under four hours of event time, so that windows, sessions and joins close


def run_all(scratch: "Scratch", streams: tuple[str, ...] = ALL):
    results = scratch.run_all([ads[name] for name in streams])
    assert not [str(result.error) for result in results if result.error]
    return {result.stream.stream: result for result in results}


def arrive(scratch: "Scratch", prepared: "Path", pieces: list[str], started: int):
    """Copy the files of some pieces into the landing folder, to be read in this order."""
    for number, piece in enumerate(pieces):
        for feed in oracle.FEED_OF.values():
            if (prepared / feed / piece).exists():
                file = scratch.landing / feed / piece
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(prepared / feed / piece, file)
                os.utime(file, (started + number, started + number))


@pytest.mark.campaign  # the two tests below also cut their input
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("runs", "shuffled"), [(1, False), (3, True), (7, False)])
def test_every_table_is_the_oracles_however_the_input_is_cut(scratch, tmp_path, runs, shuffled):
    generate(out=tmp_path / "prepared", events=EVENTS, seed=11, files=14)
    pieces = sorted({file.name for file in (tmp_path / "prepared").rglob("*.json")})
    size = -(-len(pieces) // runs)
    for start in range(0, len(pieces), size):
        chunk = pieces[start : start + size]
        if shuffled:
            random.Random(start).shuffle(chunk)
        arrive(scratch, tmp_path / "prepared", chunk, 1_700_000_000 + start)
        run_all(scratch)
    assert_equal(tables(scratch), oracle.expected(tmp_path / "prepared"))


@pytest.mark.parametrize(
    "streams", [WITH_LATE_ROWS, pytest.param(ALL, marks=pytest.mark.campaign)], ids=["some", "all"]
)
def test_late_rows_are_counted_and_dropped_according_to_the_watermarks(scratch, streams):
    counted, batches, earlier = 0, {"unique_impressions": [], "unique_clicks": []}, Counter()
    start = 0
    for events in (10_000, 6_000):
        amounts = generate(out=scratch.landing, events=events, seed=7, files=3, start=start)
        start = amounts.next_start
        results = run_all(scratch, streams)
        counted += results["unique_impressions"].late.count
        lines = oracle.records_of(scratch.landing)
        for stream, source in (("unique_impressions", "impressions"), ("unique_clicks", "clicks")):
            of_feed = Counter(lines[oracle.FEED_OF[source]])
            new = list((of_feed - earlier).elements())
            rows = oracle.parse(source, new)[0]
            for batch in results[stream].batches:
                offsets = read_offset(scratch.checkpoint(ads[stream].name), batch.batch_id)
                batches[stream].append(
                    oracle.Batch(rows=rows if batch.rows_read else [], watermark_ms=offsets.watermark_ms)
                )
        earlier = sum((Counter(of) for of in lines.values()), Counter())
    expected = oracle.expected(scratch.landing, batches)
    assert amounts.feeds["ad-impressions"].late == counted == expected.late["unique_impressions"] > 0
    assert_equal(tables(scratch, streams), expected)


@pytest.mark.campaign
@pytest.mark.kafka
def test_the_same_through_a_broker(scratch, broker, tmp_path):
    cluster = KafkaCluster(bootstrap=broker.bootstrap)
    for feed in oracle.FEED_OF.values():
        scratch.bindings[feed] = TopicBinding(cluster, feed)
    start = 0
    for events in (9_000, 5_000):
        produce(bootstrap=broker.bootstrap, events=events, seed=5, start=start, late=0)
        start = generate(
            out=tmp_path / "files", events=events, seed=5, files=2, start=start, late=0
        ).next_start
    run_all(scratch)
    assert_equal(tables(scratch), oracle.expected(tmp_path / "files"))
