"""A session on one instance, interrupted in every way: no run is lost, and none runs twice.

Terminate, 20 seconds without the broker, a daemon that is killed during a run, one that is killed between the request
of a run and the cursor, and two daemons at once. A tick comes every 5 seconds instead of every 30.
"""

import json
import os
import signal
import time
from collections import Counter
from itertools import count

import pytest
from confluent_kafka import Producer
from dagster import AssetKey, DagsterEventType, DagsterRunStatus, RunsFilter
from deltalake.exceptions import TableNotFoundError

from tests.orchestration.live_dagster import LiveDagster, shop_project, table_rows
from tidemill.engines.dev import supervised
from tidemill.engines.dev.broker import Broker

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.kafka, pytest.mark.timeout(900)]

ORDERS, CLICKS = "orders", "clicks"
STREAMS = (ORDERS, "copied_orders", CLICKS, "copied_clicks")
FOR_RUN = 240
WITHOUT_BROKER_SECONDS = 20
KILLED_AFTER_A_REQUEST = """
import os, signal
import dagster._daemon.sensor as sensors

submit = sensors._submit_run_request

def submit_and_end(*arguments):
    submit(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

sensors._submit_run_request = submit_and_end
from dagster._daemon.cli import main
main()
"""


class StoppableBroker(Broker):
    """A broker that can end and start again with its port and its folder."""

    def end(self):
        (java,) = _children(self._supervisor.pid)
        os.kill(java, signal.SIGTERM)
        self._supervisor.wait(30)
        self._supervisor.stdin.close()

    def start_again(self):
        from tidemill.engines.dev import broker

        java = [str(broker.require_java().path), *broker.JVM_OPTIONS]
        java += ["-cp", os.pathsep.join(map(str, broker.broker_jars()))]
        log, config = self._scratch / "broker.log", self._scratch / "server.properties"
        command = [*java, "kafka.Kafka", str(config)]
        self._supervisor = supervised.start(command, scratch=self._scratch, log=log)


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        return [int(child) for child in file.read().split()]


@pytest.fixture(scope="module")
def stoppable_broker():
    with StoppableBroker() as broker:
        broker.create_topic(CLICKS)
        yield broker


class Session:
    """What was put in, and what has come out."""

    def __init__(self, project, dagster, bootstrap):
        self.project, self.dagster = project, dagster
        self.put = {ORDERS: [], CLICKS: []}
        self._numbers = count(1)
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def order(self):
        rows = [next(self._numbers), next(self._numbers)]
        self.put[ORDERS] += rows
        folder = self.project / "landing" / ORDERS
        hidden = folder / "_writing"
        hidden.write_text("".join(f"{json.dumps({'n': n})}\n" for n in rows))
        hidden.rename(folder / f"{rows[0]}.json")

    def click(self, *, wait=True):
        number = next(self._numbers)
        self.put[CLICKS].append(number)
        self._producer.produce(CLICKS, json.dumps({"n": number}))
        if wait:
            self.flush()

    def flush(self):
        assert self._producer.flush(60) == 0

    def runs(self, *statuses):
        return self.dagster.instance.get_runs(RunsFilter(statuses=statuses or None))

    def rows(self, stream):
        try:
            return Counter(row["n"] for row in table_rows(self.project, stream))
        except TableNotFoundError:  # no run has created it yet
            return Counter()

    def has_all(self, *feeds):
        """Return whether all that was put into some feeds has arrived, and no run is in progress."""
        assert not self.runs(DagsterRunStatus.FAILURE), self.dagster.log.read_text()[-6000:]
        arrived = all(
            self.rows(stream) == Counter(self.put[feed])
            for feed in feeds
            for stream in (feed, f"copied_{feed}")
        )
        return arrived and all(run.is_finished for run in self.runs())

    def wait_for_all(self, *feeds):
        self.dagster.wait_for(lambda: self.has_all(*(feeds or self.put)), FOR_RUN)


def test_interruptions_lose_no_run_and_repeat_none(tmp_path, stoppable_broker):
    project = shop_project(tmp_path, stoppable_broker.bootstrap, interval=5, at_most_every="1 second")
    with LiveDagster(project) as dagster:
        session = Session(project, dagster, stoppable_broker.bootstrap)
        terminated = terminate_a_run_in_progress(session)
        stop_the_broker_for_a_while(session, stoppable_broker)
        kill_the_daemon_during_a_run(session)
        kill_the_daemon_between_request_and_cursor(session)
        tick_in_two_daemons(session)
        assert_each_batch_is_there_once(session)
        assert_each_run_had_something_to_do(session, without=terminated)


