"""tidemill.toml as values: targets with their Spark, Kafka clusters and feeds, or an error with every fault.

The file never holds a secret: a secret field takes `${VAR}` and nothing else, and no error repeats a value that
a secret field holds. Other values may have `${VAR}` in them, which is replaced here.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args

from tidemill.errors import ConfigurationError, DefinitionError
from tidemill.storage.s3_settings import S3Settings
from tidemill.target.alerts import LARGEST_PORT, AlertSettings, alert_settings
from tidemill.target.catalog import CatalogSettings
from tidemill.target.postgres import PostgresDatabase, SslMode
from tidemill.target.spark_settings import SparkMode, SparkSettings, mode_of, remote_fault
from tidemill.target.target import (
    Binding,
    FolderBinding,
    KafkaCluster,
    Landing,
    SaslMechanism,
    SecurityProtocol,
    TopicBinding,
    consumer_fault,
    did_you_mean,
    landing_at,
)
from tidemill.target.toml_table import Notes, Table
from tidemill.text.catalog_name import is_part
from tidemill.text.durations import flag_duration
from tidemill.text.names import valid_feed_name
from tidemill.text.secret import Secret, is_secret

FILE_NAME = "tidemill.toml"
DEFAULT_CLUSTER = "default"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """`[targets.<name>]`.

    Attributes:
        lake: The lake's folder or address, as the file has it.
        landing: The folder with one folder per feed.
        archive: Where files of these folders are moved once they have been read.
        automation: Whether sensors and schedules run as soon as Dagster loads the code location.
        spark: How Spark runs.
        clusters: Kafka clusters by name.
        databases: Postgres databases by name.
        feeds: Feeds that are bound one by one.
        alerts: Where alerts go; None if none are sent.
        store: How the buckets of S3 are reached; None where the file does not say.
        catalog: The catalog in which the tables of streams are registered; None where there is none.
        origins: Where each setting of the file comes from, by name.
        unset: The error about a variable that is not set, by the setting that needs it.
    """

    lake: str | None = None
    landing: Landing | None = None
    archive: Landing | None = None
    automation: bool = False
    spark: SparkSettings = field(default_factory=SparkSettings)
    clusters: Mapping[str, KafkaCluster] = field(default_factory=dict)
    databases: Mapping[str, PostgresDatabase] = field(default_factory=dict)
    feeds: Mapping[str, Binding] = field(default_factory=dict)
    alerts: AlertSettings | None = None
    store: S3Settings | None = None
    catalog: CatalogSettings | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    unset: Mapping[str, ConfigurationError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole file."""

    pipelines: tuple[str, ...] = ()
    default_target: str | None = None
    targets: Mapping[str, TargetConfig] = field(default_factory=dict)


def find_config(environ: Mapping[str, str], start: Path) -> Path:
    """Return the file that `TIDEMILL_CONFIG` names, else the nearest one from `start` upwards.

    Raises:
        ConfigurationError: There is none, or the nearest one belongs to another user.
    """
    if named := environ.get("TIDEMILL_CONFIG"):
        path = (start / Path(named).expanduser()).absolute()
        if not path.is_file():
            raise ConfigurationError(
                f"TIDEMILL_CONFIG names {path}, and there is no such file.",
                fix="Correct the variable, or unset it and work below the folder of tidemill.toml.",
                code="config-missing",
            )
        return path
    start = start.absolute()
    for folder in (start, *start.parents):
        path = folder / FILE_NAME
        if path.is_file():
            _refuse_foreign(path)
            return path
    raise ConfigurationError(
        f"There is no {FILE_NAME} in {start} or above it.",
        fix="Create a project with `tidemill init DIR` and work in it, or set TIDEMILL_CONFIG to the file.",
        code="config-missing",
    )


def _refuse_foreign(path: Path) -> None:
    """Refuse a file that another user could have put above the working directory: it names code to import."""
    if os.name != "posix" or (owner := path.stat().st_uid) in (0, os.getuid()):
        return
    raise ConfigurationError(
        f"{path} belongs to another user (uid {owner}), and it names code that would run as you.",
        fix=f"Work in a project of your own; or, if you trust the file, export TIDEMILL_CONFIG={path}",
        code="config-not-trusted",
    )


