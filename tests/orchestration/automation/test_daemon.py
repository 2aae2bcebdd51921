"""A real webserver and daemon: events in a folder and in a topic lead to runs that move what should move."""

from collections import Counter

import pytest
from confluent_kafka import Producer
from dagster import AssetKey, DagsterRunStatus

from tests.orchestration.live_dagster import LiveDagster, shop_project, table_rows

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.kafka, pytest.mark.timeout(900)]

ORDERS = {AssetKey(["shop", name]) for name in ("orders", "copied_orders")}
CLICKS = {AssetKey(["shop", name]) for name in ("clicks", "copied_clicks")}
TWO_TICKS = 2 * 30
FOR_RUN = 240  # a run of four streams with a JVM of its own, on a busy machine


@pytest.fixture
def project(tmp_path, broker):
    broker.create_topic("clicks")
    return shop_project(tmp_path, broker.bootstrap)


@pytest.fixture
def dagster(project):
    with LiveDagster(project) as live:
        live.start_daemon()
        yield live


def test_events_lead_to_runs_that_move_what_should_move_and_nothing_else(project, broker, dagster):
    instance = dagster.instance

    def finished(number):
        runs = instance.get_runs()
        done = [run for run in runs if run.status == DagsterRunStatus.SUCCESS]
        failed = [run for run in runs if run.status == DagsterRunStatus.FAILURE]
        assert not failed, dagster.log.read_text()[-4000:]
        return runs if len(done) == len(runs) == number else None

    def requested(number):
        return len(instance.get_runs()) == number

    first = dagster.wait_for(lambda: finished(2), TWO_TICKS + FOR_RUN)
    assert {frozenset(run.asset_selection) for run in first} == {frozenset(ORDERS), frozenset(CLICKS)}
    assert {run.tags["tidemill/cause"] for run in first} == {"backlog"}

    (project / "landing" / "orders" / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
    # `at_most_every` is a minute, after which two ticks are enough.
    dagster.wait_for(lambda: requested(3), 60 + TWO_TICKS)
    second = dagster.wait_for(lambda: finished(3), FOR_RUN)[0]
    assert set(second.asset_selection) == ORDERS

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("clicks", '{"n": 3}')
    producer.flush(20)
    dagster.wait_for(lambda: requested(4), 60 + TWO_TICKS)
    third = dagster.wait_for(lambda: finished(4), FOR_RUN)[0]
    assert set(third.asset_selection) == CLICKS

    materialized = Counter(
        key.to_user_string()
        for key in ORDERS | CLICKS
        for _ in instance.fetch_materializations(key, limit=20).records
    )
    rows = {name: len(table_rows(project, name)) for name in ("copied_orders", "copied_clicks")}
    assert rows == {"copied_orders": 2, "copied_clicks": 1}
    assert set(materialized) == {key.to_user_string() for key in ORDERS | CLICKS}
