"""`tidemill engine`: the warm server of a target, which runs start by themselves when they need it."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.output import EXIT_NOT_DONE, EXIT_PROBLEM, print_json, print_problem, print_report
from tidemill.cli.shared.target_flags import TargetFlags, target_flags
from tidemill.text.plurals import pluralize
from tidemill.text.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.engines.warm.wire import ServerRecord
    from tidemill.target.resolve import ResolvedTarget

DETACH_SECONDS = 5.0

app = typer.Typer(
    help="Start, show and stop the warm server of a target. Runs start it by themselves when they need it.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
@target_flags
def start(flags: TargetFlags) -> None:
    """Start the server of the target, unless it runs with the target's settings already.

    Exit status: 0 if it runs, 1 if it does not start, 2 if the target's mode is not warm, or runs use a server with
    other settings.
    """
    from tidemill.engines.warm.attachment import attach
    from tidemill.errors import ConfigurationError

    target = flags.resolve()
    if target.spark.mode != "warm":
        raise ConfigurationError(
            f"The Spark of target {target.name!r} has the mode {target.spark.mode!r}, and only 'warm' has a server.",
            fix=f'Write mode = "warm" into [targets.{target.name}.spark] of tidemill.toml.',
            code="spark-mode-not-warm",
        )
    attachment = attach(target.spark, aborted=lambda: False)
    attachment.close()
    attachment.ended.wait(DETACH_SECONDS)  # until then the server shows this process as attached
    _report(target, as_json=flags.as_json)


@app.command()
@target_flags
def status(flags: TargetFlags) -> None:
    """Show the server of the target and the processes that are attached to it.

    Exit status: 0 if it answers or there is none, 1 if it does not answer, 2 if the settings cannot be resolved.
    """
    if not _report(flags.resolve(), as_json=flags.as_json):
        raise typer.Exit(EXIT_PROBLEM)


@app.command()
@target_flags
def stop(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, even if runs are attached.")] = False,
    flags: TargetFlags,
) -> None:
    """Stop the server of the target. If runs are attached, their next runs repeat the interrupted batches.

    Exit status: 0 if there is no server any more, 1 if it does not end or the answer is no, 2 if runs are attached
    and --yes is missing.
    """
    from tidemill.engines.warm.stop import stop as stop_server
    from tidemill.engines.warm.wire import running

    target = flags.resolve()
    home = target.server
    record = running(home)
    if record is not None:
        clients = stop_server(home, record, force=yes)
        if clients:
            _ask_about(clients, as_json=flags.as_json)
            stop_server(home, record, force=True)
    if flags.as_json:
        print_json(target=target.name, stopped=record is not None)
    elif record is None:
        typer.echo(f"Target {target.name} has no server.")
    else:
        typer.echo(f"Stopped the server of target {target.name} (process {record.pid}).")


@app.command()
@target_flags
def logs(
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The number of lines.")] = 100,
    flags: TargetFlags,
) -> None:
    """Print the end of the log of the target's server, or of the one that ran last.

    Exit status: 0, or 1 if no server has run yet.
    """
    target = flags.resolve()
    log = target.server.log
    content = (
        log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:] if log.is_file() else None
    )
    if flags.as_json:
        print_json(target=target.name, log=str(log), lines=content or [])
    elif content is not None:
        for line in content:
            typer.echo(line)
    if content is None:
        print_problem(f"No server of target {target.name} has run yet: there is no {log}.")
        raise typer.Exit(EXIT_PROBLEM)


def _ask_about(clients: list[dict[str, Any]], *, as_json: bool) -> None:
    """Ask whether to stop a server that processes are attached to."""
    processes = ", ".join(f"process {client['pid']} since {client['since']}" for client in clients)
    print_problem(f"Attached: {processes}. Their queries are stopped; the next runs continue exactly.")
    if as_json or not sys.stdin.isatty():
        print_problem("Nothing was changed. Fix: wait until they have ended, or give --yes.")
        raise typer.Exit(EXIT_NOT_DONE)
    if not typer.confirm("Stop it?", err=True):
        raise typer.Exit(EXIT_PROBLEM)


def _report(target: "ResolvedTarget", *, as_json: bool) -> bool:
    """Print the server of a target; return whether it answers, or there is none."""
    from tidemill.engines.warm.stop import clients_of
    from tidemill.engines.warm.wire import running

    home = target.server
    record = running(home)
    answer = None if record is None else clients_of(home, record)
    document: dict[str, Any] = {
        "mode": target.spark.mode,
        "running": record is not None,
        "starting": record is None and home.has_server,
        "server": None if record is None else _document(record, answer),
        "folder": str(home.folder),
        "log": str(home.log),
    }
    report = Report(items=[document], key="", lines=tuple(_lines(target, document)))
    print_report(report, as_json=as_json, target=target.name)
    return record is None or answer is not None


def _document(record: "ServerRecord", answer: dict[str, Any] | None) -> dict[str, Any]:
    answer = answer or {}
    return {
        "pid": record.pid,
        "jvm_pid": record.jvm_pid,
        "port": record.spark_port,
        "started_at": record.started_at,
        "answers": bool(answer),
        "clients": answer.get("clients", []),
        "idle_seconds": answer.get("idle_seconds"),
        "idle_timeout_seconds": answer.get("idle_timeout_seconds"),
        "memory": record.settings.get("spark.driver.memory"),
        "pyspark": record.settings.get("pyspark"),
    }


def _lines(target: "ResolvedTarget", document: dict[str, Any]) -> "Iterator[str]":
    server = document["server"]
    if server is None:
        state = "is starting" if document["starting"] else "is not running"
        hint = "" if target.spark.mode == "warm" else f" (its mode is {target.spark.mode})"
        yield f"The server of target {target.name} {state}{hint}."
        return
    yield (
        f"The server of target {target.name} runs since {server['started_at']}: process {server['pid']}, "
        f"JVM {server['jvm_pid']} with {server['memory']}, port {server['port']}."
    )
    if not server["answers"]:
        yield f"  It does not answer. Fix: tidemill engine stop --target {target.name}"
    elif server["clients"]:
        yield f"  {pluralize(len(server['clients']), 'process')} attached:"
        yield from (f"    process {client['pid']} since {client['since']}" for client in server["clients"])
    else:
        left = server["idle_timeout_seconds"] - server["idle_seconds"]
        yield f"  Nobody is attached. It ends in {max(0, left):.0f} s."
    yield f"  log: {document['log']}"
