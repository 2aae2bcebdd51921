"""`tidemill init`: write a project."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from tidemill.cli.machine.demo_input import add_files
from tidemill.cli.project.scaffold import EXAMPLE, write_project
from tidemill.cli.shared.output import output_console
from tidemill.text.plurals import pluralize

EVENTS = 2_000
"""The events of the example that a new project has: a run over them takes a minute."""

app = typer.Typer(add_completion=False)


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of the project; created if it is missing.")
    ],
    *,
    pipeline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of its pipeline. Default: the name of the folder."),
    ] = None,
    example: Annotated[
        Literal["ads"] | None, typer.Option(help="Also add this example, and some events for it.")
    ] = None,
) -> None:
    """Write a project: one pipeline with a feed, a table and its test, and a code location for Dagster.

    Nothing is overwritten. Exit status: 0, or 2 if a file exists or the name is not allowed.
    """
    name = folder.resolve().name
    snake = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    pipeline = pipeline or snake
    written = write_project(
        folder, name=(snake or pipeline).replace("_", "-"), pipeline=pipeline, example=example == EXAMPLE
    )
    if example is not None:
        add_files(folder, folder / ".tidemill" / "landing", events=EVENTS)
    output_console().print(
        f"Wrote {pluralize(len(written), 'file')} to [bold]{folder}[/].\n\n"
        f"  cd {folder}\n"
        "  tidemill run      run the streams that have something to do\n"
        "  pytest            run the tests\n"
        "  dagster dev       see the assets on http://127.0.0.1:3000\n\n"
        f"The first stream is in pipelines/{pipeline}/events.py. README.md names the next steps.",
        soft_wrap=True,
    )
