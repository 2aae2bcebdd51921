"""Target: where the names that streams use only logically point. Needs no Spark.

A feed is a name in a pipeline; the target binds it to a folder or to a Kafka topic. `resources.target` makes a
target from `tidemill.toml`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.names import valid_feed_name
from pipelines.streaming.records.lake import Lake

_GLOB = re.compile(r"[*?\[\]{}\\]")


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
    """

    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source (Kafka guide, "Kafka Specific Configurations")."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": self.security_protocol,
            # Spark waits a minute for a broker that is gone; the backlog check has just reached it.
            "kafka.default.api.timeout.ms": "20000",
            "kafka.request.timeout.ms": "15000",
        }
        if self.sasl_mechanism:
            module = "plain.PlainLoginModule" if self.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
            user, password = (_jaas_quoted(part or "") for part in (self.username, self.password))
            options["kafka.sasl.mechanism"] = self.sasl_mechanism
            options["kafka.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module} required username={user} password={password};"
            )
        if self.ca_file:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.location"] = self.ca_file
        return options

    def client_config(self) -> dict[str, str]:
        """Return the configuration of librdkafka, which counts the backlog without a JVM."""
        config = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self.sasl_mechanism:
            config |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.username or "",
                "sasl.password": self.password or "",
            }
        if self.ca_file:
            config["ssl.ca.location"] = self.ca_file
        return config


@dataclass(frozen=True, slots=True)
class FolderBinding:
    """A feed that is a folder of text files, one record per line."""

    path: Path

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
        feeds: Feeds that are bound one by one.
        default_binding: The binding of all other feeds: a folder with one folder per feed, or a cluster with
            one topic per feed; None where a feed without a binding is an error.
    """

    name: str
    lake: Lake
    clusters: Mapping[str, KafkaCluster] = field(default_factory=dict)
    feeds: Mapping[str, Binding] = field(default_factory=dict)
    default_binding: Path | KafkaCluster | None = None

    def binding(self, feed: str) -> Binding:
        """Return the folder or topic that a feed is bound to.

        Raises:
            ConfigurationError: Nothing binds the feed, or Spark would take its folder for a pattern.
        """
        if feed in self.feeds:
            return _plain_folder(self.feeds[feed])
        if isinstance(self.default_binding, Path):
            return _plain_folder(FolderBinding(self.default_binding / valid_feed_name(feed)))
        if isinstance(self.default_binding, KafkaCluster):
            return TopicBinding(self.default_binding, valid_feed_name(feed))
        raise ConfigurationError(
            f"Target {self.name!r} does not bind the feed {feed!r}.{did_you_mean(feed, self.feeds)}",
            fix=f'Add "{feed}" = {{path = ...}} or {{topic = ...}} to [targets.{self.name}.feeds] '
            "of tidemill.toml, or give --landing or --kafka.",
        )

    def cluster(self, name: str) -> KafkaCluster:
        """Return the Kafka cluster of that name.

        Raises:
            ConfigurationError: The target has no such cluster.
        """
        if name not in self.clusters:
            raise ConfigurationError(
                f"Target {self.name!r} has no Kafka cluster {name!r}.{did_you_mean(name, self.clusters)}",
                fix=f"Add [targets.{self.name}.kafka.{name}] with its bootstrap to tidemill.toml.",
            )
        return self.clusters[name]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` with a space before it, or an empty string."""
    matches = get_close_matches(word, list(known), n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def _plain_folder(binding: Binding) -> Binding:
    if isinstance(binding, FolderBinding) and _GLOB.search(str(binding.path)):
        raise ConfigurationError(
            f"The folder {binding.path} has one of the characters * ? [ ] {{ }} \\ in its name, and Spark would "
            "take it for a pattern of names.",
            fix="Rename the folder.",
        )
    return binding


def _jaas_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
