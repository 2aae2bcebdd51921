"""Waiting for other processes: free ports, servers that listen, and conditions that become true."""

import socket
import time
from pathlib import Path


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Return whether something listens on a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, seconds, log: Path | None = None, *, every=0.05):
    """Wait until a condition is true, and return its value; fail with the end of a log."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, log.read_text()[-6000:] if log else "it took too long"
        time.sleep(every)
    return value
