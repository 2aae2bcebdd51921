"""The clients of a warm server: who is attached, since when nobody is, and what happens when one goes.

A client is attached as long as its connection is open. The system closes the connection when the client ends,
also by SIGKILL; then the server stops the client's queries, and removes its file in `attached/` only when they
have really stopped. A lease of that client is free from then on (records/lease.py).
"""

import hmac
import json
import select
import socketserver
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Protocol
from uuid import uuid4

from tidemill.text.durations import now_iso

FIRST_LINE_SECONDS = 10.0
POLL_SECONDS = 0.2
STOPPED = b"stopped\n"
"""What a client reads when the server ends because it was asked to; when the server was killed, it reads nothing."""


class Sessions(Protocol):
    """The Spark sessions of the clients."""

    def close(self, client: str) -> None:
        """Close the sessions of a client; return when none of its queries can write any more."""


@dataclass(frozen=True, slots=True)
class Client:
    """An attached process.

    Attributes:
        id: Its id, the user of its Spark sessions.
        pid: The process.
        since: When it attached, ISO-8601 UTC.
        file: Its file in `attached/`.
    """

    id: str
    pid: int
    since: str
    file: Path


@dataclass(slots=True)
class Clients:
    """The clients, and when the server has to end.

    Attributes:
        token: What each of them must show.
        attached: The folder with a file per client.
        stopping: Set when the server has to end.
    """

    token: str
    attached: Path
    sessions: Sessions
    stopping: Event = field(default_factory=Event)
    _clients: dict[str, Client] = field(default_factory=dict)
    _idle_since: float = field(default_factory=time.monotonic)
    _idle_timeout: float = float("inf")
    _lock: Lock = field(default_factory=Lock)

    def stop_when_idle(self) -> None:
        """Ask the server to end if nobody has been attached for the idle timeout."""
        with self._lock:
            if not self._clients and self._idle_seconds() >= self._idle_timeout:
                self.stopping.set()

    @property
    def count(self) -> int:
        """How many are attached."""
        return len(self._clients)

    def set_idle_timeout(self, seconds: float) -> None:
        """Set how long the server waits for a client; the newest client decides."""
        self._idle_timeout = seconds

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], Client | None]:
        """Return the answer to a request, and the client that it attaches."""
        if not hmac.compare_digest(str(request.get("token")), self.token):
            return {"ok": False, "reason": "token"}, None
        with self._lock:
            if request["command"] == "attach":
                return self._attach(int(request["pid"]), float(request["idle_timeout"]))
            document = self._status()
            if request["command"] == "stop":
                document["ok"] = bool(request["force"]) or not self._clients
                if document["ok"]:
                    self.stopping.set()
        return document, None

    def detach(self, client: Client) -> None:
        """Stop the queries of a client that has ended; it counts as attached until they have stopped."""
        try:
            self.sessions.close(client.id)
        except Exception as error:  # noqa: BLE001 - its file stays, so nobody takes its streams over
            sys.stderr.write(f"The sessions of process {client.pid} cannot be closed: {error}\n")
        else:
            client.file.unlink(missing_ok=True)
        with self._lock:
            del self._clients[client.id]
            self._idle_since = time.monotonic()

    def _attach(self, pid: int, idle_timeout: float) -> tuple[dict[str, Any], Client | None]:
        if self.stopping.is_set():
            return {"ok": False, "reason": "stopping"}, None
        name = uuid4().hex
        since = now_iso()
        client = Client(name, pid, since, self.attached / name)
        client.file.write_text(f"{pid}\n", encoding="ascii")
        self._clients[name] = client
        self._idle_timeout = idle_timeout
        return {"ok": True, "client": name, "attachment": str(client.file)}, client

    def _status(self) -> dict[str, Any]:
        clients = [{"pid": client.pid, "since": client.since} for client in self._clients.values()]
        return {
            "ok": True,
            "clients": clients,
            "idle_seconds": 0.0 if clients else round(self._idle_seconds(), 3),
            "idle_timeout_seconds": self._idle_timeout,
        }

    def _idle_seconds(self) -> float:
        return time.monotonic() - self._idle_since


class ClientServer(socketserver.ThreadingTCPServer):
    """The port where clients attach."""

    daemon_threads = True

    def __init__(self, clients: Clients) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.clients = clients

    def serve_in_background(self) -> None:
        """Serve from a thread until the process ends."""
        Thread(target=self.serve_forever, name="clients", daemon=True).start()


class _Conversation(socketserver.StreamRequestHandler):
    server: ClientServer

    def handle(self) -> None:
        self.connection.settimeout(FIRST_LINE_SECONDS)
        try:
            request = json.loads(self.rfile.readline(65_536))
        except (OSError, ValueError):
            return
        if not isinstance(request, dict):
            return
        answer, client = self.server.clients.answer(request)
        try:
            self.wfile.write(f"{json.dumps(answer)}\n".encode())
            if client is not None:
                self._wait_until_ended()
        except OSError:
            pass  # the client has ended, which is what this waits for
        finally:
            if client is not None:
                self.server.clients.detach(client)

    def _wait_until_ended(self) -> None:
        """Wait until the client closes its connection, which it does not use any more, or the server has to end."""
        while not self.server.clients.stopping.is_set():
            if select.select([self.connection], [], [], POLL_SECONDS)[0]:
                return
        self.wfile.write(STOPPED)  # the client does not start another server

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
