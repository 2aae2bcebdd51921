"""`tidemill status`: new data, running streams and problems, without starting Spark or Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import typer

from orchestration.cli.output import (
    EXIT_PROBLEM,
    STREAMS_WIDTH,
    new_table,
    output_console,
    print_json,
    print_problem,
)
from orchestration.cli.target_flags import StreamFlags, target_flags

if TYPE_CHECKING:
    from pipelines.streaming.backlog import Backlog
    from pipelines.streaming.errors import TidemillError
    from pipelines.streaming.records.manifest import Manifest
    from pipelines.streaming.run.plan import Plan
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

State = Literal["never_run", "idle", "behind", "running", "failed", "corrupt"]

app = typer.Typer(add_completion=False)

_COLORS: Mapping[State, str] = {
    "never_run": "cyan",
    "idle": "bright_black",
    "behind": "yellow",
    "running": "green",
    "failed": "red",
    "corrupt": "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one stream.

    Attributes:
        stream: Its full name.
        state: `corrupt`: its checkpoint or its table is not what the next run needs. `failed`: its last run
            failed, or one of its sources cannot be read now. `behind`: the next run has something to do.
        backlog: The unread data by source; None where a source could not be read.
        watermark_ms: The watermark for the next batch, milliseconds since the epoch; None without one.
        last_batch: The last committed batch.
        last_run_at: When the last run that did anything ended, ISO-8601 UTC.
        generation: The generation of its checkpoint.
        state_rows: Rows in state after the last batch.
        reasons: Why it has that state, for people.
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
@target_flags
def status(flags: StreamFlags) -> None:
    """Show which streams have new data, which are running, and what is wrong.

    Neither Spark nor Dagster is started.

    Exit status: 0, 1 if a stream failed or is corrupt, 2 if the settings or definitions are wrong.
    """
    target, streams = flags.select()
    statuses = [status_of(stream, target) for stream in streams]
    if flags.as_json:
        print_json(target=target.name, streams=[as_document(status) for status in statuses])
    else:
        _print(statuses, target)
    _print_problems(statuses)
    if any(status.state in ("failed", "corrupt") for status in statuses):
        raise typer.Exit(EXIT_PROBLEM)


def status_of(stream: "Stream", target: "ResolvedTarget") -> Status:
    """Return the status of one stream; a problem with it becomes its state."""
    from pipelines.streaming.errors import TidemillError
    from pipelines.streaming.records.lease import holder_of
    from pipelines.streaming.records.manifest import read_manifest
    from pipelines.streaming.run.plan import plan

    status = Status(stream=str(stream.name), state="never_run", backlog=None)
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(target.lake, stream.name)
        if manifest is not None:
            status = _recorded(status, stream, target, manifest)
        planned = plan(stream, target)
        status = replace(status, backlog=planned.backlog)
        state, reasons = _judged(manifest, planned)
    except TidemillError as error:
        state, reasons = _faulty(manifest, error), [str(error)]
    holder = holder_of(target.lake.control(stream.name) / "lease")
    if holder is not None:  # a checkpoint that is being written may look damaged for a moment
        state, reasons = "running", [str(holder)]
    return replace(status, state=state, reasons=reasons)


def _recorded(status: Status, stream: "Stream", target: "ResolvedTarget", manifest: "Manifest") -> Status:
    """Return the status with the facts of the manifest, the ledger and the end of the checkpoint."""
    from pipelines.streaming.run.tail import tail_of

    commit = tail_of(target.lake.checkpoint(stream.name, manifest.active.number)).latest_commit
    return replace(
        status,
        generation=manifest.active.number,
        last_run_at=manifest.last_run.get("ended_at"),
        state_rows=_state_rows(stream, target, manifest),
        last_batch=None if commit is None else commit.batch_id,
        watermark_ms=None if commit is None else commit.next_watermark_ms or None,
    )


def _judged(manifest: "Manifest | None", planned: "Plan") -> tuple[State, Sequence[str]]:
    """Return the state of a stream that could be planned and that no run works on."""
    if manifest is not None and manifest.last_run.get("outcome") == "failed":
        return "failed", [manifest.last_run.get("error") or "its last run failed"]
    if manifest is None or manifest.active.query_id is None:
        return "never_run", ()
    return ("idle" if planned.idle else "behind"), planned.reasons


def _faulty(manifest: "Manifest | None", error: "TidemillError") -> State:
    """Return the state of a stream that could not be planned."""
    from pipelines.streaming.errors import CheckpointError

    if isinstance(error, CheckpointError):
        return "corrupt"
    return "never_run" if manifest is None else "failed"


def _state_rows(stream: "Stream", target: "ResolvedTarget", manifest: "Manifest") -> int | None:
    """Return the rows in state after the newest batch of the last run that wrote lines."""
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


def as_document(status: Status) -> dict[str, Any]:
    """Return one stream as `status --json` prints it.

    `backlog` counts the unread files, messages or table versions of all sources that trigger the stream; it is
    null where a source could not be read.
    """
    waiting = None if status.backlog is None else sum(backlog.count for backlog in status.backlog.values())
    return {
        "stream": status.stream,
        "state": status.state,
        "backlog": waiting,
        "watermark": _watermark(status),
        "last_batch": status.last_batch,
        "last_run_at": status.last_run_at,
        "generation": status.generation,
        "state_rows": status.state_rows,
    }


def _watermark(status: Status) -> str | None:
    from pipelines.streaming.records.ledger import iso

    return None if status.watermark_ms is None else iso(status.watermark_ms)


def _print(statuses: Sequence[Status], target: "ResolvedTarget") -> None:
    """Print the table for people."""
    from rich.markup import escape

    columns = ("Stream", "State", "Waiting", "Watermark", "Last run", "Batch", "State rows")
    table = new_table(
        *columns,
        right=("Batch", "State rows"),
        no_wrap=tuple(column for column in columns if column != "Waiting"),
    )
    for status in statuses:
        table.add_row(
            escape(status.stream), f"[{_COLORS[status.state]}]{status.state}[/]", *map(escape, _cells(status))
        )
    console = output_console(STREAMS_WIDTH)
    console.print(table)
    console.print(f"target {target.name}, lake {target.lake.root}, times in UTC", markup=False)


def _cells(status: Status) -> tuple[str, ...]:
    """Return the cells of a stream after its name and state."""
    backlogs = (
        None if status.backlog is None else [str(backlog) for backlog in status.backlog.values() if backlog]
    )
    return (
        "?" if backlogs is None else ", ".join(backlogs),
        _to_the_minute(_watermark(status)),
        _to_the_minute(status.last_run_at),
        "" if status.last_batch is None else str(status.last_batch),
        "" if status.state_rows is None else f"{status.state_rows:,}",
    )


def _to_the_minute(time: str | None) -> str:
    """Return a time of ISO-8601 in UTC as people read it."""
    return "" if time is None else time[:16].replace("T", " ")


def _print_problems(statuses: Sequence[Status]) -> None:
    """Print on standard error why streams failed, are corrupt or could not be read."""
    for status in statuses:
        if status.state in ("failed", "corrupt") or status.backlog is None:
            # A recorded error begins with the stream's name, other reasons do not.
            reasons = " ".join(status.reasons).removeprefix(f"{status.stream}: ")
            print_problem(f"{status.stream}: {reasons}")
