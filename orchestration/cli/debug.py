"""`tidemill debug`: the resolved settings with their origin, and whether everything answers."""

import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from orchestration.cli.output import EXIT_PROBLEM, print_json
from orchestration.cli.target_flags import TargetFlags, target_flags

if TYPE_CHECKING:
    from resources.target.resolve import ResolvedTarget

CONNECT_SECONDS = 5.0
CONNECT_PORT, MASTER_PORT = 15002, 7077  # Spark's defaults

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Ping:
    """Whether something that a run needs answers.

    Attributes:
        name: What it is.
        ok: Whether it answers; None where this target does not need it, or it is made when it is needed.
        detail: What was found.
    """

    name: str
    ok: bool | None
    detail: str


@app.command()
@target_flags
def debug(flags: TargetFlags) -> None:
    """The resolved settings (secrets masked) with their origin, and a ping of everything that a run needs.

    Exit status: 0 all answers, 1 something does not, 2 the settings cannot be resolved.
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
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        for setting in settings:
            table.add_row(setting.name, escape(setting.value), f"[bright_black]{escape(setting.origin)}[/]")
        answers = Table(box=None, pad_edge=False, show_header=False)
        for ping in pings:
            sign = {True: "[green]ok[/]", False: "[red]failed[/]", None: "[bright_black]-[/]"}[ping.ok]
            answers.add_row(ping.name, sign, escape(ping.detail))
        console = Console(highlight=False)
        console.print(table, "", answers)
    if any(ping.ok is False for ping in pings):
        raise typer.Exit(EXIT_PROBLEM)


def _pings(target: "ResolvedTarget") -> list[Callable[[], Ping]]:
    return [
        lambda: ping_pipelines(target),
        lambda: ping_java(target),
        lambda: ping_jars(target),
        lambda: ping_spark(target),
        lambda: ping_lake(target.lake.root),
        *(lambda name=name: ping_kafka(target, name) for name in target.clusters),
        lambda: ping_dagster(target),
    ]


def ping_pipelines(target: "ResolvedTarget") -> Ping:
    """Whether the pipelines can be imported."""
    from pipelines.streaming.errors import TidemillError

    try:
        streams = target.streams()
    except TidemillError as error:
        return Ping("pipelines", ok=False, detail=str(error))
    return Ping("pipelines", ok=True, detail=f"{len(streams)} streams")


def ping_java(target: "ResolvedTarget") -> Ping:
    """Whether there is a Java that Spark runs on."""
    from resources.engine.java import complaint, find_java

    if target.spark.mode == "connect":
        return Ping("java", ok=None, detail="not needed: Spark is a Connect server")
    java = find_java()
    wrong = complaint(java)
    if java is None or wrong:
        return Ping("java", ok=False, detail=wrong or "none")
    return Ping("java", ok=True, detail=f"{java.version} at {java.path}")


def ping_jars(target: "ResolvedTarget") -> Ping:
    """Whether the jars are in the cache; they are fetched at need, so their absence is no failure."""
    from resources.jars import SPARK
    from resources.jars.cache import inspect

    if target.spark.mode == "connect":
        return Ping("jars", ok=None, detail="not needed: the Connect server has its own")
    found = inspect(SPARK)
    detail = f"{found.state}: {found.folder}"
    if found.state == "damaged":
        return Ping("jars", ok=False, detail=f"{detail}: {'; '.join(found.faults)}")
    return Ping("jars", ok=True if found.state == "ready" else None, detail=detail)


def ping_spark(target: "ResolvedTarget") -> Ping:
    """Whether the Connect server, or a standalone master, accepts connections."""
    spark = target.spark
    address, port = (spark.remote, CONNECT_PORT) if spark.mode == "connect" else (spark.master, MASTER_PORT)
    parts = urlsplit(address or "")
    if parts.scheme not in ("sc", "spark") or parts.hostname is None:
        return Ping("spark", ok=None, detail=f"{spark.mode}: {spark.master}, started by a run")
    where = f"{parts.hostname}:{parts.port or port}"
    try:
        socket.create_connection((parts.hostname, parts.port or port), CONNECT_SECONDS).close()
    except OSError as error:
        return Ping("spark", ok=False, detail=f"{where} does not answer: {error}")
    return Ping("spark", ok=True, detail=f"{where} answers")


def ping_lake(root: Path) -> Ping:
    """Whether the lake can be written, or made where it is not there yet."""
    try:
        place = next(folder for folder in (root, *root.parents) if folder.exists())
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:  # a folder on the way that may not be entered, or the place itself
        return Ping("lake", ok=False, detail=f"{root} cannot be written: {error.strerror}")
    return Ping("lake", ok=True, detail=f"{root} {'is writable' if place == root else 'will be made'}")


def ping_kafka(target: "ResolvedTarget", name: str) -> Ping:
    """Whether a Kafka cluster answers and lets us in."""
    from pipelines.streaming.backlog.cluster import client_of
    from pipelines.streaming.errors import TidemillError

    cluster = target.cluster(name)
    try:
        topics = client_of(cluster).all_topics()
    except TidemillError as error:
        return Ping(f"kafka.{name}", ok=False, detail=error.what)
    return Ping(f"kafka.{name}", ok=True, detail=f"{cluster.bootstrap} answers, {len(topics)} topics")


def ping_dagster(target: "ResolvedTarget") -> Ping:
    """Whether the Dagster instance opens; `make ui` makes one at its first start."""
    named = os.environ.get("DAGSTER_HOME")
    home = Path(named or target.config.parent / ".tidemill" / "dagster")
    if not home.is_dir():
        return Ping("dagster", ok=False if named else None, detail=f"no instance in {home}")
    try:
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(home)) as instance:
            runs = instance.get_runs_count()
    except Exception as error:  # noqa: BLE001 - whatever it says, the instance does not open
        return Ping("dagster", ok=False, detail=f"{home}: {error}")
    return Ping("dagster", ok=True, detail=f"{home}, {runs} runs")
