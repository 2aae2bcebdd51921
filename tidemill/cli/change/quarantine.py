"""`tidemill quarantine`: the records that feeds refused, and their replay through today's schema and rules."""

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.changes import ChangesFlags, apply_plans
from tidemill.cli.shared.confirmation import spark_of
from tidemill.cli.shared.output import print_json, print_report
from tidemill.cli.shared.target_flags import StreamFlags, all_streams, target_flags
from tidemill.connectors.feed import feed_of
from tidemill.text.report import Column, Report, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.operations import Quarantine, Replay

app = typer.Typer(
    help="Show the records that feeds refused, and replay them.", no_args_is_help=True, add_completion=False
)


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Records", "records", right=True),
    Column("Newest", "newest", whole=True),
    Column("Rules", lambda row: ", ".join(f"{rule} {count:,}" for rule, count in row["rules"].items())),
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
    items = [_item(quarantined(stream, target, limit=limit)) for stream in with_feed(streams)]
    report = Report(items=items, columns=_COLUMNS, lines=tuple(_examples(items)))
    print_report(report, as_json=flags.as_json, target=target.name)


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


def _item(quarantine: "Quarantine") -> dict[str, Any]:
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


def _examples(items: "Sequence[Row]") -> "Iterator[str]":
    from tidemill.checks.origins import origin_text

    for item in items:
        for record in item["examples"]:
            where = f"{origin_text(record['origin'])}, batch {record['batch_id']}"
            yield f"\n{item['stream']}: {', '.join(record['violated'])} ({where})"
            yield f"  {record['raw']}"


def _print_plans(plans: "Sequence[Replay]") -> None:
    for plan in plans:
        typer.echo(f"{plan.stream}: {plan.what}")
        for effect in plan.effects:
            typer.echo(f"  - {effect}")
