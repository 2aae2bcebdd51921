"""One target, resolved: where the lake is, how Spark runs, and what each feed is bound to.

The command, sensors, checks and runs all call `resolve`, so they all mean the same target. What decides, first
to last: a flag, `TIDEMILL_TARGET`, tidemill.toml, the default `dev`.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path

from tidemill.definitions.stream import Stream
from tidemill.errors import ConfigurationError
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import local_path, scheme_of
from tidemill.storage.object_store import SCHEMES, ObjectStore
from tidemill.storage.s3_settings import S3Settings
from tidemill.target.alerts import AlertSettings
from tidemill.target.config import DEFAULT_CLUSTER, FILE_NAME, Config, TargetConfig, find_config, read_config
from tidemill.target.loading import LoadedPipelines, load_pipelines
from tidemill.target.postgres import PostgresDatabase
from tidemill.target.server_home import ServerHome
from tidemill.target.spark_settings import DERIVED, SparkSettings
from tidemill.target.target import FolderBinding, KafkaCluster, Landing, Target, did_you_mean, landing_at
from tidemill.text.durations import format_duration
from tidemill.text.secret import MASK, is_secret


@dataclass(frozen=True, slots=True)
class Setting:
    """A resolved setting as it may be shown.

    Attributes:
        name: Its name, as a path into the target: `spark.mode`.
        value: Its value; a secret is masked.
        origin: Where it came from.
    """

    name: str
    value: str
    origin: str


def shown(
    prefix: str, value: SparkSettings | KafkaCluster | PostgresDatabase | AlertSettings | S3Settings
) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each field that has one, secrets masked.

    Args:
        prefix: The path of the value in the target: `kafka.default`.
        value: How Spark runs, how a cluster or a database is reached, or where alerts go.
    """
    for setting in (one for one in fields(value) if one.metadata != DERIVED):
        content = getattr(value, setting.name)
        entries = content if isinstance(content, Mapping) else {"": content}
        for key, entry in entries.items():
            if entry is not None and entry != ():
                name = ".".join(part for part in (prefix, setting.name, key) if part)
                literal_secret = isinstance(entry, str) and is_secret(key or setting.name)
                yield name, MASK if literal_secret else _text(entry)


def _text(entry: object) -> str:
    if isinstance(entry, tuple):
        return ", ".join(entry)
    return format_duration(entry) if isinstance(entry, timedelta) else str(entry)


