"""`tidemill status`: what waits, what runs and what is wrong, without starting Spark or Dagster."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from orchestration.cli.options import (
    WRONG,
    AsJson,
    Exclude,
    Kafka,
    LakeFolder,
    Landing,
    Selection,
    TargetName,
    print_json,
    table_console,
    target_and_streams,
)

if TYPE_CHECKING:
    from pipelines.streaming.run.status import State, Status
    from resources.target.resolve import ResolvedTarget

app = typer.Typer()

_COLOURS: "Mapping[State, str]" = {
    "never_run": "cyan",
    "idle": "bright_black",
    "behind": "yellow",
    "running": "green",
    "failed": "red",
    "corrupt": "red",
}


@app.command()
def status(
    selection: Selection = None,
    *,
    exclude: Exclude = None,
    target: TargetName = None,
    lake: LakeFolder = None,
    landing: Landing = None,
    kafka: Kafka = None,
    as_json: AsJson = False,
) -> None:
    """What waits, what runs and what is wrong.

    Exit status: 0 fine, 1 a stream failed or is corrupt, 2 nothing could be looked at.
    """
    from pipelines.streaming.run.status import status_of

    resolved, streams = target_and_streams(
        selection, exclude, target=target, lake=lake, landing=landing, kafka=kafka
    )
    found = [status_of(stream, resolved) for stream in streams]
    if as_json:
        print_json(target=resolved.name, streams=[as_document(each) for each in found])
    _print(found, resolved, reasons_only=as_json)
    if any(each.state in ("failed", "corrupt") for each in found):
        raise typer.Exit(WRONG)


def as_document(found: "Status") -> dict[str, Any]:
    """One stream as `status --json` prints it.

    `backlog` is how many files, messages or table versions wait, over all sources that wake the stream; null
    where one could not be looked at.
    """
    return {
        "stream": found.stream,
        "state": found.state,
        "backlog": None if found.backlog is None else sum(each.count for each in found.backlog.values()),
        "watermark": _watermark(found),
        "last_batch": found.last_batch,
        "last_run_at": found.last_run_at,
        "generation": found.generation,
        "state_rows": found.state_rows,
    }


def _watermark(found: "Status") -> str | None:
    from pipelines.streaming.run.batch_record import iso

    return None if found.watermark_ms is None else iso(found.watermark_ms)


def _short(moment: str | None) -> str | None:
    """A moment of ISO-8601 UTC to the minute, for people."""
    return None if moment is None else moment[:16].replace("T", " ")


def _print(found: "Sequence[Status]", target: "ResolvedTarget", *, reasons_only: bool) -> None:
    """A table on stdout, and on stderr what is wrong."""
    from rich.markup import escape
    from rich.table import Table

    if not reasons_only:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("Stream", "State", "Waiting", "Watermark", "Last run", "Batch", "State rows"):
            right = column in ("Batch", "State rows")
            table.add_column(
                column, overflow="fold", justify="right" if right else "left", no_wrap=column != "Waiting"
            )
        for each in found:
            waiting = "?" if each.backlog is None else ", ".join(str(b) for b in each.backlog.values() if b)
            cells = (
                waiting,
                _short(_watermark(each)),
                _short(each.last_run_at),
                each.last_batch,
                None if each.state_rows is None else f"{each.state_rows:,}",
            )
            table.add_row(
                escape(each.stream),
                f"[{_COLOURS[each.state]}]{each.state}[/]",
                *("" if cell is None else str(cell) for cell in cells),
            )
        console = table_console()
        console.print(table)
        console.print(f"target {target.name}, lake {target.lake.root}, times in UTC", markup=False)
    for each in found:
        if each.state in ("failed", "corrupt") or each.backlog is None:
            # A recorded error begins with the stream's name, another reason does not.
            why = " ".join(each.reasons).removeprefix(f"{each.stream}: ")
            typer.secho(f"{each.stream}: {why}", err=True, fg=typer.colors.RED)
