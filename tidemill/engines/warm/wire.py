"""How a client speaks with a warm server: one line of JSON each way, on loopback, with the token."""

import json
import socket
from typing import Any

from tidemill.engines.warm.record import ServerRecord, token_of
from tidemill.target.server_home import ServerHome

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
