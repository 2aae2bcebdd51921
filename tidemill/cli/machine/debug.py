"""`tidemill debug`: the resolved settings with their origin, and whether everything answers."""

import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from tidemill.cli.shared.output import EXIT_PROBLEM, new_table, output_console, print_json
from tidemill.cli.shared.target_flags import TargetFlags, target_flags
from tidemill.errors import TidemillError
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.probe import faults_of
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.storage.store import Store
    from tidemill.target.resolve import ResolvedTarget

CONNECT_SECONDS = 5.0
CONNECT_PORT, MASTER_PORT = 15002, 7077  # Spark's defaults

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Ping:
    """The answer of something that a run needs.

    Attributes:
        ok: True if it answers; None if this target does not need it, or a run starts it.
        detail: The answer, or why there is none.
    """

    name: str
    ok: bool | None
    detail: str


@app.command()
@target_flags
def debug(flags: TargetFlags) -> None:
    """Print the resolved settings (secrets masked) with their origin, and ping everything that a run needs.

    Exit status: 0 if everything answers, 1 if something does not, 2 if the settings cannot be resolved.
    """
    resolved = flags.resolve()
    settings = resolved.settings()
    pings = [ping() for ping in _pings(resolved)]
    if flags.as_json:
        print_json(
            target=resolved.name,
            settings=[asdict(setting) for setting in settings],
            pings=[asdict(ping) for ping in pings],
        )
    else:
        from rich.markup import escape

        table = new_table()
        for setting in settings:
            table.add_row(setting.name, escape(setting.value), f"[bright_black]{escape(setting.origin)}[/]")
        answers = new_table()
        for ping in pings:
            sign = {True: "[green]ok[/]", False: "[red]failed[/]", None: "[bright_black]-[/]"}[ping.ok]
            answers.add_row(ping.name, sign, escape(ping.detail))
        output_console().print(table, "", answers)
    if any(ping.ok is False for ping in pings):
        raise typer.Exit(EXIT_PROBLEM)


def _pings(target: "ResolvedTarget") -> list[Callable[[], Ping]]:
    landings = [one for one in (target.default_binding,) if isinstance(one, ObjectStore)]
    return [
        lambda: ping_pipelines(target),
        lambda: ping_java(target),
        lambda: ping_jars(target),
        lambda: ping_spark(target),
        lambda: ping_lake(target.lake.store),
        *(partial(ping_landing, landing) for landing in landings),
        *(lambda name=name: ping_kafka(target, name) for name in target.clusters),
        *(lambda name=name: ping_postgres(target, name) for name in target.databases),
        lambda: ping_dagster(target),
    ]


def ping_pipelines(target: "ResolvedTarget") -> Ping:
    """Report whether the pipelines can be imported."""
    loaded = target.pipelines()
    count = sum(len(list(pipeline)) for pipeline in loaded.pipelines.values())
    detail = pluralize(count, "stream")
    if loaded.failures:
        detail = "; ".join([detail, *(str(failure.error) for failure in loaded.failures)])
    return Ping("pipelines", ok=not loaded.failures, detail=detail)


def ping_java(target: "ResolvedTarget") -> Ping:
    """Report whether there is a Java that Spark runs on."""
    from tidemill.engines.java import complaint, find_java

    if target.spark.mode == "connect":
        return Ping("java", ok=None, detail="not needed: Spark is a Connect server")
    java = find_java()
    fault = complaint(java)
    if java is None or fault:
        return Ping("java", ok=False, detail=fault or "none")
    return Ping("java", ok=True, detail=f"{java.version} at {java.path}")


def ping_jars(target: "ResolvedTarget") -> Ping:
    """Report whether the jars are in the cache; a run fetches them, so missing jars are no failure."""
    from tidemill.engines.jars import S3, SPARK
    from tidemill.engines.jars.cache import inspect

    if target.spark.mode == "connect":
        return Ping("jars", ok=None, detail="not needed: the Connect server has its own")
    sets = [inspect(jar_set) for jar_set in (SPARK, *([S3] if target.spark.store is not None else []))]
    detail = ", ".join(f"{jars.state}: {jars.folder}" for jars in sets)
    faults = [fault for jars in sets for fault in jars.faults]
    if faults:
        return Ping("jars", ok=False, detail=f"{detail}: {'; '.join(faults)}")
    return Ping("jars", ok=True if all(jars.state == "ready" for jars in sets) else None, detail=detail)


