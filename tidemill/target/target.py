"""Target: where the lake is, how Kafka is reached, and what each feed is bound to. Needs no Spark.

A feed is a name in a pipeline; the target binds it to a folder or to a Kafka topic. `tidemill.target` makes a
target from `tidemill.toml`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar

from tidemill.errors import ConfigurationError
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import local_path, scheme_of
from tidemill.storage.object_store import SCHEMES, ObjectStore
from tidemill.storage.s3_settings import S3Settings
from tidemill.target.catalog import CatalogSettings
from tidemill.target.postgres import PostgresDatabase
from tidemill.text.names import valid_feed_name
from tidemill.text.secret import Secret, is_secret, revealed

Named = TypeVar("Named")
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_GLOB = re.compile(r"[*?\[\]{}\\]")
# Consumer properties that something else decides, and what.
_DECIDED = {
    "bootstrap.servers": "write bootstrap of the cluster",
    "security.protocol": "write security_protocol of the cluster",
    "sasl.mechanism": "write sasl_mechanism of the cluster",
    "sasl.jaas.config": "write username and password of the cluster",
    "ssl.truststore.type": "write ca_file of the cluster",
    "ssl.truststore.location": "write ca_file of the cluster",
    "auto.offset.reset": "give starting_offsets= to the source",
    "enable.auto.commit": "leave it out: the checkpoint keeps the offsets",
    "key.deserializer": "leave it out: Spark reads bytes",
    "value.deserializer": "leave it out: Spark reads bytes",
    "interceptor.classes": "leave it out: Spark refuses it",
}


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """How to reach a Kafka cluster, for Spark's client and for librdkafka.

    Attributes:
        bootstrap: Comma-separated `host:port`.
        security_protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
        sasl_mechanism: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512` with a SASL protocol.
        username: The SASL user.
        password: The SASL password; never shown.
        ca_file: A PEM file of the authorities to trust, with an SSL protocol.
        consumer: Further properties of Kafka's consumer, such as `isolation.level` (default: `read_committed`)
            and `max.partition.fetch.bytes`.
    """

    bootstrap: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism | None = None
    username: str | Secret | None = None
    password: str | Secret | None = field(default=None, repr=False)
    ca_file: str | None = None
    consumer: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in self.consumer:
            if reason := consumer_fault(name):
                raise ConfigurationError(
                    f"KafkaCluster: consumer: {name} {reason}.", code="option-not-allowed"
                )

    @property
    def isolation_level(self) -> str:
        """The transactions that a consumer sees: `read_committed` or `read_uncommitted`."""
        return self.consumer.get("isolation.level", "read_committed")

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source (Kafka guide, "Kafka Specific Configurations").

        Raises:
            ConfigurationError: A variable that holds a credential is not set.
        """
        return {
            **self.producer_options(),
            # Spark waits a minute for a broker that does not answer; the backlog check has just reached it.
            "kafka.default.api.timeout.ms": "20000",
            "kafka.request.timeout.ms": "15000",
            "kafka.isolation.level": self.isolation_level,
            **{f"kafka.{name}": value for name, value in self.consumer.items()},
        }

    def producer_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka sink.

        Raises:
            ConfigurationError: A variable that holds a credential is not set.
        """
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            module = "plain.PlainLoginModule" if self.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
            user, password = (_jaas_quoted(revealed(part)) for part in (self.username, self.password))
            options["kafka.sasl.mechanism"] = self.sasl_mechanism
            options["kafka.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module} required username={user} password={password};"
            )
        if self.ca_file:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.location"] = self.ca_file
        return options

    def client_config(self) -> dict[str, str]:
        """Return the configuration of librdkafka, which counts the backlog without a JVM.

        Raises:
            ConfigurationError: A variable that holds a credential is not set.
        """
        config = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self.sasl_mechanism:
            config |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": revealed(self.username),
                "sasl.password": revealed(self.password),
            }
        if self.ca_file:
            config["ssl.ca.location"] = self.ca_file
        return config


def consumer_fault(name: str) -> str | None:
    """Return why a property cannot be among the consumer properties of a cluster; None if it can.

    Args:
        name: A property of Kafka's consumer, such as `max.partition.fetch.bytes`.
    """
    if name.startswith("kafka."):
        return f"has Spark's prefix; write {name.removeprefix('kafka.')!r}"
    if name in _DECIDED:
        return f"cannot be set here; {_DECIDED[name]}"
    if is_secret(name):
        return "holds a credential; write username and password of the cluster"
    return None


Landing = Path | ObjectStore
"""A folder of files: on a file system, or on S3."""


def landing_at(path: str, root: Path, access: S3Settings | None) -> Landing:
    """Return a folder of files by its path or address.

    Args:
        path: A path, or an address such as `s3://bucket/prefix`.
        root: Where a relative path starts.
        access: How S3 is reached; None: by the environment or the machine.

    Raises:
        ConfigurationError: The address is wrong, or on another store.
    """
    if scheme_of(path) in SCHEMES:
        return ObjectStore.at(path, access or S3Settings())
    return local_path(path, field="The folder of the feeds", root=root)


@dataclass(frozen=True, slots=True)
class FolderBinding:
    """A feed that is a folder of text files, one record per line, on a file system or on S3.

    Attributes:
        path: The folder.
        archive: Where Spark moves files that have been read, with their path; None: they stay.
    """

    path: Landing
    archive: Landing | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's file source."""
        if self.archive is None:
            return {}
        return {"cleanSource": "archive", "sourceArchiveDir": str(self.archive)}

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class TopicBinding:
    """A feed that is a Kafka topic, one record per message value."""

    cluster: KafkaCluster
    topic: str

    def __str__(self) -> str:
        return f"kafka://{self.cluster.bootstrap}/{self.topic}"


