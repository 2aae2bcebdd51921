"""`tidemill quarantine`: the records that feeds refused, and their replay through today's schema and rules."""

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.changes import ChangesFlags, apply_plans
from tidemill.cli.shared.confirmation import spark_of
from tidemill.cli.shared.output import STREAMS_WIDTH, new_table, output_console, print_json
from tidemill.cli.shared.target_flags import StreamFlags, all_streams, target_flags
from tidemill.connectors.feed import feed_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.operations import Quarantine, Replay

app = typer.Typer(
    help="Show the records that feeds refused, and replay them.", no_args_is_help=True, add_completion=False
)


@app.command()
@target_flags
def show(
    *,
    limit: Annotated[int, typer.Option(min=0, help="Examples per stream, the newest ones.")] = 5,
    flags: StreamFlags,
) -> None:
    """Show the records in quarantine: how many by rule, the newest, and examples, without starting Spark.

    Exit status: 0, 2 if the selection has no stream that reads a feed.
    """
    from tidemill.operations import quarantined

    target, streams = flags.select()
    quarantines = [quarantined(stream, target, limit=limit) for stream in with_feed(streams)]
    if flags.as_json:
        print_json(target=target.name, streams=list(map(as_document, quarantines)))
        return
    _print(quarantines)


@app.command()
@target_flags
def replay(flags: ChangesFlags) -> None:
    """Move the records in quarantine that pass today's schema and rules into the tables of their streams, each once.

    The others stay, with the rules that they violate today. The same command finishes a replay that was interrupted.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle

    target, streams = flags.select()
    streams = with_feed(streams)
    readers = all_streams(target)
    with spark_of(target) as engine:
        replays, changed = apply_plans(
            partial(lifecycle.replay_quarantine, target=target, engine=engine, readers=readers),
            streams,
            flags,
            show=_print_plans,
            planning="judging the records ...",
            applying="moving records ...",
        )
    if flags.as_json:
        print_json(target=target.name, changed=changed, streams=list(map(replay_document, replays)))
    elif changed:
        typer.echo("Done.")


def with_feed(streams: "Sequence[Stream]") -> "tuple[Stream, ...]":
    """Return the streams that read a feed, and so have a quarantine.

    Raises:
        ConfigurationError: There is none among them.
    """
    from tidemill.errors import ConfigurationError

    reading = tuple(stream for stream in streams if feed_of(stream) is not None)
    if not reading:
        raise ConfigurationError(
            "The selection has no stream that reads a feed, and no other stream has a quarantine.",
            fix="Select a stream that reads a feed; tidemill list shows what each stream reads.",
        )
    return reading


def as_document(quarantine: "Quarantine") -> dict[str, Any]:
    """Return one stream as `quarantine show --json` prints it."""
    return {
        "stream": str(quarantine.stream),
        "table": str(quarantine.table),
        "records": quarantine.records,
        "rules": dict(quarantine.by_rule),
        "newest": _iso(quarantine.newest),
        "examples": [
            {
                **asdict(record),
                "violated": list(record.violated),
                "origin": {
                    name: _iso(value) if isinstance(value, datetime) else value
                    for name, value in record.origin.items()
                },
                "quarantined_at": _iso(record.quarantined_at),
            }
            for record in quarantine.examples
        ],
    }


def replay_document(replay: "Replay") -> dict[str, Any]:
    """Return one stream as `quarantine replay --json` prints it."""
    verdict = replay.verdict
    return {
        "stream": str(replay.stream),
        "records": verdict.records,
        "moved": verdict.passed,
        "kept": verdict.stay,
        "changed_rules": verdict.changed,
        "rules": dict(verdict.by_rule),
        "operation": replay.operation,
        "what": replay.what,
        "effects": list(replay.effects),
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _print(quarantines: "Sequence[Quarantine]") -> None:
    from rich.markup import escape

    from tidemill.checks.origins import origin_text

    console = output_console(STREAMS_WIDTH)
    table = new_table(
        "Stream", "Records", "Newest", "Rules", right=("Records",), no_wrap=("Stream", "Newest")
    )
    for quarantine in quarantines:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in quarantine.by_rule.items())
        table.add_row(
            escape(str(quarantine.stream)),
            f"{quarantine.records:,}",
            _iso(quarantine.newest) or "",
            escape(rules),
        )
    console.print(table)
    for quarantine in quarantines:
        for record in quarantine.examples:
            where = f"{origin_text(record.origin)}, batch {record.batch_id}"
            console.print(f"\n{quarantine.stream}: {', '.join(record.violated)} ({where})", markup=False)
            console.print(f"  {record.raw}", markup=False)


def _print_plans(plans: "Sequence[Replay]") -> None:
    for plan in plans:
        typer.echo(f"{plan.stream}: {plan.what}")
        for effect in plan.effects:
            typer.echo(f"  - {effect}")
