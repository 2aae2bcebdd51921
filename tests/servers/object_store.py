"""An S3 server on loopback for tests: moto in a process of its own, in memory, which ends with its owner.

This file is also the program of that process: it prints its port, and it reads its standard input, which only the owner
holds open, until the owner closes it or ends.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection

ACCESS_KEY, SECRET_KEY, REGION = "test", "test", "us-east-1"
STOP_SECONDS = 10


@dataclass(frozen=True)
class ObjectServer:
    """A server that answers, with one empty bucket.

    Attributes:
        port: Its port on 127.0.0.1.
        bucket: The name of the bucket.
    """

    port: int
    bucket: str = "lake"
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    region: str = REGION

    @property
    def endpoint(self) -> str:
        """The address of the server, which takes the bucket in the path."""
        return f"http://127.0.0.1:{self.port}"

    def create_bucket(self, name: str) -> None:
        """Create another bucket."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"/{name}")
        assert connection.getresponse().status == 200
        connection.close()


@contextmanager
def object_store() -> Iterator[ObjectServer]:
    """Start a server with a bucket, and stop it at the end of the block."""
    # No folder of this file on the path, where modules have the names of others; no log of requests.
    with subprocess.Popen(
        [sys.executable, "-I", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal reaches only the owner, which decides
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, "the server ended before it listened"
            server = ObjectServer(int(line))
            server.create_bucket(server.bucket)
            yield server
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _serve() -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)  # noqa: T201 - its answer to the owner
    while os.read(0, 1024):
        pass
    os._exit(0)  # no request that is still open delays the end


if __name__ == "__main__":
    _serve()
