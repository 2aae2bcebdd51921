"""The entries of one target in tidemill.toml as values: variables put in, paths absolute, origins noted."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.names import valid_feed_name
from pipelines.streaming.target import Binding, FolderBinding, KafkaCluster, TopicBinding, did_you_mean
from resources.engine.engine import SparkSettings
from resources.target.config import FILE_NAME, FeedTable, KafkaTable, SparkTable
from resources.target.keys import VARIABLE

DEFAULT_CLUSTER = "default"


class Entries:
    """Turns what the file says about a target into values, and notes where each came from.

    Args:
        target: The target's name.
        place: The file; relative paths are beside it.
        environ: Where `${VAR}` is looked up.

    Attributes:
        origins: Where each setting came from, by name.
    """

    def __init__(self, target: str, place: Path, environ: Mapping[str, str]) -> None:
        self.target = target
        self.root = place.parent
        self.environ = environ
        self.origins: dict[str, str] = {}

    def text(self, setting: str, value: str) -> str:
        """A value with each `${VAR}` replaced.

        Raises:
            ConfigurationError: a variable is not set.
        """
        variables = VARIABLE.findall(value)
        for variable in variables:
            if not self.environ.get(variable):
                raise ConfigurationError(
                    f"{variable} is not set in the environment, and {setting} of target {self.target!r} "
                    "needs it.",
                    fix=f"Set it: export {variable}=...",
                )
        self._from_file(setting, variables)
        return VARIABLE.sub(lambda found: self.environ[found[1]], value)

    def path(self, setting: str, value: str) -> Path:
        """A folder or file; a relative one is beside tidemill.toml."""
        return self.root / Path(self.text(setting, value)).expanduser()

    def spark(self, table: SparkTable) -> SparkSettings:
        """How Spark runs."""
        conf = {key: self.text(f"spark.conf.{key}", value) for key, value in table.conf.items()}
        given = self._given("spark", table)
        return SparkSettings(**given, conf=conf)  # type: ignore[arg-type]  # the table has the same fields

    def cluster(self, name: str, table: KafkaTable) -> KafkaCluster:
        """How a Kafka cluster is reached."""
        given = self._given(f"kafka.{name}", table)
        if table.ca_file is not None:
            given["ca_file"] = str(self.path(f"kafka.{name}.ca_file", table.ca_file))
        return KafkaCluster(**given)  # type: ignore[arg-type]  # the table has the same fields

    def feed(self, name: str, table: FeedTable, clusters: Mapping[str, KafkaCluster]) -> Binding:
        """The place of one feed.

        Raises:
            ConfigurationError: its cluster is not among the target's.
            DefinitionError: the name is not one of a feed.
        """
        setting = f"feeds.{valid_feed_name(name)}"
        if table.path is not None:
            return FolderBinding(self.path(setting, table.path))
        topic, cluster = self.text(setting, table.topic or ""), table.cluster or DEFAULT_CLUSTER
        if cluster not in clusters:
            raise ConfigurationError(
                f"Feed {name!r} of target {self.target!r} is on the Kafka cluster {cluster!r}, and there is "
                f"none of that name.{did_you_mean(cluster, clusters)}",
                fix=f"Add [targets.{self.target}.kafka.{cluster}] with its bootstrap to {FILE_NAME}.",
            )
        return TopicBinding(clusters[cluster], topic)

    def _given(self, prefix: str, table: SparkTable | KafkaTable) -> dict[str, str | int]:
        """The fields that the file sets, but for tables."""
        given: dict[str, str | int] = {}
        for each in fields(table):
            value = getattr(table, each.name)
            if isinstance(value, str | int):
                given[each.name] = value
                self._from_file(f"{prefix}.{each.name}")
            if isinstance(value, str):
                given[each.name] = self.text(f"{prefix}.{each.name}", value)
        return given

    def _from_file(self, setting: str, variables: Sequence[str] = ()) -> None:
        by = f" from {', '.join(variables)}" if variables else ""
        self.origins[setting] = f"{FILE_NAME} [targets.{self.target}]{by}"
