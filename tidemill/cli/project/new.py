"""`tidemill new`: add a pipeline or a stream to a project."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.project.scaffold import write_pipeline, write_stream
from tidemill.cli.shared.output import output_console
from tidemill.target.config import find_config
from tidemill.text.names import StreamName

app = typer.Typer(
    help="Add a pipeline or a stream to this project, with a test. Nothing is overwritten.",
    add_completion=False,
    no_args_is_help=True,
)


@app.command()
def pipeline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline: shop.")],
) -> None:
    """Add a pipeline with one stream and its test, and name it in tidemill.toml.

    Exit status: 0, or 2 if a file exists or the name is not allowed.
    """
    _show(write_pipeline(_config(), name))


@app.command()
def stream(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline and the stream: shop/orders.")],
) -> None:
    """Add a stream that reads a feed, and its test, to a pipeline of this project.

    Exit status: 0, or 2 if a file exists, there is no such pipeline or the name is not allowed.
    """
    _show(write_stream(_config(), StreamName.parse(name)))


def _config() -> Path:
    return find_config(os.environ, Path.cwd())


def _show(written: list[Path]) -> None:
    console = output_console()
    for path in written:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)
