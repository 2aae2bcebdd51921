"""`tidemill jars`: the cache of the jars that Spark needs beyond pyspark; `tidemill jars fetch` fills it."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidemill.cli.shared.output import EXIT_PROBLEM, output_console, print_json
from tidemill.cli.shared.target_flags import AsJson
from tidemill.engines import class_archive
from tidemill.engines.jars import BROKER, S3, SPARK
from tidemill.engines.jars.cache import Inspection, fetch, inspect
from tidemill.engines.jars.sets import JarSet
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Show or fetch the jars that Spark and the development broker need. They are fetched once and verified.",
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the cache of jars, and compare every file with its pinned checksum.

    Exit status: 0, or 1 if a file is damaged.
    """
    if context.invoked_subcommand is None:
        _report((SPARK, S3, BROKER), as_json=as_json)


@app.command("fetch")
def fetch_command(
    *,
    store: Annotated[
        Literal["s3"] | None, typer.Option(help="Also fetch the jars for a lake on this store.")
    ] = None,
    broker: Annotated[
        bool, typer.Option("--broker", help="Also fetch the jars of the development Kafka broker.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the jars that are missing, replace those that are damaged, and archive the classes of Spark."""
    jar_sets = (SPARK, *([S3] if store else []), *([BROKER] if broker else []))
    for jar_set in jar_sets:
        fetch(jar_set)
    class_archive.make()
    _report(jar_sets, as_json=as_json)


def _report(jar_sets: tuple[JarSet, ...], *, as_json: bool) -> None:
    inspections = {jar_set: inspect(jar_set) for jar_set in jar_sets}
    if as_json:
        print_json(sets=[_as_document(jar_set, inspection) for jar_set, inspection in inspections.items()])
    else:
        console = output_console()
        for jar_set, inspection in inspections.items():
            _show(jar_set, inspection, console)
    if any(inspection.state == "damaged" for inspection in inspections.values()):
        raise typer.Exit(EXIT_PROBLEM)


def _as_document(jar_set: JarSet, inspection: Inspection) -> dict[str, object]:
    """Return a set of jars as `jars --json` prints it."""
    return {
        "name": jar_set.name,
        "state": inspection.state,
        "jars": [jar.name for jar in inspection.jars],
        "bytes": inspection.size,
        "folder": str(inspection.folder),
        "faults": list(inspection.faults),
    }


def _show(jar_set: JarSet, inspection: Inspection, console: "Console") -> None:
    color = {"ready": "green", "absent": "yellow", "damaged": "red"}[inspection.state]
    size = f", {inspection.size / 1e6:.0f} MB" if inspection.size else ""
    jars = pluralize(len(inspection.jars), "jar")
    console.print(f"Jars for {jar_set.purpose}: [{color}]{inspection.state}[/], {jars}{size}")
    fix = () if inspection.state == "ready" else (f"`{jar_set.fetch_command}` fetches them",)
    for text in (str(inspection.folder), *inspection.faults, *fix):
        console.print(f"  {text}", markup=False, soft_wrap=True)
