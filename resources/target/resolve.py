"""One target, resolved: where the lake is, how Spark runs, and what each feed is bound to.

The command, sensors, checks and runs all ask `resolve`, so they all mean the same place. What decides, first
to last: a flag, `TIDEMILL_TARGET`, tidemill.toml, the default `dev`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.pipeline import Pipeline
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.stream import Stream
from pipelines.streaming.target import Binding, KafkaCluster, Target, did_you_mean
from resources.engine.engine import SparkSettings
from resources.target.config import (
    DEFAULT_TARGET,
    FILE_NAME,
    Config,
    TargetTable,
    find_config,
    read_config,
)
from resources.target.entries import DEFAULT_CLUSTER, Entries
from resources.target.loading import load_pipelines
from resources.target.settings import Setting, cluster_values, spark_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget(Target):
    """A target as tidemill.toml, the environment and the flags resolve it.

    Attributes:
        spark: How Spark runs.
        config: The tidemill.toml it comes from.
        pipeline_entries: The pipelines as the file names them.
        origins: Where each setting came from, by name.
    """

    spark: SparkSettings
    config: Path
    pipeline_entries: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)

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
        if isinstance(self.default_binding, KafkaCluster):
            values["feeds"] = f"kafka://{self.default_binding.bootstrap}/<feed>"
        elif self.default_binding is not None:
            values["feeds"] = self.default_binding / "<feed>"
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
) -> ResolvedTarget:
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
    default_binding: Path | KafkaCluster | None = None
    if landing is not None:
        default_binding = (start / Path(landing).expanduser()).absolute()
        entries.origins["feeds"] = "flag --landing"
    elif kafka is not None:
        known = (each for each in clusters.values() if each.bootstrap == kafka)
        default_binding = next(known, KafkaCluster(bootstrap=kafka))
        clusters.setdefault(DEFAULT_CLUSTER, default_binding)
        entries.origins["feeds"] = "flag --kafka"
        entries.origins.setdefault(f"kafka.{DEFAULT_CLUSTER}.bootstrap", "flag --kafka")
    else:
        feeds = {feed: entries.feed(feed, entry, clusters) for feed, entry in table.feeds.items()}
        if table.landing is not None:
            default_binding = entries.path("feeds", table.landing)
        elif name == DEFAULT_TARGET:
            default_binding = place.parent / ".tidemill" / "landing"
    return ResolvedTarget(
        name=name,
        lake=_lake(lake, table, entries, start),
        spark=entries.spark(table.spark),
        config=place,
        pipeline_entries=config.pipelines,
        clusters=clusters,
        feeds=feeds,
        default_binding=default_binding,
        origins=entries.origins,
    )


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
        f"There is no target {name!r} ({origin}).{did_you_mean(name, known)} Known: {', '.join(known)}.",
        fix=f"Add [targets.{name}] with its lake to {FILE_NAME}, or name another.",
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
        fix=f'Add lake = "..." to [targets.{entries.target}] of {FILE_NAME}, or give --lake.',
    )


def _lake_at(text: str, root: Path) -> Lake:
    return Lake.at(text if "://" in text else root / Path(text).expanduser())


def _config_origin(environ: Mapping[str, str]) -> str:
    return "environment TIDEMILL_CONFIG" if environ.get("TIDEMILL_CONFIG") else "found upwards"