def terminate_a_run_in_progress(session):
    """Terminate through the API of the UI; the run of a later tick completes what this one began."""
    dagster = session.dagster
    hold = session.project / "hold"
    hold.touch()
    session.order()
    session.click()
    session.daemon = dagster.start_daemon()
    began = session.project / "lake" / "checkpoints" / "shop" / ORDERS / "1" / "offsets" / "0"
    dagster.wait_for(began.exists, FOR_RUN)
    (run,) = [
        run
        for run in session.runs(DagsterRunStatus.STARTED)
        if AssetKey(["shop", ORDERS]) in run.asset_selection
    ]
    hold.unlink()
    answer = dagster.graphql(
        "mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=run.run_id
    )
    assert answer["terminateRun"]["__typename"] == "TerminateRunSuccess"
    dagster.wait_for(
        lambda: dagster.instance.get_run_by_id(run.run_id).status == DagsterRunStatus.CANCELED, 60
    )
    session.wait_for_all()
    return run.run_id


def stop_the_broker_for_a_while(session, broker):
    """Stop the broker: files still lead to runs, and a message that waits for the broker leads to one later."""
    broker.end()
    without_broker_since = time.monotonic()
    before = len(session.runs())
    session.click(wait=False)
    session.order()
    session.wait_for_all(ORDERS)
    session.dagster.wait_for(
        lambda: time.monotonic() - without_broker_since > WITHOUT_BROKER_SECONDS, 2 * WITHOUT_BROKER_SECONDS
    )
    assert len(session.runs()) == before + 1
    broker.start_again()
    session.flush()
    session.wait_for_all()


def kill_the_daemon_during_a_run(session):
    """Kill the daemon; the run ends without it, and what arrives meanwhile is read after its restart."""
    session.order()
    session.dagster.wait_for(lambda: session.runs(DagsterRunStatus.STARTED), FOR_RUN)
    session.dagster.stop(session.daemon, signal.SIGKILL)
    session.click()
    session.wait_for_all(ORDERS)
    session.daemon = session.dagster.start_daemon()
    session.wait_for_all()


def kill_the_daemon_between_request_and_cursor(session):
    """Kill the daemon when it has requested one of two runs, and stored neither its cursor nor the end of the tick."""
    session.dagster.stop(session.daemon)
    before = len(session.runs())
    session.order()
    session.click()
    daemon = session.dagster.start_daemon(script=KILLED_AFTER_A_REQUEST)
    assert daemon.wait(FOR_RUN) == -signal.SIGKILL
    session.daemon = session.dagster.start_daemon()
    session.wait_for_all()
    assert len(session.runs()) == before + 2


def tick_in_two_daemons(session):
    second = session.dagster.start_daemon()
    before = len(session.runs())
    session.order()
    session.click()
    session.wait_for_all()
    assert len(session.runs()) == before + 2
    assert second.poll() is None


def assert_each_batch_is_there_once(session):
    """Compare the ledger with the logs of the tables: each batch has one line and one commit."""
    lake = session.project / "lake"
    for stream in STREAMS:
        commits = {
            path.name for path in (lake / "checkpoints" / "shop" / stream / "1" / "commits").glob("[0-9]*")
        }
        lines = [
            json.loads(line)
            for path in (lake / "ledger" / "pipeline=shop" / f"stream={stream}").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert Counter(str(line["batch_id"]) for line in lines) == Counter(commits)
        log = (lake / "tables" / "shop" / stream / "_delta_log").glob("*.json")
        actions = [json.loads(line) for path in log for line in path.read_text().splitlines()]
        batches = [action["txn"]["version"] for action in actions if "txn" in action]
        assert len(batches) == len(set(batches))


def assert_each_run_had_something_to_do(session, *, without):
    """A run that another one has made needless would find nothing, or a stream that is busy."""
    instance = session.dagster.instance
    for run in session.runs():
        if run.run_id == without:
            continue
        assert run.status == DagsterRunStatus.SUCCESS
        events = instance.get_records_for_run(run.run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION)
        materialized = {record.asset_key for record in events.records}
        assert materialized == set(run.asset_selection)
