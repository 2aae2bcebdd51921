"""A run in a process of its own that is killed when it waits at a point."""

import os
import signal
import subprocess
import sys
import time

from tests.servers.spark_of_tests import kill_server, own_server, settings

FOR_KILL = 400  # seconds until a run has come to its point, on a busy machine


def killed_when(module, tmp_path, *, point, every=1):
    """Run a module with its arguments, and kill it and its JVM with SIGKILL at a point.

    Of several points, separated by spaces, `every` one must be reached.
    """
    marker, log, server = (tmp_path / name for name in ("reached", "killed.log", "server"))
    environment = {"TIDEMILL_PAUSE_FILE": str(marker), "TIDEMILL_PAUSE_AT": point} | own_server(server)
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + FOR_KILL
    try:
        while not marker.exists() or len(marker.read_text().splitlines()) < every:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kill_server(server)
        marker.unlink(missing_ok=True)


def scratch_at(lake, landing, *, cores=2):
    """The lake of a test, in a process that the test kills."""
    # Python workers of Spark import this module with that of a pickled function, and need none of this.
    from tests.support.lakes import scratch_in
    from tidemill.engines.engine import SparkEngine

    return scratch_in(lake, landing, SparkEngine(settings(cores=cores)))


def run_into_kafka(stream_of):
    """Run a stream into a topic, in a process that the test kills: its arguments are LAKE LANDING BOOTSTRAP TOPIC."""
    from tidemill.target.target import KafkaCluster

    lake, landing, bootstrap, topic = sys.argv[1:]
    scratch = scratch_at(lake, landing)
    scratch.clusters["default"] = KafkaCluster(bootstrap=bootstrap)
    scratch.run(stream_of(topic))


def run_side_by_side(scratch, streams):
    """Run streams, all at the same time, so that each comes to its point."""
    from tidemill.run.execute.pipeline_run import PipelineRun

    run = PipelineRun(
        streams, target=scratch.target, engine=scratch.engine, run_id="killed", max_parallel=len(streams)
    )
    for result in run.iter_results():
        if result.error is not None:
            raise result.error