Binding = FolderBinding | TopicBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An environment that pipelines run in.

    Attributes:
        name: Its name.
        lake: Its lake.
        clusters: Kafka clusters by name.
        databases: Postgres databases by name.
        feeds: Feeds that are bound one by one.
        default_binding: The binding of all other feeds: a folder with one folder per feed, or a cluster with
            one topic per feed; None where a feed without a binding is an error.
        archive: Where files of such a folder are moved once they have been read; None: they stay.
        catalog: The catalog in which the tables of streams are registered; None where there is none.
    """

    name: str
    lake: Lake
    clusters: Mapping[str, KafkaCluster] = field(default_factory=dict)
    databases: Mapping[str, PostgresDatabase] = field(default_factory=dict)
    feeds: Mapping[str, Binding] = field(default_factory=dict)
    default_binding: Landing | KafkaCluster | None = None
    archive: Landing | None = None
    catalog: CatalogSettings | None = None

    def binding(self, feed: str) -> Binding:
        """Return the folder or topic that a feed is bound to.

        Raises:
            ConfigurationError: Nothing binds the feed, or Spark would take its folder for a pattern.
        """
        if feed in self.feeds:
            return _plain_folder(self.feeds[feed])
        match self.default_binding:
            case Path() as folder:
                return _plain_folder(FolderBinding(folder / valid_feed_name(feed), self.archive))
            case ObjectStore() as folder:
                return FolderBinding(folder.below(valid_feed_name(feed)), self.archive)
            case KafkaCluster() as cluster:
                return TopicBinding(cluster, valid_feed_name(feed))
        raise ConfigurationError(
            f"Target {self.name!r} does not bind the feed {feed!r}.{did_you_mean(feed, self.feeds)}",
            fix=f'Add "{feed}" = {{path = ...}} or {{topic = ...}} to [targets.{self.name}.feeds] '
            "of tidemill.toml, or give --landing or --kafka.",
            code="feed-not-bound",
        )

    def cluster(self, name: str) -> KafkaCluster:
        """Return the Kafka cluster of that name.

        Raises:
            ConfigurationError: The target has no such cluster.
        """
        return self._named(
            name, self.clusters, "Kafka cluster", "kafka", "its bootstrap", code="kafka-cluster-missing"
        )

    def database(self, name: str) -> PostgresDatabase:
        """Return the Postgres database of that name.

        Raises:
            ConfigurationError: The target has no such database.
        """
        return self._named(
            name,
            self.databases,
            "Postgres database",
            "postgres",
            "its host and database",
            code="database-missing",
        )

    def _named(
        self, name: str, known: Mapping[str, Named], kind: str, table: str, needs: str, *, code: str
    ) -> Named:
        if name not in known:
            raise ConfigurationError(
                f"Target {self.name!r} has no {kind} {name!r}.{did_you_mean(name, known)}",
                fix=f"Add [targets.{self.name}.{table}.{name}] with {needs} to tidemill.toml.",
                code=code,
            )
        return known[name]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` with a space before it, or an empty string."""
    matches = get_close_matches(word, list(known), n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def _plain_folder(binding: Binding) -> Binding:
    if isinstance(binding, FolderBinding) and _GLOB.search(str(binding.path)):
        raise ConfigurationError(
            f"The folder {binding.path} has one of the characters * ? [ ] {{ }} \\ in its name, and Spark would "
            "take it for a pattern.",
            fix="Rename the folder.",
            code="name-is-pattern",
        )
    return binding


def _jaas_quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
