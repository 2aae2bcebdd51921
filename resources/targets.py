"""One target, resolved: where the lake is, how Spark runs, and what each feed is bound to.

The command, sensors, checks and runs all ask `resolve`, so they all mean the same place. What decides, first
to last: a flag, `TIDEMILL_TARGET`, tidemill.toml, the default `dev`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.lake import Lake
from pipelines.streaming.names import valid_feed_name
from pipelines.streaming.sources.feed import Binding, FolderBinding, TopicBinding
from pipelines.streaming.sources.kafka import KafkaCluster
from pipelines.streaming.stream import Pipeline, Stream
from resources.config import (
    DEFAULT_TARGET,
    FILE_NAME,
    Config,
    TargetTable,
    find_config,
    read_config,
)
from resources.engine import SparkSettings
from resources.entries import DEFAULT_CLUSTER, Entries
from resources.keys import close_to
from resources.loading import load_pipelines
from resources.settings import Setting, cluster_values, spark_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A resolved target; it tells sources their places.

    Attributes:
        name: Its name.
        lake: Its lake.
        spark: How Spark runs.
        config: The tidemill.toml it comes from.
        pipeline_entries: The pipelines as the file names them.
        clusters: Kafka clusters by name.
        feeds: Feeds that are bound one by one.
        everywhere: What all other feeds are bound to: a folder that has one folder a feed, or a cluster that
            has one topic a feed; None where a feed without a binding is an error.
        origins: Where each setting came from, by name.
    """

    name: str
    lake: Lake
    spark: SparkSettings
    config: Path
    pipeline_entries: tuple[str, ...] = ()
    clusters: Mapping[str, KafkaCluster] = field(default_factory=dict)
    feeds: Mapping[str, Binding] = field(default_factory=dict)
    everywhere: Path | KafkaCluster | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def binding(self, feed: str) -> Binding:
        """The folder or topic that a feed is bound to.

        Raises:
            ConfigurationError: nothing binds it, or Spark would take its folder for a pattern.
        """
        if feed in self.feeds:
            return _plain_folder(self.feeds[feed])
        if isinstance(self.everywhere, Path):
            return _plain_folder(FolderBinding(self.everywhere / valid_feed_name(feed)))
        if isinstance(self.everywhere, KafkaCluster):
            return TopicBinding(self.everywhere, valid_feed_name(feed))
        raise ConfigurationError(
            f"Target {self.name!r} does not say where feed {feed!r} is.{close_to(feed, self.feeds)}",
            mend=f'Add "{feed}" = {{path = ...}} or {{topic = ...}} to [targets.{self.name}.feeds] '
            f"of {FILE_NAME}, or give --landing or --kafka.",
        )

    def cluster(self, name: str) -> KafkaCluster:
        """The Kafka cluster of that name.

        Raises:
            ConfigurationError: the target has none.
        """
        if name not in self.clusters:
            raise ConfigurationError(
                f"Target {self.name!r} has no Kafka cluster {name!r}.{close_to(name, self.clusters)}",
                mend=f"Add [targets.{self.name}.kafka.{name}] with its bootstrap to {FILE_NAME}.",
            )
        return self.clusters[name]

    def pipelines(self) -> dict[str, Pipeline]:
        """The pipelines that tidemill.toml names, imported; no JVM starts.

        Raises:
            ConfigurationError: one cannot be had.
            DefinitionError: one declares a stream wrongly.
        """
        return load_pipelines(self.pipeline_entries, self.config.parent)

    def streams(self) -> tuple[Stream, ...]:
        """The streams of all pipelines, as declared."""
        return tuple(stream for pipeline in self.pipelines().values() for stream in pipeline)

    def settings(self) -> tuple[Setting, ...]:
        """Everything that was resolved, with secrets masked and origins."""
        values: dict[str, object] = {
            "config": self.config,
            "target": self.name,
            "pipelines": ", ".join(self.pipeline_entries),
            "lake": self.lake.root,
        }
        if isinstance(self.everywhere, KafkaCluster):
            values["feeds"] = f"kafka://{self.everywhere.bootstrap}/<feed>"
        elif self.everywhere is not None:
            values["feeds"] = self.everywhere / "<feed>"
        values |= {f"feeds.{feed}": binding for feed, binding in self.feeds.items()}
        values |= spark_values(self.spark) | cluster_values(self.clusters)
        return tuple(
            Setting(name, str(value), self.origins.get(name, "default"))
            for name, value in values.items()
            if value is not None
        )


