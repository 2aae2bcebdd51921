"""tidemill.toml as typed tables: what may stand in it, and an error that names what may not.

Secrets never stand in the file: a secret field takes `${VAR}` and nothing else, and no error repeats a value
that a secret field holds.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from pipelines.streaming.errors import ConfigurationError
from resources.engine.engine import SparkMode
from resources.target.keys import VARIABLE, Keys

FILE_NAME = "tidemill.toml"
DEFAULT_TARGET = "dev"

# What Spark itself redacts (`spark.redaction.regex`), and the keys of object stores.
SECRET_CONF = re.compile(r"secret|password|token|access[._]?key|credential|jaas", re.IGNORECASE)
# Of a Connect address: sc://host:15002/;token=...
TOKEN = re.compile(r"(?<=;token=)[^;]*", re.IGNORECASE)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable:
    """`[targets.<name>.spark]`: see `resources.engine.SparkSettings`; None where the file says nothing."""

    mode: str | None = None
    master: str | None = None
    remote: str | None = None
    driver_memory: str | None = None
    shuffle_partitions: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTable:
    """`[targets.<name>.kafka.<cluster>]`: see `pipelines.streaming.sources.KafkaCluster`; None likewise."""

    bootstrap: str | None = None
    security_protocol: str | None = None
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTable:
    """One feed's place: a folder, or a topic of a cluster."""

    path: str | None = None
    topic: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """`[targets.<name>]`."""

    lake: str | None = None
    landing: str | None = None
    spark: SparkTable = field(default_factory=SparkTable)
    kafka: Mapping[str, KafkaTable] = field(default_factory=dict)
    feeds: Mapping[str, FeedTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole file."""

    pipelines: tuple[str, ...] = ()
    default_target: str | None = None
    targets: Mapping[str, TargetTable] = field(default_factory=dict)


def find_config(environ: Mapping[str, str], start: Path) -> Path:
    """The file that `TIDEMILL_CONFIG` names, else the nearest one from `start` upwards.

    Raises:
        ConfigurationError: there is none.
    """
    if named := environ.get("TIDEMILL_CONFIG"):
        place = (start / Path(named).expanduser()).absolute()
        if not place.is_file():
            raise ConfigurationError(
                f"TIDEMILL_CONFIG names {place}, and there is no such file.",
                fix="Correct the variable, or unset it and work below the folder of tidemill.toml.",
            )
        return place
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise ConfigurationError(
        f"There is no {FILE_NAME} in {start} or above it.",
        fix="Work in your clone of the platform repository, or set TIDEMILL_CONFIG to the file.",
    )


def read_config(place: Path) -> Config:
    """The file, validated.

    Raises:
        ConfigurationError: it cannot be read, is no TOML, or has keys or values that it may not have; all of
            them are named at once.
    """
    try:
        content = tomllib.loads(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{place} cannot be read: {reason}.") from None
    faults: list[str] = []
    config = _config(Keys(content, "", faults))
    if faults:
        raise ConfigurationError(f"{place}: " + "; ".join(fault.rstrip(".") for fault in faults) + ".")
    return config


def _config(keys: Keys) -> Config:
    config = Config(
        pipelines=keys.texts("pipelines"),
        default_target=keys.text("default_target"),
        targets={name: _target(table) for name, table in keys.tables("targets").items()},
    )
    keys.end()
    return config


def _target(keys: Keys) -> TargetTable:
    target = TargetTable(
        lake=keys.text("lake"),
        landing=keys.text("landing"),
        spark=_spark(keys.table("spark")),
        kafka={name: _kafka(table) for name, table in keys.tables("kafka").items()},
        feeds={name: _feed(table) for name, table in keys.tables("feeds").items()},
    )
    keys.end()
    return target


def _spark(keys: Keys) -> SparkTable:
    confs = keys.table("conf")
    spark = SparkTable(
        mode=keys.text("mode", choices=get_args(SparkMode)),
        master=keys.text("master"),
        remote=keys.text("remote"),
        driver_memory=keys.text("driver_memory", pattern=r"[1-9][0-9]*[kKmMgGtT]", like="2g"),
        shuffle_partitions=keys.whole("shuffle_partitions"),
        conf=confs.scalars(),
    )
    keys.end()
    for key in filter(SECRET_CONF.search, spark.conf):
        confs.secret(key)
    if not all(VARIABLE.fullmatch(token) for token in TOKEN.findall(spark.remote or "")):
        keys.fault("remote", "has a token in it; write token=${SPARK_TOKEN} and set the variable")
    if spark.mode == "connect" and not spark.remote:
        keys.fault("remote", "is missing, and mode 'connect' needs it, such as \"sc://host:15002\"")
    if spark.mode == "cluster" and not spark.master:
        keys.fault("master", "is missing, and mode 'cluster' needs it: spark://host:7077, yarn or k8s://...")
    if spark.mode != "connect" and spark.remote:
        keys.fault("remote", "is for mode 'connect'")
    return spark


def _kafka(keys: Keys) -> KafkaTable:
    kafka = KafkaTable(
        bootstrap=keys.text("bootstrap"),
        security_protocol=keys.text("security_protocol", choices=SECURITY_PROTOCOLS),
        sasl_mechanism=keys.text("sasl_mechanism", choices=SASL_MECHANISMS),
        username=keys.text("username"),
        password=keys.secret("password"),
        ca_file=keys.text("ca_file"),
    )
    keys.end()
    if kafka.bootstrap is None:
        keys.fault("bootstrap", "is missing: write the brokers as host:port, with commas between them")
    protocol = kafka.security_protocol or "PLAINTEXT"
    sasl = {name: getattr(kafka, name) for name in ("sasl_mechanism", "username", "password")}
    for name, value in sasl.items():
        if protocol.startswith("SASL") and value is None:
            keys.fault(name, f"is missing, and security_protocol {protocol} needs it")
        if not protocol.startswith("SASL") and value is not None:
            keys.fault(name, "is for security_protocol SASL_SSL or SASL_PLAINTEXT")
    if kafka.ca_file and not protocol.endswith("SSL"):
        keys.fault("ca_file", "is for security_protocol SSL or SASL_SSL")
    return kafka


def _feed(keys: Keys) -> FeedTable:
    feed = FeedTable(path=keys.text("path"), topic=keys.text("topic"), cluster=keys.text("cluster"))
    keys.end()
    if (feed.path is None) == (feed.topic is None):
        keys.fault("", "needs a path or a topic, one of them")
    if feed.cluster is not None and feed.topic is None:
        keys.fault("cluster", "is for a feed with a topic")
    return feed
