"""`tidemill demo generate`: ad events as files or in Kafka. `tidemill demo broker`: a Kafka broker for development."""

import importlib
import json
import sys
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli.project.scaffold import EXAMPLE, example_root
from tidemill.cli.shared.output import new_table, output_console, print_json
from tidemill.cli.shared.target_flags import AsJson
from tidemill.errors import ConfigurationError
from tidemill.text.plurals import pluralize

SEED = 7
FILES = 10


def load_generator(root: Path) -> Any:
    """Import the generator of the example.

    Args:
        root: The folder that has the example's `pipelines/`.
    """
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(f"pipelines.{EXAMPLE}.generate")


def add_files(root: Path, landing: Path, *, events: int) -> Any:
    """Write the events that follow those that this function wrote before, and return their amounts.

    Args:
        root: The folder of a project with the example.
        landing: The landing folder.
        events: The number of events.
    """
    progress = root / ".tidemill" / "demo.json"
    start = json.loads(progress.read_text(encoding="utf-8"))["next_start"] if progress.exists() else 0
    generator = load_generator(root)
    amounts = generator.generate(out=landing, events=events, seed=SEED, files=FILES, start=start)
    progress.parent.mkdir(exist_ok=True)
    progress.write_text(json.dumps({"next_start": amounts.next_start}), encoding="utf-8")
    return amounts


def generate(
    *,
    events: Annotated[int, typer.Option(help="The number of events, one record each.")] = 50_000,
    seed: Annotated[int, typer.Option(help="The seed, which determines the sequence of events.")] = SEED,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write files to the folders DIR/<feed>/.", file_okay=False),
    ] = None,
    files: Annotated[int, typer.Option(help="With --out: the number of files per feed.")] = FILES,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="BOOTSTRAP", help="Send to the topics of these brokers (host:port) instead."),
    ] = None,
    start: Annotated[
        int,
        typer.Option(
            help="Continue the sequence after this many events; a few impressions then arrive days late."
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Write the demo's ad events as files, or send them to Kafka, and print how many there are of each kind."""
    generator = load_generator(example_root())
    if out is not None and kafka is None:
        amounts = generator.generate(out=out, events=events, seed=seed, files=files, start=start)
    elif kafka is not None and out is None:
        amounts = generator.produce(bootstrap=kafka, events=events, seed=seed, start=start)
    else:
        raise ConfigurationError(
            "demo generate needs one destination.",
            fix="Give --out DIR or --kafka BOOTSTRAP, one of the two.",
            code="arguments-conflict",
        )
    if as_json:
        print_json(**as_document(amounts))
    else:
        _show(amounts, str(out or kafka))


def as_document(amounts: Any) -> dict[str, object]:
    """Return amounts as `demo generate --json` prints them."""
    feeds = {name: {"records": feed.records, **asdict(feed)} for name, feed in amounts.feeds.items()}
    return {
        "seed": amounts.seed,
        "start": amounts.start,
        "next_start": amounts.next_start,
        "events": amounts.events,
        "records": amounts.records,
        "feeds": feeds,
    }


def _show(amounts: Any, destination: str) -> None:
    table = new_table("Kind", *amounts.feeds, right=tuple(amounts.feeds))
    kinds = (field.name for field in fields(next(iter(amounts.feeds.values()))))
    for kind in ("records", *kinds):
        counts = (getattr(feed, kind) for feed in amounts.feeds.values())
        table.add_row(kind.replace("_", " "), *(f"{count:,}" for count in counts))
    console = output_console()
    console.print(f"{pluralize(amounts.records, 'record')} in {destination}", markup=False)
    console.print(table)
    console.print(f"Continue with --start {amounts.next_start}.")


def broker(*, as_json: AsJson = False) -> None:
    """Start a Kafka broker on this machine for development, and run it until Ctrl-C. Its topics are then removed.

    Exit status: 0 after Ctrl-C, 1 if the broker does not start or ends unexpectedly.
    """
    from tidemill.engines.dev.broker import Broker

    with suppress(KeyboardInterrupt), Broker() as running:
        if as_json:
            print_json(bootstrap=running.bootstrap)
            sys.stdout.flush()  # a program reads the address while the broker runs
        else:
            _show_broker(running.bootstrap)
        running.wait()


def _show_broker(bootstrap: str) -> None:
    output_console().print(
        f"A Kafka broker listens on [bold]{bootstrap}[/] (this machine only, no credentials). Ctrl-C stops it; "
        "its topics end with it.\n\n"
        "In another terminal, with a lake for this broker alone:\n"
        f"  tidemill demo generate --kafka {bootstrap}\n"
        f"  tidemill run ads --kafka {bootstrap} --lake .tidemill/broker-lake",
        soft_wrap=True,
    )