DEFAULT_TARGET = "dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget(Target):
    """A target as tidemill.toml, the environment and the flags resolve it.

    Attributes:
        spark: How Spark runs.
        config: The tidemill.toml it comes from.
        pipeline_entries: The pipelines as the file names them.
        automation: Whether sensors and schedules run as soon as Dagster loads the code location.
        alerts: Where alerts go; None if none are sent.
        origins: Where each setting came from, by name.
    """

    spark: SparkSettings
    config: Path
    pipeline_entries: tuple[str, ...] = ()
    automation: bool = False
    alerts: AlertSettings | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def server(self) -> ServerHome:
        """Where the warm server of this target is, whether there is one or not."""
        return ServerHome.of(target=self.name, config=self.config, lake=self.lake.uri)

    def pipelines(self) -> LoadedPipelines:
        """Import the pipelines that tidemill.toml names; one that fails is a value, not an exception."""
        return load_pipelines(self.pipeline_entries, self.config.parent)

    def streams(self) -> tuple[Stream, ...]:
        """Return the streams of all pipelines that can be loaded, as declared.

        Raises:
            ConfigurationError: Not one pipeline can be loaded.
            DefinitionError: The same, because a stream is declared wrongly.
        """
        return self.pipelines().streams()

    def settings(self) -> tuple[Setting, ...]:
        """Return everything that was resolved, with secrets masked and origins."""
        values = {
            "config": str(self.config),
            "target": self.name,
            "pipelines": ", ".join(self.pipeline_entries),
            "lake": self.lake.uri,
            "automation": str(self.automation).lower(),
        }
        if isinstance(self.default_binding, KafkaCluster):
            values["feeds"] = f"kafka://{self.default_binding.bootstrap}/<feed>"
        elif self.default_binding is not None:
            values["feeds"] = f"{self.default_binding}/<feed>"
        if self.archive is not None:
            values["archive"] = str(self.archive)
        values |= {f"feeds.{feed}": str(binding) for feed, binding in self.feeds.items()}
        if self.catalog is not None:
            values["catalog"] = self.catalog.catalog
            values["schema"] = self.catalog.schema or "<pipeline>"
        values |= dict(shown("spark", self.spark))
        if self.lake.access is not None:
            values |= dict(shown("store", self.lake.access))
        for name, cluster in self.clusters.items():
            values |= dict(shown(f"kafka.{name}", cluster))
        for name, database in self.databases.items():
            values |= dict(shown(f"postgres.{name}", database))
        if self.alerts is not None:
            values |= dict(shown("alerts", self.alerts))
        return tuple(
            Setting(name, value, self.origins.get(name, "default")) for name, value in values.items()
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
    """Return the one target that a command, a sensor or a run works on.

    Secrets stay references to variables; the connection that needs one reads it.

    Args:
        target: The flag `--target`.
        lake: The flag `--lake`: another lake.
        landing: The flag `--landing`: every feed is the folder of its name in there.
        kafka: The flag `--kafka`: every feed is the topic of its name on the cluster with these bootstrap
            servers. Credentials of the file go with it only if the file's cluster has the same servers.
        environ: The environment; the process's own by default.
        start: Where the search for tidemill.toml begins; the working directory by default.

    Raises:
        ConfigurationError: No tidemill.toml, a fault in it, no such target, or a variable that is not set.
    """
    environ = os.environ if environ is None else environ
    start = Path.cwd() if start is None else start
    if landing is not None and kafka is not None:
        raise ConfigurationError(
            "--landing and --kafka both bind every feed.", fix="Give one of them.", code="arguments-conflict"
        )
    path = find_config(environ, start)
    config = read_config(path, environ)
    name, name_origin = _name(target, environ, config)
    entry = _entry(name, name_origin, config)
    _require_variables(entry, lake=lake is None, feeds=landing is None and kafka is None)

    config_origin = "environment TIDEMILL_CONFIG" if environ.get("TIDEMILL_CONFIG") else "found upwards"
    origins = {**entry.origins, "target": name_origin, "config": config_origin}
    clusters, feeds = dict(entry.clusters), entry.feeds
    default_binding: Landing | KafkaCluster | None = entry.landing
    archive = entry.archive if landing is None else None
    if landing is not None:
        feeds, default_binding = {}, landing_at(str(landing), start, entry.store)
        origins["feeds"] = "flag --landing"
    elif kafka is not None:
        same = (cluster for cluster in clusters.values() if cluster.bootstrap == kafka)
        feeds, default_binding = {}, next(same, KafkaCluster(bootstrap=kafka))
        origins["feeds"] = "flag --kafka"
        if DEFAULT_CLUSTER not in clusters:
            clusters[DEFAULT_CLUSTER] = default_binding
            origins[f"kafka.{DEFAULT_CLUSTER}.bootstrap"] = "flag --kafka"
    elif default_binding is None and name == DEFAULT_TARGET:
        default_binding = path.parent / ".tidemill" / "landing"
    if lake is not None:
        origins["lake"] = "flag --lake"
        the_lake = _lake(lake, start, entry)
    else:
        the_lake = _lake_of(name, entry, path.parent)
    folders = (default_binding, *(feed.path for feed in feeds.values() if isinstance(feed, FolderBinding)))
    if the_lake.access is None and any(isinstance(folder, ObjectStore) for folder in folders):
        the_lake = replace(the_lake, access=S3Settings())
    resolved = ResolvedTarget(
        name=name,
        lake=the_lake,
        spark=replace(
            entry.spark,
            store=the_lake.access,
            has_lake_on_store=isinstance(the_lake.store, ObjectStore),
        ),
        config=path,
        pipeline_entries=config.pipelines,
        automation=entry.automation,
        alerts=entry.alerts,
        clusters=clusters,
        databases=entry.databases,
        feeds=feeds,
        default_binding=default_binding,
        archive=archive,
        catalog=entry.catalog,
        origins={**origins, "pipelines": FILE_NAME},
    )
    if entry.spark.mode != "warm":
        return resolved
    return replace(resolved, spark=replace(resolved.spark, server=resolved.server))


def _name(flag: str | None, environ: Mapping[str, str], config: Config) -> tuple[str, str]:
    """Return the target's name, and what decided it."""
    if flag:
        return flag, "flag --target"
    if named := environ.get("TIDEMILL_TARGET"):
        return named, "environment TIDEMILL_TARGET"
    if config.default_target:
        return config.default_target, FILE_NAME
    return DEFAULT_TARGET, "default"


def _entry(name: str, origin: str, config: Config) -> TargetConfig:
    if name in config.targets:
        return config.targets[name]
    if name == DEFAULT_TARGET:
        return TargetConfig()
    known = sorted({DEFAULT_TARGET, *config.targets})
    raise ConfigurationError(
        f"There is no target {name!r} ({origin}).{did_you_mean(name, known)} Known: {', '.join(known)}.",
        fix=f"Add [targets.{name}] with its lake to {FILE_NAME}, or name another target.",
        code="target-missing",
    )


def _require_variables(entry: TargetConfig, *, lake: bool, feeds: bool) -> None:
    """Raise the error about a variable that is not set, unless a flag replaces the setting."""
    for setting, error in entry.unset.items():
        part = setting.partition(".")[0]
        if (part != "lake" or lake) and (part not in ("landing", "feeds", "archive") or feeds):
            raise error


def _lake_of(name: str, entry: TargetConfig, root: Path) -> Lake:
    if entry.lake is not None:
        return _lake(entry.lake, root, entry)
    if name == DEFAULT_TARGET:
        return _lake(root / ".tidemill" / "lake", root, entry)
    raise ConfigurationError(
        f"Target {name!r} has no lake.",
        fix=f'Add lake = "..." to [targets.{name}] of {FILE_NAME}, or give --lake.',
        code="lake-missing",
    )


def _lake(address: str | Path, root: Path, entry: TargetConfig) -> Lake:
    if scheme_of(str(address)) in SCHEMES:
        access = entry.store or S3Settings()
        return Lake(ObjectStore.at(str(address), access), access=access)
    return replace(Lake.at(local_path(address, field="The lake", root=root)), access=entry.store)