def read_config(path: Path, environ: Mapping[str, str]) -> Config:
    """Return the content of a file, validated.

    Args:
        path: The file; relative paths in it start at its folder.
        environ: The values of `${VAR}`. One that is not set is an error of the target that needs it only.

    Raises:
        ConfigurationError: The file cannot be read, is not TOML, or has keys or values that are not allowed;
            all of them are named at once.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{path} cannot be read: {reason}.", code="config-unreadable") from None
    notes = Notes(environ)
    table = Table(content, "", notes)
    config = Config(
        pipelines=table.strings("pipelines"),
        default_target=table.raw("default_target"),
        targets={
            name: _target(name, inner, notes, path.parent) for name, inner in table.tables("targets").items()
        },
    )
    table.end()
    if notes.faults:
        raise ConfigurationError(
            f"{path}: " + "; ".join(fault.rstrip(".") for fault in notes.faults) + ".", code="config-invalid"
        )
    return config


def _target(name: str, table: Table, notes: Notes, root: Path) -> TargetConfig:
    clusters = {cluster: _kafka(inner, root) for cluster, inner in table.tables("kafka").items()}
    store = _store(table.table("store")) if "store" in table else None
    places = _Places(root, store)
    feeds = {feed: _feed(feed, inner, clusters, places) for feed, inner in table.tables("feeds").items()}
    if "archive" in table and "landing" not in table:
        table.fault("archive", "is for the files of landing, which is missing")
    target = TargetConfig(
        lake=table.string("lake"),
        landing=places.folder(table, "landing"),
        archive=places.folder(table, "archive"),
        automation=table.flag("automation"),
        spark=_spark(table.table("spark")),
        clusters=clusters,
        databases={database: _postgres(inner, root) for database, inner in table.tables("postgres").items()},
        feeds=feeds,
        alerts=alert_settings(table),
        store=store,
        catalog=_catalog(table),
        origins=_origins(name, _below(table, notes.variables)),
        unset=_below(table, notes.unset),
    )
    table.end()
    return target


def _origins(target: str, variables: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return where each setting comes from; a binding is one setting, whatever keys the file writes it with."""
    origins: dict[str, str] = {}
    for setting, names in variables.items():
        parts = setting.split(".")
        name = "feeds" if setting == "landing" else setting
        if parts[0] == "feeds" and parts[-1] in ("path", "topic"):
            name = ".".join(parts[:-1])
        origins[name] = f"{FILE_NAME} [targets.{target}]" + (f" from {', '.join(names)}" if names else "")
    return origins


def _below(table: Table, by_path: Mapping[str, T]) -> dict[str, T]:
    """Return what was noted about a table, by the name that a setting has in the table."""
    prefix = table.path_of("") + "."
    return {path.removeprefix(prefix): note for path, note in by_path.items() if path.startswith(prefix)}


def _spark(table: Table) -> SparkSettings:
    confs = table.table("conf")
    mode, master = table.string("mode", choices=get_args(SparkMode)), table.string("master")
    settings = SparkSettings(
        **_given(
            mode=mode or mode_of(master),
            master=master,
            remote=_remote(table),
            driver_memory=table.string("driver_memory", pattern=r"[1-9][0-9]*[kKmMgGtT]", example="2g"),
            shuffle_partitions=table.integer("shuffle_partitions"),
            parallel=table.integer("parallel"),
            idle_timeout=_idle_timeout(table),
        ),
        conf=_given(**{key: confs.secret(key) if is_secret(key) else confs.scalar(key) for key in confs}),
    )
    table.end()
    if settings.mode == "connect" and not settings.remote:
        table.fault("remote", "is missing, and mode 'connect' needs it, such as \"sc://host:15002\"")
    if settings.mode == "cluster" and "master" not in table:
        table.fault("master", "is missing, and mode 'cluster' needs it: spark://host:7077, yarn or k8s://...")
    if settings.mode == "local" and mode_of(settings.master) != "local":
        table.fault(
            "mode", f"is 'local', and the master {settings.master} is a cluster; write mode = \"cluster\""
        )
    if settings.mode != "connect" and settings.remote:
        table.fault("remote", "is for mode 'connect'")
    if settings.mode != "warm" and settings.idle_timeout is not None:
        table.fault("idle_timeout", "is for mode 'warm'")
    return settings


def _idle_timeout(table: Table) -> timedelta | None:
    value = table.string("idle_timeout")
    if value is None:
        return None
    try:
        length = flag_duration(value, field="idle_timeout")
    except DefinitionError:
        length = timedelta(0)
    if not length:
        table.fault("idle_timeout", f"is {value!r}; write a length of time like '10 minutes' or '2h'")
        return None
    return length


def _remote(table: Table) -> str | Secret | None:
    remote = table.raw("remote")
    if remote is None:
        return None
    if reason := remote_fault(remote):
        table.fault("remote", reason)
        return None
    address, semicolon, parameters = remote.partition(";")
    address = table.substituted("remote", address)
    return table.reference("remote", f"{address};{parameters}") if semicolon else address


