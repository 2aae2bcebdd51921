"""A process that is attached to a warm server."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from tidemill.engines.warm.launch import ready_server, server_confs
from tidemill.engines.warm.settings import Difference, described, differences
from tidemill.engines.warm.stop import stop, wait_until_ended
from tidemill.engines.warm.wire import ServerEndedError, ServerRecord, ask, token_of
from tidemill.errors import ConfigurationError, TransientError
from tidemill.target.server_home import ServerHome
from tidemill.target.spark_settings import IDLE_TIMEOUT, SparkSettings

# A run that has just ended counts as attached until the server has closed its sessions.
FREE_SECONDS = 5.0
POLL_SECONDS = 0.1
_ATTEMPTS = 3


@dataclass(slots=True)
class Attachment:
    """An attachment; the server keeps the sessions of this process as long as it is open.

    Attributes:
        file: The file that the server removes when all queries of this process have stopped.
        address: The address of Spark Connect, with the token.
        ended: Set when the server has ended, is ending, or has closed this attachment.
        was_stopped: Whether somebody stopped the server.
    """

    record: ServerRecord
    file: Path
    address: str
    ended: Event = field(default_factory=Event)
    was_stopped: bool = False
    _connection: socket.socket | None = None

    def watch(self, connection: socket.socket) -> None:
        """Watch the connection from a thread: the system closes it when the server ends, however it ends."""
        connection.settimeout(None)
        self._connection = connection
        Thread(target=self._watch, args=(connection,), name="warm server", daemon=True).start()

    def close(self) -> None:
        """End the attachment: this process needs the server no more.

        The server closes the sessions and then the connection, which sets `ended`.
        """
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    def _watch(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.was_stopped = bool(connection.recv(1))
        self.ended.set()


def attach(settings: SparkSettings, *, aborted: Callable[[], bool]) -> Attachment:
    """Attach this process to the target's server; start the server if there is none.

    A server with other settings that nobody uses is replaced.

    Args:
        settings: What the run needs.
        aborted: Whether nobody waits for it any more.

    Raises:
        ConfigurationError: Runs are attached to a server with other settings.
        TransientError: The server did not start.
    """
    home = settings.server
    if home is None:
        raise ConfigurationError("mode 'warm' needs a target of tidemill.toml.", code="warm-without-target")
    confs = server_confs(settings)
    idle_timeout = (settings.idle_timeout or IDLE_TIMEOUT).total_seconds()
    for _ in range(_ATTEMPTS):
        record = ready_server(home, confs, idle_timeout=idle_timeout, aborted=aborted)
        try:
            if different := _differences(home, record, confs):
                _replace(home, record, different)
                continue
            answer, connection = ask(home, record, "attach", pid=os.getpid(), idle_timeout=idle_timeout)
            if answer["ok"]:
                user = answer["client"]
                address = f"sc://localhost:{record.spark_port}/;user_id={user};token={token_of(home)}"
                attachment = Attachment(record, Path(answer["attachment"]), address)
                attachment.watch(connection)
                return attachment
            connection.close()
        except ServerEndedError:
            pass  # it ended a moment ago: the next turn of the loop starts another one
        wait_until_ended(home, record)
    raise TransientError("the warm server ended each time this run attached to it.", code="warm-server-ended")


def _differences(home: ServerHome, record: ServerRecord, confs: Mapping[str, str]) -> tuple[Difference, ...]:
    return differences(record.settings, described(confs, token_of(home)))


def _replace(home: ServerHome, record: ServerRecord, different: tuple[Difference, ...]) -> None:
    """Stop a server with other settings, so that another one is started in its place."""
    deadline = time.monotonic() + FREE_SECONDS
    while clients := stop(home, record, force=False):
        if time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            continue
        processes = ", ".join(str(client["pid"]) for client in clients)
        raise ConfigurationError(
            f"The warm server of target {home.target!r} has other settings: {'; '.join(map(str, different))}. It is in "
            f"use by process {processes}.",
            lost="No data was lost.",
            fix=f"wait until it is free, or stop it: tidemill engine stop --target {home.target}",
            code="warm-server-differs",
        )
