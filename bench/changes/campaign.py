"""Edit the declaration, the files and the lake of eight streams at random, and run them after each edit.

Each edit is refused and leaves everything as it was, or the rows equal the oracle. A refusal is undone, or a way that
its message offers is taken, and then the next run must be right.

    python -m bench.changes.campaign --seed 7 --edits 200
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bench.changes.edits import EDITS, Applied
from bench.changes.topics import Topics
from bench.changes.ways import ways_out
from bench.changes.world import DifferenceError, World
from tidemill.run.spark.engine import Engine

EDITS_PER_WORLD = 20
MOST_WAYS = 40
WORLDS_PER_BROKER = 3


@dataclass(frozen=True)
class Outcome:
    """What followed an edit.

    Attributes:
        edit: The edit.
        what: What it did.
        refused: Whether a stream was refused.
        ways: The ways out that were taken.
        seconds: How long it took.
    """

    edit: str
    what: str
    refused: bool
    ways: list[str]
    seconds: float


def run_edits(
    root: Path, engine: Engine, seed: int, number: int, topics: Topics | None = None
) -> list[Outcome]:
    """Make edits in one world.

    Args:
        root: An empty folder.
        engine: Where Spark sessions come from.
        seed: Decides everything.
        number: How many edits.
        topics: A topic for the feed `messages`; None: without Kafka.

    Raises:
        DifferenceError: The product did something that it must not do, after the steps in its message.
    """
    world = World(root, engine, Random(seed), topics)
    outcomes: list[Outcome] = []
    names = order_of_edits(seed * EDITS_PER_WORLD)
    try:
        world.arrive(everywhere=True)
        expect_no_refusal(world.run())
        while len(outcomes) < number:
            if outcome := one_edit(world, next(names)):
                outcomes.append(outcome)
                print(f"seed {seed}, edit {len(outcomes)}: {described(outcome)}", flush=True)
    except Exception as error:
        steps = "\n".join(f"  {step}" for step in world.steps)
        raise DifferenceError(f"{steps}\n{type(error).__name__}: {error}") from error
    return outcomes


def order_of_edits(first: int) -> Iterator[str]:
    """Yield the names of edits without end: every edit comes before one comes again, also over several worlds."""
    for position in count(first):
        turn, place = divmod(position, len(EDITS))
        yield Random(turn).sample(list(EDITS), len(EDITS))[place]


def one_edit(world: World, name: str) -> Outcome | None:
    """Make one edit, run streams until none is refused, and return what followed; None if it does not apply."""
    began, rng = time.monotonic(), world.rng
    world.arrive()
    if rng.random() < 0.2:  # the streams are at different positions
        expect_no_refusal(world.run(rng.sample(world.streams, rng.randrange(1, 5))))
    if rng.random() < 0.3:
        world.back_up()
    applied = EDITS[name](world)
    if applied is None:
        return None
    world.note(f"edit {name}: {applied.what}")
    if rng.random() < 0.5:
        world.arrive()
    concerned = world.streams if rng.random() < 0.2 else world.definition.concerned(applied.stream)
    errors = world.run(applied.only or concerned)
    refused = bool(errors)
    check_must(applied, errors, world.outcomes[applied.stream])
    if applied.must_undo and applied.undo and not errors and world.outcomes[applied.stream] == "idle":
        world.note("undo")  # the stream did not read its definition, and the next run might
        applied.undo()
    if applied.only and not errors:
        for _ in range(rng.randrange(4)):
            world.arrive(everywhere=True)
            errors |= world.run(applied.only)
        errors |= world.run(concerned)
    ways: list[str] = []
    while errors:
        refused = True
        if len(ways) == MOST_WAYS:
            raise DifferenceError("the streams are refused again and again")
        ways.append(take_a_way(world, applied, errors, undone="undo" in ways))
        errors = world.run(concerned)
    world.idle(concerned)
    return Outcome(name, applied.what, refused, ways, round(time.monotonic() - began, 1))


def check_must(applied: Applied, errors: dict[str, Exception], outcome: str) -> None:
    """Compare what followed with what must.

    Raises:
        DifferenceError: A stream ran although it had to be refused, or the reverse.
    """
    error = errors.get(applied.stream) or errors.get("")
    refused = applied.must == "be refused" or (
        applied.must == "be refused if it runs" and outcome == "updated"
    )
    if refused and error is None:
        raise DifferenceError(f"{applied.what}: {applied.stream} ran and had to be refused")
    if applied.must == "run" and error is not None:
        raise DifferenceError(f"{applied.what}: {applied.stream} had to run: {error}")


def take_a_way(world: World, applied: Applied, errors: dict[str, Exception], *, undone: bool) -> str:
    """Take a way out of a refusal, and return its name.

    Raises:
        DifferenceError: There is none.
    """
    stream = world.rng.choice(sorted(errors))
    ways = ways_out(world, stream, errors[stream]) if stream else {}
    if applied.undo is not None and not undone:
        ways = {} if applied.must_undo else ways
        ways["undo"] = applied.undo
    if not ways:
        raise DifferenceError(f"{stream} is refused without a way out: {errors[stream]}")
    name = world.rng.choice(sorted(ways))
    world.note(f"way out: {name}")
    ways[name]()
    return name


def expect_no_refusal(errors: dict[str, Exception]) -> None:
    """Check that a run without an edit refuses nothing.

    Raises:
        DifferenceError: A stream was refused.
    """
    for stream, error in errors.items():
        raise DifferenceError(f"{stream} is refused without an edit: {error}")


def described(outcome: Outcome) -> str:
    """Return an outcome as one line."""
    ways = f", {', '.join(outcome.ways)}" if outcome.ways else ""
    return f"{outcome.edit}: {outcome.what}: {'refused' if outcome.refused else 'ran'}{ways} ({outcome.seconds} s)"


def main(
    *,
    seed: Annotated[int, typer.Option(help="Decides every edit and every record.")] = 1,
    edits: Annotated[int, typer.Option(help="How many edits.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcomes as JSON at the end.")] = False,
) -> None:
    """Make edits, and exit with status 1 at the first difference."""
    from tests.support.small import SMALL
    from tidemill.engines.dev.broker import Broker
    from tidemill.engines.engine import SparkEngine
    from tidemill.target.spark_settings import SparkSettings

    conf = {
        **SMALL,
        # The maintenance of the state stores writes to a checkpoint in the background, also while its stream is idle.
        "spark.sql.streaming.stateStore.maintenanceInterval": "1d",
    }
    engine = SparkEngine(
        SparkSettings(master="local[2]", driver_memory="1g", shuffle_partitions=1, conf=conf)
    )
    outcomes: list[Outcome] = []
    began = time.monotonic()
    with ExitStack() as stack:
        stack.callback(engine.stop)
        broker: Broker | None = None
        while len(outcomes) < edits:
            number = min(EDITS_PER_WORLD, edits - len(outcomes))
            folder = Path(stack.enter_context(TemporaryDirectory()))
            topics = None
            if seed % WORLDS_PER_BROKER == 0:
                broker = broker or stack.enter_context(Broker())
                topics = Topics(broker)
            try:
                outcomes += run_edits(folder, engine, seed, number, topics)
            except DifferenceError as difference:
                print(f"{difference}\n\nReproduce it: make changes ARGS='--seed {seed} --edits {number}'")
                raise typer.Exit(1) from None
            seed += 1
    refused = sum(outcome.refused for outcome in outcomes)
    if as_json:
        print(json.dumps({"schema_version": 1, "outcomes": [asdict(outcome) for outcome in outcomes]}))
    print(f"{len(outcomes)} edits, {refused} refused, 0 differences, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
