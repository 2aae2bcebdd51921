"""What the commands share: flags and what they mean, output for people and for programs, exit status."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

SCHEMA_VERSION = 1
TABLE_WIDTH = 118  # columns: what a table with the names of streams needs to be read

# It looked and something is wrong; it could not look; it was interrupted (docs/command.md).
WRONG, COULD_NOT_LOOK, INTERRUPTED = 1, 2, 130

Selection = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SELECTION]...",
        help="ads, ads/impressions, ads/impressions+ (and what follows), +ads/attribution (and what it needs). "
        "Default: everything.",
        show_default=False,
    ),
]
Exclude = Annotated[list[str] | None, typer.Option(help="Leave these out; written like SELECTION.")]
TargetName = Annotated[
    str | None, typer.Option("--target", "-t", help="A target of tidemill.toml. Default: TIDEMILL_TARGET.")
]
LakeFolder = Annotated[Path | None, typer.Option("--lake", help="Another lake than the target's.")]
Landing = Annotated[
    Path | None, typer.Option("--landing", help="Every feed is the folder DIR/<feed>/.", metavar="DIR")
]
Kafka = Annotated[
    str | None,
    typer.Option("--kafka", help="Every feed is the topic of its name there.", metavar="BOOTSTRAP"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def target_and_streams(
    selection: "Sequence[str] | None",
    exclude: "Sequence[str] | None" = None,
    *,
    target: str | None = None,
    lake: Path | None = None,
    landing: Path | None = None,
    kafka: str | None = None,
) -> "tuple[ResolvedTarget, tuple[Stream, ...]]":
    """The target that the flags mean, and the selected streams of its pipelines, in dependency order.

    Raises:
        ConfigurationError: no such target, a fault in its settings, or a selection that matches no stream.
        DefinitionError: a pipeline declares a stream wrongly.
    """
    from pipelines.streaming.selection import select
    from resources.target.resolve import resolve

    resolved = resolve(target, lake=lake, landing=landing, kafka=kafka)
    loaded = resolved.pipelines()
    if loaded.pipelines:  # otherwise the error of the first one is raised
        for failure in loaded.failures:
            typer.secho(f"tidemill: warning: {failure.error}", err=True, fg=typer.colors.YELLOW)
    return resolved, select(loaded.streams(), selection or [], exclude or [])


def table_console() -> "Console":
    """Standard output for tables: in a narrower terminal, or a pipe, lines run on instead of breaking words."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    return console


def print_json(**content: Any) -> None:
    """One JSON object on stdout: the schema's version, and the content."""
    typer.echo(json.dumps({"schema_version": SCHEMA_VERSION, **content}))
