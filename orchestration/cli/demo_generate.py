"""`tidemill demo generate`: ad events as files or in Kafka."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.options import print_json
from pipelines.streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from pipelines.ads.generate import Amounts


def generate(
    *,
    events: Annotated[int, typer.Option(help="How many events, one record each.")] = 50_000,
    seed: Annotated[int, typer.Option(help="Another seed gives other events.")] = 7,
    out: Annotated[
        Path | None, typer.Option(help="The landing folder: files go to OUT/<feed>/.", file_okay=False)
    ] = None,
    files: Annotated[int, typer.Option(help="With --out: files per feed.")] = 10,
    kafka: Annotated[
        str | None, typer.Option(metavar="BOOTSTRAP", help="Brokers to send to instead, as host:port.")
    ] = None,
    start: Annotated[
        int, typer.Option(help="Continue after so many events; a few impressions then come days late.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the amounts for programs.")] = False,
) -> None:
    """Write the demo's ad events as files, or send them to Kafka, and print what they are.

    Raises:
        ConfigurationError: neither or both of --out and --kafka, a number out of range, or files that are
            there already.
        TransientError: the brokers do not answer.
    """
    from pipelines.ads.generate import generate as write_files
    from pipelines.ads.generate import produce

    if out is not None and kafka is None:
        amounts = write_files(out=out, events=events, seed=seed, files=files, start=start)
    elif kafka is not None and out is None:
        amounts = produce(bootstrap=kafka, events=events, seed=seed, start=start)
    else:
        raise ConfigurationError("demo generate: give --out DIR or --kafka BOOTSTRAP, one of the two.")
    if as_json:
        print_json(**as_document(amounts))
    else:
        _show(amounts, str(out or kafka))


def as_document(amounts: "Amounts") -> dict[str, object]:
    """Amounts as `demo generate --json` prints them."""
    feeds = {feed: {"records": of_feed.records, **asdict(of_feed)} for feed, of_feed in amounts.feeds.items()}
    return {
        "seed": amounts.seed,
        "start": amounts.start,
        "next_start": amounts.next_start,
        "events": amounts.events,
        "records": amounts.records,
        "feeds": feeds,
    }


def _show(amounts: "Amounts", location: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from pipelines.ads.generate import FeedAmounts

    table = Table("kind", title=f"{amounts.records:,} records in {location}", title_justify="left")
    for feed in amounts.feeds:
        table.add_column(feed, justify="right")
    for kind in ("records", *(field.name for field in fields(FeedAmounts))):
        counts = (getattr(feed, kind) for feed in amounts.feeds.values())
        table.add_row(
            kind.replace("_", " "), *(f"{count:,}" for count in counts), end_section=kind == "records"
        )
    console = Console()
    console.print(table)
    console.print(f"Continue with --start {amounts.next_start}.")
