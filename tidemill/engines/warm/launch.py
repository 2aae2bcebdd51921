"""The start of a warm server by the first process that needs it; every other process waits for that one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.engines.warm.stop import lives
from tidemill.engines.warm.wire import ServerRecord, last_record, running
from tidemill.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemill.target.server_home import ServerHome
    from tidemill.target.spark_settings import SparkSettings

START_SECONDS = 180.0
# Spark gives a Python worker 15 s to show who it is, which it can exceed while others start.
WORKER_SECONDS = "60"
POLL_SECONDS = 0.05
_LOG_LINES = 5
# pyspark sets them in a process that uses Spark Connect, and everything below it would use that, too.
_OF_A_CLIENT = {
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_REMOTE",
    "SPARK_LOCAL_REMOTE",
    "SPARK_API_MODE",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_started: list[subprocess.Popen[bytes]] = []
"""The servers that this process started; they outlive it, and nobody waits for them."""


def server_confs(settings: "SparkSettings") -> dict[str, str]:
    """Return the confs of the application inside a warm server.

    Raises:
        ConfigurationError: A variable that holds a secret is not set, or the jars are not available.
    """
    from tidemill.engines.launch import application_confs

    confs = application_confs(settings)
    return {
        **confs,
        # Out of memory, a JVM can continue without some of its threads; a server that has ended is replaced.
        _JAVA_OPTIONS: f"{confs[_JAVA_OPTIONS]} -XX:+ExitOnOutOfMemoryError",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        # A client that is silent during a long batch keeps its sessions: they are closed when it ends.
        "spark.connect.session.manager.defaultSessionTimeout": "-1",
        "spark.python.authenticate.socketTimeout": f"{WORKER_SECONDS}s",
        # A worker that served an earlier run still has the modules of that time: changed code must take effect.
        "spark.python.worker.reuse": "false",
    }


def ready_server(
    home: "ServerHome", confs: Mapping[str, str], *, idle_timeout: float, aborted: "Callable[[], bool]"
) -> ServerRecord:
    """Return the server that is ready, started by this process if no process has.

    Args:
        home: Where it is.
        confs: The confs of the application.
        idle_timeout: After how many seconds without a client it ends.
        aborted: Whether nobody waits for it any more.

    Raises:
        TransientError: It did not start.
    """
    deadline = time.monotonic() + START_SECONDS
    process: subprocess.Popen[bytes] | None = None
    while True:
        if (record := running(home)) is not None:
            return record
        if process is None and (lock := home.lock()) is not None:
            try:
                # The JVM of a server that was killed ends a moment later, and may be writing until then.
                if (last := last_record(home)) is None or not lives(home, last):
                    process = _start(home, confs, idle_timeout, lock)
            finally:
                os.close(lock)  # the server holds it now
        if process is not None and process.poll() is not None:
            raise _not_started(home, f"ended with status {process.returncode}")
        if time.monotonic() > deadline or aborted():
            raise _not_started(home, f"was not ready after {START_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _start(
    home: "ServerHome", confs: Mapping[str, str], idle_timeout: float, lock: int
) -> subprocess.Popen[bytes]:
    home.clear()
    arguments = [str(home.folder), str(home.root), home.target, str(lock)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill.engines.warm.server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=home.root,
        env=_environment(home.root),
        pass_fds=(lock,),
        start_new_session=True,  # it outlives the run, its terminal and an interrupt
    )
    _started.append(process)
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # it has ended, which the caller notices
            process.stdin.write(json.dumps({"confs": dict(confs), "idle_timeout": idle_timeout}).encode())
            process.stdin.close()
    return process


def _environment(root: Path) -> dict[str, str]:
    """Return the environment of the server: that of this process, which may be a client of an earlier server."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_A_CLIENT}
    return kept | {
        "PYTHONPATH": os.pathsep.join(_import_folders(root)),
        "SPARK_AUTH_SOCKET_TIMEOUT": WORKER_SECONDS,
    }


def _import_folders(root: Path) -> list[str]:
    """Return the folders that pipelines are imported from and that are not those of the environment."""
    environment = (sys.prefix, sys.base_prefix)
    extra = (path for path in sys.path if path and Path(path).is_dir() and not path.startswith(environment))
    return list(dict.fromkeys([*extra, str(root)]))


def _not_started(home: "ServerHome", reason: str) -> TransientError:
    lines: list[str] = []
    with suppress(OSError):
        lines = home.log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = " ".join(line.strip() for line in [line for line in lines if line.strip()][-_LOG_LINES:])
    return TransientError(
        f"The warm server {reason}." + (f" Its log ends with: {last}" if last else ""),
        fix=f"read its log with tidemill engine logs --target {home.target}, and run it again.",
        code="warm-server-not-started",
    )
