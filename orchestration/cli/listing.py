"""`tidemill list`: the streams, what they read and what they write, in the order in which they run."""

from typing import TYPE_CHECKING, Any

import typer

from orchestration.cli.options import (
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
    from pipelines.streaming.sources import Source
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

app = typer.Typer()


@app.command("list")
def show(
    selection: Selection = None,
    *,
    exclude: Exclude = None,
    target: TargetName = None,
    lake: LakeFolder = None,
    landing: Landing = None,
    kafka: Kafka = None,
    as_json: AsJson = False,
) -> None:
    """The selected streams, what they read and what they write; nothing is looked up but the definitions."""
    resolved, streams = target_and_streams(
        selection, exclude, target=target, lake=lake, landing=landing, kafka=kafka
    )
    if as_json:
        print_json(target=resolved.name, streams=[as_document(stream, resolved) for stream in streams])
    else:
        _print(streams, resolved)


def as_document(stream: "Stream", target: "ResolvedTarget") -> dict[str, Any]:
    """One stream as `list --json` prints it."""
    return {
        "stream": str(stream.name),
        "description": stream.description,
        "sources": [
            {
                "name": name,
                "reads": source.describe(),
                "streaming": source.streaming,
                "upstream": None if source.upstream is None else str(source.upstream),
                "place": _place(source, target),
            }
            for name, source in stream.sources.items()
        ],
        "sinks": [
            {
                "name": sink.name,
                "kind": type(sink).__name__,
                "table": str(target.lake.table(stream.name, sink.name)),
            }
            for sink in stream.sinks
        ],
        "owners": list(stream.owners),
        "tags": dict(stream.tags),
        "declared_at": stream.declared_at,
    }


def _place(source: "Source", target: "ResolvedTarget") -> str | None:
    """Where the target binds a feed; None for another source, and for a feed that it does not bind."""
    from pipelines.streaming.errors import ConfigurationError
    from pipelines.streaming.sources import Feed

    if not isinstance(source, Feed):
        return None
    try:
        return str(target.binding(source.name))
    except ConfigurationError:
        return None


def _print(streams: "tuple[Stream, ...]", target: "ResolvedTarget") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in ("Stream", "Reads", "Writes"):
        table.add_column(column, overflow="fold", no_wrap=column == "Stream")
    for stream in streams:
        reads = "\n".join(source.describe() for source in stream.sources.values())
        writes = "\n".join(type(sink).__name__ for sink in stream.sinks)
        table.add_row(escape(str(stream.name)), escape(reads), escape(writes))
    console = table_console()
    console.print(table)
    console.print(f"{len(streams)} streams, target {target.name}, lake {target.lake.root}", markup=False)
