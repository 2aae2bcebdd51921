"""The warm server: a program that keeps Spark Connect running on loopback until nobody has used it for a while.

`python -m tidemill.engines.warm.server FOLDER ROOT TARGET LOCK`, with the confs on standard input; `launch.py` next
to it starts it. Its JVM is a child that ends with it, and it ends when its JVM does.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from tidemill.engines.installed import pyspark_folder
from tidemill.engines.warm.clients import Clients, ClientServer
from tidemill.engines.warm.settings import described
from tidemill.engines.warm.wire import ServerRecord
from tidemill.target.server_home import ServerHome
from tidemill.text.durations import now_iso
from tidemill.text.secret import MASK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.engines.warm.sessions import ConnectSessions

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of Spark's variable
POLL_SECONDS = 0.5
STOP_SECONDS = 120.0
FORGET_SECONDS = 5.0


def main() -> None:
    """Run the server until it is stopped, idle, or without its JVM."""
    folder, root, target, lock = sys.argv[1:]
    os.set_inheritable(int(lock), False)  # held by this process alone, and released when it ends
    home = ServerHome(target, Path(root), Path(folder))
    request = json.load(sys.stdin)
    token = secrets.token_urlsafe(32)
    _log_without(token, home.log)
    os.environ[TOKEN_VARIABLE] = token
    os.environ.setdefault("SPARK_HOME", str(_spark_home(home)))
    from tidemill.engines.launch import start

    spark = start(request["confs"])
    _serve(home, spark, token, request["confs"], request["idle_timeout"])


def _spark_home(home: ServerHome) -> Path:
    """Return a Spark home without pyspark's zip, which Spark puts before everything else a worker imports from.

    A worker then imports the installed pyspark, whose modules are compiled: each query with a foreachBatch function
    starts one, which has 10 s to be ready.
    """
    folder = home.folder / "spark"
    folder.mkdir(exist_ok=True)
    installed = pyspark_folder()
    for name in ("bin", "jars"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(installed / name)
    return folder


def _serve(
    home: ServerHome, spark: "SparkSession", token: str, confs: Mapping[str, str], idle_timeout: float
) -> None:
    from tidemill.engines.warm.sessions import ConnectSessions

    jvm: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - it has no public name
    sessions = ConnectSessions(spark)
    clients = Clients(token, home.attached, sessions)
    clients.set_idle_timeout(idle_timeout)
    server = ClientServer(clients)
    server.serve_in_background()
    signal.signal(signal.SIGTERM, lambda *_: clients.stopping.set())
    home.write_private(home.token_file, token)
    ServerRecord(
        pid=os.getpid(),
        jvm_pid=jvm.pid,
        spark_port=sessions.port,
        control_port=server.server_address[1],
        started_at=now_iso(),
        settings=described(confs, token),
    ).write(home)
    Thread(target=_forget_finished, args=(sessions, clients), name="finished queries", daemon=True).start()
    while not clients.stopping.wait(POLL_SECONDS):
        if jvm.poll() is not None:
            sys.stderr.write(f"The JVM ended with status {jvm.returncode}.\n")
            os._exit(1)  # its threads wait for answers of a JVM that has ended
        clients.stop_when_idle()
    deadline = time.monotonic() + STOP_SECONDS
    while clients.count and time.monotonic() < deadline and jvm.poll() is None:
        time.sleep(POLL_SECONDS / 10)
    home.record_file.unlink(missing_ok=True)
    home.token_file.unlink(missing_ok=True)
    jvm.stdin.close()  # which ends the JVM
    try:
        jvm.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    os._exit(0)


def _forget_finished(sessions: "ConnectSessions", clients: Clients) -> None:
    """Keep the heap free of finished queries; a thread, because a JVM that ends may never answer."""
    while not clients.stopping.wait(FORGET_SECONDS):
        sessions.forget_finished()


def _log_without(token: str, log: Path) -> None:
    """Send the output of this process and its children to the log, without the token.

    A Python worker prints its address at its start, and the token is a part of it.
    """
    reader, writer = os.pipe()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(writer, standard)
    os.close(writer)
    hidden, shown = token.encode(), MASK.encode()

    def copy() -> None:
        with os.fdopen(reader, "rb") as lines:
            for line in lines:
                os.write(descriptor, line.replace(hidden, shown))

    Thread(target=copy, name="log", daemon=True).start()


if __name__ == "__main__":
    main()
