"""How a client speaks with a warm server, and the record by which it finds it."""

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidemill.target.server_home import ServerHome


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A warm server that is ready.

    Attributes:
        pid: The server's process.
        spark_port: The port of Spark Connect on 127.0.0.1.
        control_port: The port on 127.0.0.1 where clients attach.
        started_at: When it was ready, ISO-8601 UTC.
        settings: The settings and versions it was started with; secrets as digests.
    """

    pid: int
    jvm_pid: int
    spark_port: int
    control_port: int
    started_at: str
    settings: Mapping[str, str]

    def write(self, home: ServerHome) -> None:
        """Write the record, which says that the server is ready."""
        home.write_private(home.record_file, json.dumps(asdict(self)))


def running(home: ServerHome) -> ServerRecord | None:
    """Return the record of the server that lives and is ready; None if there is none.

    A record alone proves nothing: after a kill or a reboot it is left, and the lock is free.
    """
    return last_record(home) if home.has_server else None


def last_record(home: ServerHome) -> ServerRecord | None:
    """Return the record of the server that lives, or that was killed last; None if there is none."""
    try:
        return ServerRecord(**json.loads(home.record_file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # it is starting, or an older Tidemill wrote it


def token_of(home: ServerHome) -> str:
    """Return the token of the server; empty if it has just ended."""
    try:
        return home.token_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


CONNECT_SECONDS = 5.0
# A stop waits for queries in mid-batch; Delta's commits are not interrupted.
ANSWER_SECONDS = 120.0


class ServerEndedError(Exception):
    """The server ended, or is about to end, while it was asked."""


def ask(
    home: ServerHome, record: ServerRecord, command: str, **arguments: Any
) -> tuple[dict[str, Any], socket.socket]:
    """Send a command to a server; return its answer, and the open connection.

    Raises:
        ServerEndedError: The server does not answer.
    """
    try:
        connection = socket.create_connection(("127.0.0.1", record.control_port), CONNECT_SECONDS)
    except OSError as error:
        raise ServerEndedError from error
    try:
        connection.settimeout(ANSWER_SECONDS)
        request = {"token": token_of(home), "command": command, **arguments}
        connection.sendall(f"{json.dumps(request)}\n".encode())
        with connection.makefile("rb") as lines:
            line = lines.readline()
        answer = json.loads(line) if line else None
    except (OSError, ValueError) as error:
        connection.close()
        raise ServerEndedError from error
    if not isinstance(answer, dict):
        connection.close()
        raise ServerEndedError
    return answer, connection


def answer_to(home: ServerHome, record: ServerRecord, command: str, **arguments: Any) -> dict[str, Any]:
    """Send a command to a server and return its answer.

    Raises:
        ServerEndedError: The server does not answer.
    """
    answer, connection = ask(home, record, command, **arguments)
    connection.close()
    return answer
