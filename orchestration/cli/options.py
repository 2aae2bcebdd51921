"""What every command shares: the target's flags, output for people and for programs, exit status."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

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


def table_console() -> "Console":
    """Standard output for tables: in a narrower terminal, or a pipe, lines run on instead of breaking words."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    return console


def print_json(target: str, **content: Any) -> None:
    """One JSON object on stdout: the schema's version, the target, and the command's content."""
    typer.echo(json.dumps({"schema_version": SCHEMA_VERSION, "target": target, **content}))
