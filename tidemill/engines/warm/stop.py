"""The end of a warm server that is asked to stop, and what it answers about its clients."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from tidemill.engines.warm.wire import ServerEndedError, answer_to
from tidemill.errors import TransientError

if TYPE_CHECKING:
    from tidemill.engines.warm.wire import ServerRecord
    from tidemill.target.server_home import ServerHome

END_SECONDS = 150.0
POLL_SECONDS = 0.05
_PROGRAM, _SPARK = "tidemill.engines.warm.server", "pyspark-shell"  # on their command lines


def clients_of(home: "ServerHome", record: "ServerRecord") -> dict[str, Any] | None:
    """Return the clients of a server, and for how long it has been idle; None where it does not answer."""
    try:
        return answer_to(home, record, "status")
    except ServerEndedError:
        return None


def stop(home: "ServerHome", record: "ServerRecord", *, force: bool) -> list[dict[str, Any]]:
    """Stop a server and wait for its end; return the clients that it was not stopped for.

    Args:
        home: Where it is.
        force: Whether to stop it although runs are attached, and to kill it if it does not answer.

    Raises:
        TransientError: It does not end.
    """
    try:
        answer = answer_to(home, record, "stop", force=force)
    except ServerEndedError:
        answer = {"ok": True}
        if force:
            _kill(record)
    if not answer["ok"]:
        return list(answer["clients"])
    wait_until_ended(home, record)
    return []


def wait_until_ended(home: "ServerHome", record: "ServerRecord") -> None:
    """Wait until a server and its JVM have ended.

    Raises:
        TransientError: It does not end.
    """
    deadline = time.monotonic() + END_SECONDS
    while lives(home, record):
        if time.monotonic() > deadline:
            raise TransientError(
                f"the warm server of target {home.target!r} (process {record.pid}) does not end.",
                fix=f"kill {record.pid} {record.jvm_pid}, then run it again.",
                code="warm-server-not-stopped",
            )
        time.sleep(POLL_SECONDS)


def lives(home: "ServerHome", record: "ServerRecord") -> bool:
    """Return whether the server of a record lives, or its JVM."""
    return (home.has_server and _runs(record.pid, _PROGRAM)) or _runs(record.jvm_pid, _SPARK)


def _kill(record: "ServerRecord") -> None:
    for pid, program in ((record.pid, _PROGRAM), (record.jvm_pid, _SPARK)):
        if _runs(pid, program):
            with suppress(psutil.Error):
                psutil.Process(pid).kill()


def _runs(pid: int, program: str) -> bool:
    """Return whether a process lives and runs this program: process ids are reused."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and program in process.cmdline()
    except psutil.Error:
        return False