def ping_spark(target: "ResolvedTarget") -> Ping:
    """Report whether the Connect server, or a standalone master, accepts connections."""
    spark = target.spark
    if spark.mode == "warm":
        return _ping_warm(target)
    address, port = (spark.remote, CONNECT_PORT) if spark.mode == "connect" else (spark.master, MASTER_PORT)
    parts = urlsplit(str(address or ""))  # a secret in it stays masked
    if parts.scheme not in ("sc", "spark") or parts.hostname is None:
        return Ping("spark", ok=None, detail=f"{spark.mode}: {spark.master}, a run starts it")
    server = f"{parts.hostname}:{parts.port or port}"
    try:
        socket.create_connection((parts.hostname, parts.port or port), CONNECT_SECONDS).close()
    except OSError as error:
        return Ping("spark", ok=False, detail=f"{server} does not answer: {error}")
    return Ping("spark", ok=True, detail=f"{server} answers")


def _ping_warm(target: "ResolvedTarget") -> Ping:
    """Report whether the warm server answers; where there is none, a run starts it."""
    from tidemill.engines.warm.stop import clients_of
    from tidemill.engines.warm.wire import running

    record = running(target.server)
    if record is None:
        return Ping("spark", ok=None, detail=f"warm: {target.spark.master}, a run starts the server")
    server = f"warm server, process {record.pid}, port {record.spark_port}"
    answer = clients_of(target.server, record)
    if answer is None:
        fix = f"tidemill engine stop --target {target.name}"
        return Ping("spark", ok=False, detail=f"{server} does not answer. Fix: {fix}")
    return Ping(
        "spark",
        ok=True,
        detail=f"{server}, {pluralize(len(answer['clients']), 'attached process')}",
    )


def ping_lake(store: "Store") -> Ping:
    """Report whether the lake can be written, or created if it does not exist yet; an object store is probed."""
    if isinstance(store, ObjectStore):
        return _ping_store(store)
    root = Path(store.uri())
    try:
        nearest = next(folder for folder in (root, *root.parents) if folder.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:  # a folder above it that may not be entered, or the lake itself
        return Ping("lake", ok=False, detail=f"{root} cannot be written: {error.strerror}")
    return Ping("lake", ok=True, detail=f"{root} {'is writable' if nearest == root else 'will be created'}")


def ping_landing(landing: "ObjectStore") -> Ping:
    """Report whether the prefix of the feeds can be listed."""
    try:
        landing.has_files()
    except TidemillError as error:
        return Ping("landing", ok=False, detail=error.what)
    return Ping("landing", ok=True, detail=f"{landing} can be listed")


def _ping_store(store: "ObjectStore") -> Ping:
    try:
        faults = faults_of(store)
    except TidemillError as error:
        return Ping("lake", ok=False, detail=error.what)
    if faults:
        return Ping("lake", ok=False, detail=f"{store.uri()} lacks what a lake needs: {'; '.join(faults)}")
    return Ping("lake", ok=True, detail=f"{store.uri()} has exclusive and conditional writes")


def ping_kafka(target: "ResolvedTarget", name: str) -> Ping:
    """Report whether a Kafka cluster answers and accepts the credentials."""
    from tidemill.connectors.kafka.client import client_of

    cluster = target.cluster(name)
    try:
        topics = client_of(cluster).all_topics()
    except TidemillError as error:
        return Ping(f"kafka.{name}", ok=False, detail=error.what)
    return Ping(
        f"kafka.{name}", ok=True, detail=f"{cluster.bootstrap} answers, {pluralize(len(topics), 'topic')}"
    )


def ping_postgres(target: "ResolvedTarget", name: str) -> Ping:
    """Report whether a Postgres database answers and accepts the credentials."""
    from tidemill.errors import TidemillError
    from tidemill.sinks.postgres.database import server_version

    database = target.database(name)
    try:
        version = server_version(database)
    except TidemillError as error:
        return Ping(f"postgres.{name}", ok=False, detail=error.what)
    return Ping(f"postgres.{name}", ok=True, detail=f"{database} answers, Postgres {version}")


def ping_dagster(target: "ResolvedTarget") -> Ping:
    """Report whether the Dagster instance opens; the first start of its UI creates one."""
    given = os.environ.get("DAGSTER_HOME")
    home = Path(given or target.config.parent / ".tidemill" / "dagster")
    if not home.is_dir():
        return Ping("dagster", ok=False if given else None, detail=f"no instance in {home}")
    try:
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(home)) as instance:
            runs = instance.get_runs_count()
    except Exception as error:  # noqa: BLE001 - whatever the error is, the instance does not open
        return Ping("dagster", ok=False, detail=f"{home}: {error}")
    return Ping("dagster", ok=True, detail=f"{home}, {pluralize(runs, 'run')}")
