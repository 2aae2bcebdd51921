"""A warm server without Spark: its lock, its record and its clients."""

import os
from contextlib import contextmanager

from tidemill.engines.warm.clients import Clients, ClientServer
from tidemill.engines.warm.wire import ServerRecord, ask, running


class Sessions:
    """Stands for Spark: the clients whose sessions were closed."""

    def __init__(self):
        self.closed = []
        self.failure = None

    def close(self, client):
        """Close the sessions of a client, or fail."""
        if self.failure is not None:
            raise self.failure
        self.closed.append(client)


@contextmanager
def serving(home):
    """Serve in a thread until the block ends."""
    lock = home.lock()
    home.clear()
    clients = Clients("token", home.attached, Sessions())
    server = ClientServer(clients)
    server.serve_in_background()
    home.write_private(home.token_file, "token")
    port = server.server_address[1]
    ServerRecord(
        pid=os.getpid(), jvm_pid=0, spark_port=1, control_port=port, started_at="now", settings={}
    ).write(home)
    try:
        yield clients
    finally:
        server.shutdown()
        server.server_close()
        os.close(lock)


def attached(home, idle_timeout=60.0):
    """Attach this process; return the answer and the open connection."""
    return ask(home, running(home), "attach", pid=os.getpid(), idle_timeout=idle_timeout)