def resolve(
    target: str | None = None,
    *,
    lake: str | Path | None = None,
    landing: str | Path | None = None,
    kafka: str | None = None,
    environ: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Target:
    """The one target that a command, a sensor or a run works on.

    Args:
        target: The flag `--target`.
        lake: The flag `--lake`: another lake.
        landing: The flag `--landing`: every feed is the folder of its name below.
        kafka: The flag `--kafka`: every feed is the topic of its name on the cluster with these bootstrap
            servers. Credentials of the file go with it only where the file's cluster has the same servers.
        environ: The environment; the process's own by default.
        start: Where the search for tidemill.toml begins; the working directory by default.

    Raises:
        ConfigurationError: no tidemill.toml, a fault in it, no such target, a variable that is not set.
    """
    environ = os.environ if environ is None else environ
    start = Path.cwd() if start is None else start
    if landing is not None and kafka is not None:
        raise ConfigurationError("--landing and --kafka both bind every feed: give one of them.")
    place = find_config(environ, start)
    config = read_config(place)
    name, name_origin = _name(target, environ, config)
    table = _table(name, name_origin, config)
    entries = Entries(name, place, environ)
    entries.origins |= {"target": name_origin, "config": _config_origin(environ), "pipelines": FILE_NAME}

    clusters = {cluster: entries.cluster(cluster, entry) for cluster, entry in table.kafka.items()}
    feeds: dict[str, Binding] = {}
    everywhere: Path | KafkaCluster | None = None
    if landing is not None:
        everywhere = (start / Path(landing).expanduser()).absolute()
        entries.origins["feeds"] = "flag --landing"
    elif kafka is not None:
        known = (each for each in clusters.values() if each.bootstrap == kafka)
        everywhere = next(known, KafkaCluster(bootstrap=kafka))
        clusters.setdefault(DEFAULT_CLUSTER, everywhere)
        entries.origins["feeds"] = "flag --kafka"
        entries.origins.setdefault(f"kafka.{DEFAULT_CLUSTER}.bootstrap", "flag --kafka")
    else:
        feeds = {feed: entries.feed(feed, entry, clusters) for feed, entry in table.feeds.items()}
        if table.landing is not None:
            everywhere = entries.path("feeds", table.landing)
        elif name == DEFAULT_TARGET:
            everywhere = place.parent / ".tidemill" / "landing"
    return Target(
        name=name,
        lake=_lake(lake, table, entries, start),
        spark=entries.spark(table.spark),
        config=place,
        pipeline_entries=config.pipelines,
        clusters=clusters,
        feeds=feeds,
        everywhere=everywhere,
        origins=entries.origins,
    )


def _plain_folder(binding: Binding) -> Binding:
    if isinstance(binding, FolderBinding) and re.search(r"[*?\[\]{}\\]", str(binding.path)):
        raise ConfigurationError(
            f"The folder {binding.path} has one of the characters * ? [ ] {{ }} \\ in its name, and Spark would "
            "take it for a pattern of names.",
            mend="Rename the folder.",
        )
    return binding


def _name(flag: str | None, environ: Mapping[str, str], config: Config) -> tuple[str, str]:
    """The target's name, and what decided it."""
    if flag:
        return flag, "flag --target"
    if named := environ.get("TIDEMILL_TARGET"):
        return named, "environment TIDEMILL_TARGET"
    if config.default_target:
        return config.default_target, FILE_NAME
    return DEFAULT_TARGET, "default"


def _table(name: str, origin: str, config: Config) -> TargetTable:
    if name in config.targets:
        return config.targets[name]
    if name == DEFAULT_TARGET:
        return TargetTable()
    known = sorted({DEFAULT_TARGET, *config.targets})
    raise ConfigurationError(
        f"There is no target {name!r} ({origin}).{close_to(name, known)} Known: {', '.join(known)}.",
        mend=f"Add [targets.{name}] with its lake to {FILE_NAME}, or name another.",
    )


def _lake(flag: str | Path | None, table: TargetTable, entries: Entries, start: Path) -> Lake:
    if flag is not None:
        entries.origins["lake"] = "flag --lake"
        return _lake_at(str(flag), start)
    if table.lake is not None:
        return _lake_at(entries.text("lake", table.lake), entries.root)
    if entries.target == DEFAULT_TARGET:
        return Lake(entries.root / ".tidemill" / "lake")
    raise ConfigurationError(
        f"Target {entries.target!r} has no lake.",
        mend=f'Add lake = "..." to [targets.{entries.target}] of {FILE_NAME}, or give --lake.',
    )


def _lake_at(text: str, root: Path) -> Lake:
    return Lake.at(text if "://" in text else root / Path(text).expanduser())


def _config_origin(environ: Mapping[str, str]) -> str:
    return "environment TIDEMILL_CONFIG" if environ.get("TIDEMILL_CONFIG") else "found upwards"
