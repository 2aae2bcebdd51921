"""`tidemill status`: what waits, what runs and what is wrong, without starting Spark or Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

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
    from pipelines.streaming.backlog import Backlog
    from pipelines.streaming.errors import TidemillError
    from pipelines.streaming.records.manifest import Manifest
    from pipelines.streaming.run.plan import Plan
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

State = Literal["never_run", "idle", "behind", "running", "failed", "corrupt"]

app = typer.Typer()

_COLOURS: Mapping[State, str] = {
    "never_run": "cyan",
    "idle": "bright_black",
    "behind": "yellow",
    "running": "green",
    "failed": "red",
    "corrupt": "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What one stream is doing.

    Attributes:
        stream: Its full name.
        state: `corrupt`: its checkpoint, or its table, is not what the next run needs. `failed`: its last run
            failed, or a source of it cannot be read now. `behind`: the next run has something to do.
        backlog: What waits, by source; None where a source could not be looked at.
        watermark_ms: The watermark for the next batch, milliseconds since the epoch; None without one.
        last_batch: The last committed batch.
        last_run_at: When the last run that did anything ended, ISO-8601 UTC.
        generation: The generation of its checkpoint.
        state_rows: Rows in state after the last batch.
        reasons: Why it is in that state, for people.
    """

    stream: str
    state: State
    backlog: "Mapping[str, Backlog] | None"
    watermark_ms: int | None = None
    last_batch: int | None = None
    last_run_at: str | None = None
    generation: int | None = None
    state_rows: int | None = None
    reasons: Sequence[str] = ()


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
    resolved, streams = target_and_streams(
        selection, exclude, target=target, lake=lake, landing=landing, kafka=kafka
    )
    found = [status_of(stream, resolved) for stream in streams]
    if as_json:
        print_json(target=resolved.name, streams=[as_document(each) for each in found])
    _print(found, resolved, reasons_only=as_json)
    if any(each.state in ("failed", "corrupt") for each in found):
        raise typer.Exit(WRONG)


def status_of(stream: "Stream", target: "ResolvedTarget") -> Status:
    """Looks at one stream; whatever is wrong with it becomes its state."""
    from pipelines.streaming.errors import TidemillError
    from pipelines.streaming.records.lease import holder_of
    from pipelines.streaming.records.manifest import read_manifest
    from pipelines.streaming.run.plan import plan

    found = Status(stream=str(stream.name), state="never_run", backlog=None)
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(target.lake, stream.name)
        if manifest is not None:
            found = _recorded(found, stream, target, manifest)
        planned = plan(stream, target)
        found = replace(found, backlog=planned.backlog)
        state, reasons = _judged(manifest, planned)
    except TidemillError as error:
        state, reasons = _faulty(manifest, error), [str(error)]
    holder = holder_of(target.lake.control(stream.name) / "lease")
    if holder is not None:  # and a checkpoint that is written to right now may look damaged for a moment
        state, reasons = "running", [str(holder)]
    return replace(found, state=state, reasons=reasons)


def _recorded(found: Status, stream: "Stream", target: "ResolvedTarget", manifest: "Manifest") -> Status:
    """With what the manifest, the ledger and the end of the checkpoint say."""
    from pipelines.streaming.run.tail import tail_of

    commit = tail_of(target.lake.checkpoint(stream.name, manifest.active.number)).latest_commit
    return replace(
        found,
        generation=manifest.active.number,
        last_run_at=manifest.last_run.get("ended_at"),
        state_rows=_state_rows(stream, target, manifest),
        last_batch=None if commit is None else commit.batch_id,
        watermark_ms=None if commit is None else commit.next_watermark_ms or None,
    )


def _judged(manifest: "Manifest | None", planned: "Plan") -> tuple[State, Sequence[str]]:
    """The state of a stream that could be looked at and that nobody works on."""
    if manifest is not None and manifest.last_run.get("outcome") == "failed":
        return "failed", [manifest.last_run.get("error") or "its last run failed"]
    if manifest is None or manifest.active.query_id is None:
        return "never_run", ()
    return ("idle" if planned.idle else "behind"), planned.reasons


def _faulty(manifest: "Manifest | None", error: "TidemillError") -> State:
    """The state of a stream that could not be looked at."""
    from pipelines.streaming.errors import CheckpointError

    if isinstance(error, CheckpointError):
        return "corrupt"
    return "never_run" if manifest is None else "failed"


def _state_rows(stream: "Stream", target: "ResolvedTarget", manifest: "Manifest") -> int | None:
    """Rows in state after the newest batch of the last run that wrote lines."""
    from pipelines.streaming.records.ledger import lines

    folder = target.lake.ledger(stream.name)
    last = manifest.last_run.get("run_id")
    if last is None or not (folder / f"{last}.jsonl").exists():
        files = sorted(folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
        last = files[-1].stem if files else None
    if last is None:
        return None
    newest = max(lines(target.lake, stream.name, last), key=lambda line: line.batch_id, default=None)
    return None if newest is None else newest.state_rows


def as_document(found: Status) -> dict[str, Any]:
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


def _watermark(found: Status) -> str | None:
    from pipelines.streaming.records.ledger import iso

    return None if found.watermark_ms is None else iso(found.watermark_ms)


def _short(moment: str | None) -> str | None:
    """A moment of ISO-8601 UTC to the minute, for people."""
    return None if moment is None else moment[:16].replace("T", " ")


def _print(found: Sequence[Status], target: "ResolvedTarget", *, reasons_only: bool) -> None:
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