def _kafka(table: Table, root: Path) -> KafkaCluster:
    ca_file = table.file("ca_file", root)
    cluster = KafkaCluster(
        table.string("bootstrap") or "",
        **_given(
            security_protocol=table.string("security_protocol", choices=get_args(SecurityProtocol)),
            sasl_mechanism=table.string("sasl_mechanism", choices=get_args(SaslMechanism)),
            username=table.string_or_secret("username"),
            password=table.secret("password"),
            ca_file=None if ca_file is None else str(ca_file),
            consumer=_consumer(table.table("consumer")),
        ),
    )
    table.end()
    if "bootstrap" not in table:
        table.fault("bootstrap", "is missing: write the brokers as host:port, with commas between them")
    protocol = cluster.security_protocol
    for name in ("sasl_mechanism", "username", "password"):
        if protocol.startswith("SASL") and name not in table:
            table.fault(name, f"is missing, and security_protocol {protocol} needs it")
        if not protocol.startswith("SASL") and name in table:
            table.fault(name, "is for security_protocol SASL_SSL or SASL_PLAINTEXT")
    if "ca_file" in table and not protocol.endswith("SSL"):
        table.fault("ca_file", "is for security_protocol SSL or SASL_SSL")
    return cluster


def _consumer(table: Table) -> dict[str, str]:
    properties = {}
    for name in table:
        if reason := consumer_fault(name):
            table.fault(name, reason)
        else:
            properties[name] = table.scalar(name)
    return properties


def _postgres(table: Table, root: Path) -> PostgresDatabase:
    ca_file = table.file("ca_file", root)
    database = PostgresDatabase(
        table.string("host") or "",
        table.string("database") or "",
        **_given(
            port=table.integer("port"),
            username=table.string_or_secret("username"),
            password=table.secret("password"),
            sslmode=table.string("sslmode", choices=get_args(SslMode)),
            ca_file=None if ca_file is None else str(ca_file),
        ),
    )
    table.end()
    for name in ("host", "database"):
        if name not in table:
            table.fault(name, "is missing")
    if database.port > LARGEST_PORT:
        table.fault("port", f"is {database.port}; a port is at most {LARGEST_PORT}")
    if "ca_file" in table and not database.sslmode.startswith("verify-"):
        table.fault("ca_file", "is for sslmode verify-ca or verify-full")
    return database


def _store(table: Table) -> S3Settings:
    settings = S3Settings(
        **_given(
            endpoint=table.string("endpoint", pattern=r"https?://[^/@]+/?", example="https://host:9000"),
            region=table.string("region"),
            access_key_id=table.string_or_secret("access_key_id"),
            secret_access_key=table.secret("secret_access_key"),
            session_token=table.secret("session_token"),
        )
    )
    table.end()
    for name, other in (("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")):
        if name in table and other not in table:
            table.fault(other, f"is missing, and {name} needs it")
    if "session_token" in table and "access_key_id" not in table:
        table.fault("access_key_id", "is missing, and session_token needs it")
    return settings


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the folders of a target are.

    Attributes:
        root: Where a relative path starts.
        store: How S3 is reached; None where the file does not say.
    """

    root: Path
    store: S3Settings | None

    def folder(self, table: Table, key: str) -> Landing | None:
        """Return the folder that a setting names; None if it is missing or wrong."""
        value = table.string(key)
        if value is None:
            return None
        try:
            return landing_at(value, self.root, self.store)
        except ConfigurationError as error:
            table.fault(key, f"is wrong: {error.what} Fix: {error.fix}")
            return None


def _catalog(table: Table) -> CatalogSettings | None:
    names = {key: table.string(key) for key in ("catalog", "schema")}
    for key, name in names.items():
        if name is not None and not is_part(name):
            table.fault(key, f"is {name!r}; use letters, digits, '_' and '-'")
    if names["catalog"] is None:
        if "schema" in table:
            table.fault("schema", "is for a target with a catalog; write catalog, too")
        return None
    return CatalogSettings(names["catalog"], names["schema"])


def _feed(name: str, table: Table, clusters: Mapping[str, KafkaCluster], places: _Places) -> Binding:
    path, archive = places.folder(table, "path"), places.folder(table, "archive")
    topic, cluster = table.string("topic"), table.raw("cluster")
    table.end()
    try:
        valid_feed_name(name)
    except DefinitionError as error:
        table.fault("", f"is no name of a feed: {error}")
    if (path is None) == (topic is None):
        table.fault("", "needs a path or a topic, one of them")
    if archive is not None and topic is not None:
        table.fault("archive", "is for a feed with a path")
    if cluster is not None and topic is None:
        table.fault("cluster", "is for a feed with a topic")
    if topic is None:
        return FolderBinding(path or places.root, archive)
    cluster = cluster or DEFAULT_CLUSTER
    if cluster not in clusters:
        table.fault(
            "topic",
            f"is on the Kafka cluster {cluster!r}, and the target has none of that name"
            f".{did_you_mean(cluster, clusters)}",
        )
    return TopicBinding(clusters.get(cluster, KafkaCluster("")), topic)


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that the file sets; the others keep their defaults."""
    return {name: value for name, value in fields.items() if value is not None}
