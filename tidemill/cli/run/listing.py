"""`tidemill list`: the streams, what they read and what they write."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import print_report
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report

if TYPE_CHECKING:
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Reads", lambda row: "\n".join(source["reads"] for source in row["sources"])),
    Column("Writes", lambda row: "\n".join(sink["kind"] for sink in row["sinks"])),
)


@app.command("list")
@target_flags
def show(flags: StreamFlags) -> None:
    """List streams, what they read and what they write, in dependency order.

    Only definitions and settings are read.

    Exit status: 0, or 2 if the settings or definitions are wrong.
    """
    target, streams = flags.select()
    summary = f"{pluralize(len(streams), 'stream')}, target {target.name}, lake {target.lake.uri}"
    items = [_item(stream, target) for stream in streams]
    report = Report(items=items, columns=_COLUMNS, lines=(summary,))
    print_report(report, as_json=flags.as_json, target=target.name)


def _item(stream: "Stream", target: "ResolvedTarget") -> dict[str, Any]:
    return {
        "stream": str(stream.name),
        "description": stream.description,
        "sources": [
            {
                "name": name,
                "reads": source.describe(),
                "streaming": source.streaming,
                "upstream": None if source.upstream is None else str(source.upstream),
                "binding": _binding(source, target),
            }
            for name, source in stream.sources.items()
        ],
        "sinks": [
            {
                "name": sink.name,
                "kind": type(sink).__name__,
                "delivery": sink.delivery,
                "table": str(target.lake.table(stream.name, sink.name)) if sink in stream.tables else None,
            }
            for sink in stream.sinks
        ],
        "owners": list(stream.owners),
        "tags": dict(stream.tags),
        "declared_at": stream.declared_at,
    }


def _binding(source: "Source", target: "ResolvedTarget") -> str | None:
    """Return the folder or topic that a feed is bound to; None for other sources and for unbound feeds."""
    from tidemill.errors import ConfigurationError

    if source.feed_name is None:
        return None
    try:
        return str(target.binding(source.feed_name))
    except ConfigurationError:
        return None
