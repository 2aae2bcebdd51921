"""A real Kafka broker for development and tests: one process, loopback only, and it ends with its owner."""

import base64
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from tidemill.engines.dev import supervised
from tidemill.engines.jars import broker_jars
from tidemill.engines.java import require_java
from tidemill.errors import ConfigurationError, TransientError

READY_SECONDS = 60
"""It is ready in 3 s to 5 s on two busy cores."""
POLL_SECONDS = 0.05
ATTEMPTS = 3
"""Another process can take a free port before the broker binds it; three failures in a row are another fault."""

# The first tier of the compiler and the serial collector: it lives for seconds and shares the cores.
JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of the SASL/PLAIN listener.

    Attributes:
        user: Letters, digits, `_` and `-`.
        password: The same; it never guards anything but a test.
    """

    user: str
    password: str

    def __post_init__(self) -> None:
        for field, value in (("user", self.user), ("password", self.password)):
            if not re.fullmatch(r"[\w-]+", value, flags=re.ASCII):
                raise ConfigurationError(
                    f"The broker's {field} must be letters, digits, _ and - only.", code="argument-invalid"
                )


@dataclass(frozen=True, slots=True)
class Ports:
    """The broker's TCP ports on 127.0.0.1."""

    clients: int
    controller: int
    sasl: int

    @classmethod
    def free(cls) -> Self:
        """Return three ports that no process listens on now."""
        sockets = [socket.socket() for _ in range(3)]
        try:
            for probe in sockets:
                probe.bind(("127.0.0.1", 0))
            return cls(*(probe.getsockname()[1] for probe in sockets))
        finally:
            for probe in sockets:
                probe.close()


class Broker:
    """A Kafka broker (KRaft, 512 MB) for the length of a `with` block.

    Its topics are in a temporary folder that is removed at the end. Topics are never created implicitly, and
    records are kept however old their timestamps are. It stops with its process, also after a SIGKILL.

    Example:
        with Broker() as broker:
            broker.create_topic("ad-clicks", partitions=4)
            Producer({"bootstrap.servers": broker.bootstrap})
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._ports: Ports | None = None
        self._scratch: Path | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` of the listener without credentials."""
        return f"127.0.0.1:{self._started_ports().clients}"

    @property
    def sasl_bootstrap(self) -> str:
        """The `bootstrap.servers` of the SASL_PLAINTEXT listener, mechanism PLAIN; needs `credentials`."""
        if self._credentials is None:
            raise ConfigurationError(
                "This broker was started without credentials: it has no SASL listener.",
                code="broker-without-credentials",
            )
        return f"127.0.0.1:{self._started_ports().sasl}"

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic and wait until the broker lists it.

        Raises:
            confluent_kafka.KafkaException: The broker refused; for example, a topic of that name exists.
            TransientError: The broker created it and does not list it.
        """
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        deadline = time.monotonic() + READY_SECONDS
        while name not in admin.list_topics(timeout=READY_SECONDS).topics:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"the broker created the topic {name!r} and does not list it.",
                    code="broker-topic-not-listed",
                )
            time.sleep(POLL_SECONDS)

    def wait(self) -> NoReturn:
        """Wait until the process is interrupted.

        Raises:
            TransientError: The broker ended by itself.
        """
        if self._supervisor is None or self._scratch is None:
            raise ConfigurationError(
                "The broker is not started: use it in a `with` block.", code="broker-not-started"
            )
        raise _not_started("ended", self._supervisor.wait(), self._scratch / "broker.log")

    def __enter__(self) -> Self:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start()
            except NotStartedError:
                self._stop()
                if attempt == ATTEMPTS:
                    raise
            except BaseException:
                self._stop()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _started_ports(self) -> Ports:
        if self._ports is None:
            raise ConfigurationError(
                "The broker is not started: use it in a `with` block.", code="broker-not-started"
            )
        return self._ports

    def _start(self) -> None:
        java = [str(require_java().path), *JVM_OPTIONS, "-cp", os.pathsep.join(map(str, broker_jars()))]
        self._ports = Ports.free()
        self._scratch = Path(tempfile.mkdtemp(prefix="tidemill-broker-"))
        log, config = self._scratch / "broker.log", self._scratch / "server.properties"
        config.write_text(
            server_properties(self._ports, self._scratch / "data", self._credentials), encoding="utf-8"
        )
        cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        _format(java, config, cluster_id, log)
        command = [*java, "kafka.Kafka", str(config)]
        self._supervisor = supervised.start(command, scratch=self._scratch, log=log)
        _wait_until_ready(self._supervisor, self.bootstrap, cluster_id, log)

    def _stop(self) -> None:
        if self._supervisor is not None:
            supervised.stop(self._supervisor)
            self._supervisor = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


class NotStartedError(TransientError):
    """The broker ended, or another answers in its place: another start may help."""

    code = "broker-not-ready"


def server_properties(ports: Ports, data: Path, credentials: Credentials | None) -> str:
    """Return the broker's configuration: broker and controller in one, each topic with one replica."""
    listeners = {"PLAINTEXT": ports.clients, "CONTROLLER": ports.controller}
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    if credentials is not None:
        listeners["SASL"] = ports.sasl
        protocols["SASL"] = "SASL_PLAINTEXT"
    addresses = {name: f"{name}://127.0.0.1:{port}" for name, port in listeners.items()}
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(value for name, value in addresses.items() if name != "CONTROLLER"),
        "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
        "log.dirs": str(data),
        "log.retention.ms": "-1",  # events of a test carry timestamps of any age
        "auto.create.topics.enable": "false",  # a missing topic must be an error, as on a production cluster
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if credentials is not None:
        settings["sasl.enabled.mechanisms"] = "PLAIN"
        settings["listener.name.sasl.plain.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{credentials.user}="{credentials.password}";'
        )
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _format(java: Sequence[str], config: Path, cluster_id: str, log: Path) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
    with log.open("ab") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            timeout=READY_SECONDS,
        )
    if done.returncode != 0:
        raise _not_started("could not format its folder", done.returncode, log)


def _wait_until_ready(
    supervisor: subprocess.Popen[bytes], bootstrap: str, cluster_id: str, log: Path
) -> None:
    host, port = bootstrap.split(":")
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if (status := supervisor.poll()) is not None:
            raise _not_started("ended while it started", status, log)
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(POLL_SECONDS)
        else:
            break
    # It accepts connections before it can serve; only an answer to a request means ready.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        answered = admin.list_topics(timeout=max(1, deadline - time.monotonic()))
    except KafkaException as error:
        raise TransientError(
            f"The development Kafka broker was not ready within {READY_SECONDS} s; its log has: {_reason(log)}",
            fix="Start it again.",
            code="broker-not-ready",
        ) from error
    if answered.cluster_id != cluster_id:
        raise NotStartedError(f"Another broker than the development broker listens on {bootstrap}.")


def _not_started(what: str, status: int, log: Path) -> NotStartedError:
    return NotStartedError(
        f"The development Kafka broker {what} (exit status {status}); its log has: {_reason(log)}",
        fix="Start it again.",
    )


def _reason(log: Path) -> str:
    """Return the first error in the log, or its last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    errors = (line for line in lines if re.search(r"ERROR|Error|Exception", line))
    return next(errors, next((line for line in reversed(lines) if line), "nothing"))
