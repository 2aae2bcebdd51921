"""A webhook's server and a mail server on loopback, which record what they receive."""

import base64
import json
import socketserver
import ssl
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@contextmanager
def serving(server):
    """Serve in a thread until the block ends."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Webhook:
    """What a webhook's server received, and how it answers.

    Attributes:
        port: Its port.
        statuses: The statuses of the next answers; 200 when they are used up.
        received: The objects that it accepted, oldest first.
        requests: The method and the path of each request.
    """

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def titles(self) -> list[str]:
        """The first line of each object."""
        return [sent["text"].splitlines()[0] for sent in self.received]


@contextmanager
def webhook(port: int = 0):
    """Run a webhook's server on a port, or on any free one."""
    state = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append(("POST", self.path))
            status = state.statuses.pop(0) if state.statuses else 200
            if status == 200:
                assert self.headers["Content-Type"] == "application/json"
                state.received.append(json.loads(body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            state.requests.append(("GET", self.path))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args):
            """Keep stderr of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    state.port = server.server_port
    with serving(server):
        yield state


@dataclass
class Mailbox:
    """What a mail server received, and how it answers.

    Attributes:
        port: Its port.
        login: The user name and the password that it wants; none if it wants none.
        refused: The recipients that it refuses.
        lines: Every command of the clients.
        received: The messages, oldest first.
    """

    port: int = 0
    login: tuple[str, str] | None = None
    refused: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)
    received: list[EmailMessage] = field(default_factory=list)


class MailHandler(socketserver.StreamRequestHandler):
    """A conversation with a client."""

    @property
    def box(self):
        return self.server.box

    def handle(self):
        if self.server.implicit:
            self.encrypt()
        self.say("220 loopback ready")
        while line := self.rfile.readline().decode().rstrip("\r\n"):
            self.box.lines.append(line)
            self.answer(line)
            if line.upper() == "QUIT":
                return

    def encrypt(self):
        self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        self.setup()

    def finish(self):
        super().finish()
        self.request.close()

    def say(self, line):
        self.wfile.write(f"{line}\r\n".encode())

    def answer(self, line):
        match line.split()[0]:
            case "EHLO" | "ehlo":
                offers = ["AUTH PLAIN"] * bool(self.box.login) + ["STARTTLS"] * bool(self.server.tls)
                self.say("".join(f"250-{offer}\r\n" for offer in ["loopback", *offers]) + "250 HELP")
            case "STARTTLS" if self.server.tls:
                self.say("220 go ahead")
                self.encrypt()
            case "AUTH":
                _, *login = base64.b64decode(line.split()[2]).decode().split("\0")
                self.say("235 welcome" if tuple(login) == self.box.login else f"535 no: {line}")
            case "rcpt" if any(f"<{address}>" in line for address in self.box.refused):
                self.say("550 no such user")
            case "data":
                self.say("354 go ahead")
                self.box.received.append(message_from_bytes(self.data(), policy=policy.default))
                self.say("250 ok")
            case command:
                self.say({"STARTTLS": "502 no", "QUIT": "221 bye", "quit": "221 bye"}.get(command, "250 ok"))

    def data(self):
        lines = iter(self.rfile.readline, b".\r\n")
        return b"".join(line.removeprefix(b".") for line in lines)


def certificate(path: Path) -> ssl.SSLContext:
    """Write a self-signed certificate of 127.0.0.1, and return the context of a server that has it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(built.public_bytes(Encoding.PEM))
    private = path.with_suffix(".key")
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path, private)
    return context


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server; a client that does not trust its certificate ends the conversation."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ssl.SSLError):
            super().handle_error(request, client_address)


@contextmanager
def mail_server(*, tls=None, implicit=False, **fields):
    """Run a mail server.

    Args:
        tls: Its context; without one it has no TLS.
        implicit: Whether TLS begins with the first byte, and not with STARTTLS.
        **fields: The attributes of the mailbox.
    """
    with MailServer(("127.0.0.1", 0), MailHandler) as server:
        server.tls, server.implicit = tls, implicit
        server.box = Mailbox(port=server.server_address[1], **fields)
        with serving(server):
            yield server.box
