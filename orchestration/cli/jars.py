"""`tidemill jars`: what the JVM needs beyond pyspark, as the cache has it; `tidemill jars fetch` gets it."""

from typing import Annotated

import typer
from rich.console import Console

from orchestration.cli.options import WRONG, AsJson, print_json
from resources.jars import BROKER, SPARK
from resources.jars.cache import Inspection, fetch, inspect
from resources.jars.sets import JarSet

app = typer.Typer(
    help="The jars that Spark and the development broker need: fetched once, verified, offline."
)


@app.callback(invoke_without_command=True)
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """What the cache has, every file compared with its pinned sum. Exit status 1 if one is damaged."""
    if context.invoked_subcommand is None:
        _report((SPARK, BROKER), as_json=as_json)


@app.command("fetch")
def fetch_command(
    *,
    broker: Annotated[bool, typer.Option("--broker", help="Also the development Kafka broker's.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch what is not there yet, and replace what is damaged."""
    wanted = (SPARK, BROKER) if broker else (SPARK,)
    for jar_set in wanted:
        fetch(jar_set)
    _report(wanted, as_json=as_json)


def _report(jar_sets: tuple[JarSet, ...], *, as_json: bool) -> None:
    found = {jar_set: inspect(jar_set) for jar_set in jar_sets}
    if as_json:
        print_json(sets=[_as_record(jar_set, inspection) for jar_set, inspection in found.items()])
    else:
        console = Console()
        for jar_set, inspection in found.items():
            _show(jar_set, inspection, console)
    if any(inspection.state == "damaged" for inspection in found.values()):
        raise typer.Exit(WRONG)


def _as_record(jar_set: JarSet, found: Inspection) -> dict[str, object]:
    return {
        "name": jar_set.name,
        "state": found.state,
        "jars": [jar.name for jar in found.jars],
        "bytes": found.size,
        "folder": str(found.folder),
        "faults": list(found.faults),
    }


def _show(jar_set: JarSet, found: Inspection, console: Console) -> None:
    colour = {"ready": "green", "absent": "yellow", "damaged": "red"}[found.state]
    size = f"{len(found.jars)} jars, {found.size / 1e6:.0f} MB" if found.size else f"{len(found.jars)} jars"
    console.print(f"Jars for {jar_set.purpose}: [{colour}]{found.state}[/], {size}", highlight=False)
    fix = () if found.state == "ready" else (f"`{jar_set.fetch_command}` fetches them",)
    for line in (str(found.folder), *found.faults, *fix):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
