"""A store with the interface of S3 that is as slow as a real one: moto, with a lake in it, behind a proxy.

The proxy answers each request after a while, and counts the requests by kind. It sends a read to moto once and answers
it from memory until something is written: moto needs up to a tenth of a second for a listing, and all requests are to
take the same time. This file is also the program of its process, which ends with its owner.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from tidemill.storage.object_store import ObjectStore
from tidemill.storage.s3_settings import S3Settings

BUCKET, ACCOUNT = "lake", "123456789012"
REQUESTS = "/-/requests"
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(frozen=True, slots=True)
class SlowStore:
    """A store that answers.

    Attributes:
        port: Its port on 127.0.0.1.
    """

    port: int

    @property
    def store(self) -> ObjectStore:
        """Its files."""
        settings = S3Settings(
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",  # noqa: S106 - moto takes any
        )
        return ObjectStore(BUCKET, settings=settings)

    def settings_of(self, target: str) -> str:
        """Return how a target of tidemill.toml reaches it; the secret is in BENCH_SECRET."""
        given = self.store.settings
        return f"""
[targets.{target}.store]
endpoint = "{given.endpoint}"
region = "{given.region}"
access_key_id = "{given.access_key_id}"
secret_access_key = "${{BENCH_SECRET}}"
"""

    def requests(self) -> list[tuple[str, str]]:
        """Return the kind and the address of each request since the last call."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", REQUESTS)
        requests = json.loads(connection.getresponse().read())
        connection.close()
        return [(kind, address) for kind, address in requests]


@contextmanager
def slow_store(folder: Path, seconds: float) -> Iterator[SlowStore]:
    """Serve a bucket with the files of a folder until the block ends.

    Args:
        folder: The folder.
        seconds: How long a request takes in addition.
    """
    command = [sys.executable, "-m", "bench.object_store.server", str(folder), str(seconds)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            yield SlowStore(int(process.stdout.readline()))
        finally:
            process.stdin.close()
            process.wait(10)


@dataclass(slots=True)
class _Proxy:
    """A proxy in front of a server on 127.0.0.1.

    Attributes:
        upstream: The port of the server.
        seconds: How long a request takes in addition.
        requests: The kind and the address of each request.
    """

    upstream: int
    seconds: float
    requests: list[tuple[str, str]] = field(default_factory=list)
    _answers: dict[tuple[str, str, str], bytes] = field(default_factory=dict)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer the requests of a connection, one after another."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, address, _ = head[0].split(" ")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                lower = {name.lower(): value for name, value in headers.items()}
                if "expect" in lower:  # the body follows a round trip later
                    await asyncio.sleep(self.seconds)
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(lower.get("content-length", 0)))
                writer.write(await self._answer(method, address, headers, lower.get("range", ""), body))
                await writer.drain()
        writer.close()

    async def _answer(
        self, method: str, address: str, headers: dict[str, str], span: str, body: bytes
    ) -> bytes:
        if address == REQUESTS:
            seen, self.requests = self.requests, []
            return _message(200, {}, json.dumps(seen).encode(), None)
        self.requests.append(("LIST" if method == "GET" and "list-type" in address else method, address))
        until = asyncio.get_running_loop().time() + self.seconds
        key = (method, address, span)
        if method not in ("GET", "HEAD"):
            self._answers.clear()
        elif key in self._answers:
            known = self._answers[key]
            await asyncio.sleep(self.seconds)
            return known
        answer = await asyncio.to_thread(self._forward, method, address, headers, body)
        if method in ("GET", "HEAD"):
            self._answers[key] = answer
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        return answer

    def _forward(self, method: str, address: str, headers: dict[str, str], body: bytes) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        connection.request(method, address, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        length = response.headers["Content-Length"] if method == "HEAD" else None
        return _message(response.status, dict(response.getheaders()), content, length)


def _message(status: int, headers: dict[str, str], content: bytes, length: str | None) -> bytes:
    kept = {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
    kept["Content-Length"] = length or str(len(content))
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in kept.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def count(requests: list[tuple[str, str]]) -> Counter[str]:
    """Return the number of requests by kind."""
    return Counter(kind for kind, _ in requests)


def _load(folder: Path) -> None:
    """Put the files of a folder into the bucket of this process's moto: 50,000 requests would take minutes."""
    from moto.s3.models import s3_backends

    backend = s3_backends[ACCOUNT]["aws"]
    backend.create_bucket(BUCKET, "us-east-1")
    for file in folder.rglob("*"):
        if file.is_file():
            backend.put_object(BUCKET, str(file.relative_to(folder)), file.read_bytes())


async def _main(folder: Path, seconds: float) -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    _load(folder)
    proxy = _Proxy(moto.get_host_and_port()[1], seconds)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)  # its answer to the owner
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # no request that is still open delays the end


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), float(sys.argv[2])))
