"""`tidemill quarantine`: what the rules of streams refused, and its replay through today's schema and rules."""

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.change.operation import app_of
from tidemill.cli.shared.output import print_report
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.operations.quarantine.quarantine_replay import REPLAY
from tidemill.text.report import Column, Report, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidemill.operations.quarantine.quarantine_view import Quarantine

app = typer.Typer(
    help="Show the records and rows that rules refused, and replay them.",
    no_args_is_help=True,
    add_completion=False,
)


app.add_typer(app_of(REPLAY))

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

    Exit status: 0, 2 if the selection has no stream with a quarantine.
    """
    from tidemill.operations.quarantine.quarantine_view import quarantined, with_quarantine

    target, streams = flags.select()
    items = [_item(quarantined(stream, target, limit=limit)) for stream in with_quarantine(streams, target)]
    report = Report(items=items, columns=_COLUMNS, lines=tuple(_examples(items)))
    print_report(report, as_json=flags.as_json, target=target.name)


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
                "origin": _origin(record.origin),
                "quarantined_at": _iso(record.quarantined_at),
            }
            for record in quarantine.examples
        ],
    }


def _origin(origin: "Mapping[str, Any] | None") -> dict[str, Any] | None:
    if origin is None:
        return None
    return {name: _iso(value) if isinstance(value, datetime) else value for name, value in origin.items()}


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _examples(items: "Sequence[Row]") -> "Iterator[str]":
    from tidemill.checks.origins import origin_text

    for item in items:
        for record in item["examples"]:
            batch, origin = f"batch {record['batch_id']}", record["origin"]
            where = batch if origin is None else f"{origin_text(origin)}, {batch}"
            yield f"\n{item['stream']}: {', '.join(record['violated'])} ({where})"
            yield f"  {record['raw']}"
