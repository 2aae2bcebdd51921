"""A proxy in front of an object store: it records requests, and refuses, loses or ignores them on demand."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from tests.servers.object_store import ObjectServer
from tests.servers.receivers import serving

CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>Conflict</Message></Error>"


@dataclass
class Proxy:
    """What the proxy saw, and what it does with the next requests that create a file.

    Attributes:
        server: The store, as clients of the proxy reach it.
        faults: What happens to the next conditional PUTs: the first one to the next, and none when they are used up.
            `refuse` answers 409 and forwards nothing; `lose` forwards the request and closes the connection.
        requests: The method and the path of each request, with its query.
        is_away: Whether it closes each connection without an answer, and forwards nothing.
    """

    server: ObjectServer
    faults: list[Literal["refuse", "lose"]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    is_away: bool = False


@contextmanager
def faulty_proxy(server: ObjectServer) -> Iterator[Proxy]:
    """Run a proxy until the block ends."""
    proxy = Proxy(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            if proxy.is_away:
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            proxy.requests.append(f"{self.command} {self.path}")
            fault = proxy.faults.pop(0) if proxy.faults and self.is_conditional() else None
            if fault == "refuse":
                self.answer(409, {"Content-Type": "application/xml"}, CONFLICT)
                return
            upstream = HTTPConnection("127.0.0.1", server.port, timeout=30)
            upstream.request(self.command, self.path, body, dict(self.headers))
            with upstream.getresponse() as response:
                content = response.read()
                headers = dict(response.getheaders())
            upstream.close()
            if fault == "lose":
                self.close_connection = True
                return
            self.answer(response.status, headers, content)

        def is_conditional(self):
            return any(name in self.headers for name in ("If-None-Match", "If-Match"))

        def answer(self, status, headers, content):
            self.send_response_only(status)
            hop = {"connection", "transfer-encoding", "content-length"}
            for name, value in headers.items():
                if name.lower() not in hop:
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else len(content)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815 - names of http.server

        def log_message(self, *_args):
            """Keep stderr of the tests clean."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True  # a client keeps its connections open
    http.block_on_close = False
    proxy.server = replace(server, port=http.server_port)
    with serving(http):
        yield proxy
