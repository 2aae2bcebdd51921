"""A run in a process of its own that is killed when it waits at a point."""

import os
import signal
import subprocess
import sys
import time

from tests.spark_of_tests import kill_server, own_server

FOR_KILL = 150  # seconds until the run has come to its point, on a busy machine


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
