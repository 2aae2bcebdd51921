"""Decisions over many streams: what each one reads, and that they do not depend on each other."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from bench.object_store.lakes import BATCHES, keeps_state
from bench.object_store.measure import prepared
from bench.object_store.server import count, slow_store
from tidemill.run.decide.status import status_of, statuses_of
from tidemill.run.decide.tick import decision, decisions
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.storage.lake import Lake

STREAMS = 10
NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def damaged(tmp_path):
    """Ten idle streams in a folder; the manifest of one and the newest offsets of another are damaged."""
    pipeline, target = prepared(tmp_path, STREAMS, longest=BATCHES)
    streams = list(pipeline)
    store = target.lake.store
    store.replace("control/many/feed_002/manifest.json", b"{")
    store.replace("checkpoints/many/table_003/1/offsets/36", b"v1\n")
    return streams, target


def test_decisions_side_by_side_are_those_one_by_one(damaged):
    streams, target = damaged
    together = decisions(streams, target, now=NOW)
    assert together == [decision(stream, target, now=NOW) for stream in streams]
    assert {one.stream.name.stream: one.state for one in together if one.state != "idle"} == {
        "feed_002": "refused",
        "table_003": "refused",
    }


def test_statuses_side_by_side_are_those_one_by_one(damaged):
    streams, target = damaged
    together = statuses_of(streams, target)
    assert together == [status_of(stream, target) for stream in streams]
    assert {one.stream: one.state for one in together if one.state != "idle"} == {
        "many/feed_002": "corrupt",
        "many/table_003": "corrupt",
    }


def test_a_run_has_the_results_in_the_order_of_its_streams(damaged):
    streams, target = damaged
    run = PipelineRun(streams, target=target, engine=SimpleNamespace(), run_id="run-2", max_parallel=1)
    results = list(run.iter_results())
    assert [result.stream for result in results] == [stream.name for stream in streams]
    failed = {result.stream.stream for result in results if result.outcome != "idle"}
    assert failed == {"feed_002", "table_003"}


@pytest.mark.slow
def test_an_idle_stream_on_an_object_store_costs_few_requests(tmp_path):
    pipeline, target = prepared(tmp_path, STREAMS, longest=BATCHES)
    with slow_store(tmp_path / "lake", 0) as slow:
        target = replace(target, lake=Lake(slow.store))
        decisions(
            list(pipeline), target, now=NOW
        )  # a long entry of a folder's log is parsed once per process
        for stream in pipeline:
            slow.requests()
            assert decision(stream, target, now=NOW).state == "idle"
            requests = slow.requests()
            assert len(set(requests)) == len(requests), "it has read something twice"
            counts = count(requests)
            # The lease, the checkpoint, the log of its table; and the log of the table that it reads.
            assert counts["LIST"] <= (4 if stream.upstreams else 3)
            # One file of the state of each partition per batch since its snapshot, and so in the log of a folder.
            assert counts["GET"] <= (31 if keeps_state(stream) else 13 if stream.upstreams else 19)
            assert set(counts) == {"GET", "LIST"}
