"""Edits of functions, alone and with another edit."""

from dataclasses import replace
from functools import partial

from pyspark.sql import functions as F

from bench.changes.edits.edit import Applied, Edit, Must, edit, redefined
from bench.changes.edits.sinks import further_sink_of
from bench.changes.edits.sources import add_source, remove_source, renamed_argument, reorder_sources
from bench.changes.streams import Change
from bench.changes.world import World


def _function(world: World, stream: str, change: Change, what: str, must: Must) -> Applied:
    """Change a function; a stream that has no table yet takes every output."""
    if not world.updates[stream] and must == "be refused if it runs":
        must = "run or be refused"
    applied = redefined(world, f"columns {stream}", change, f"{stream}: {what}", must)
    return replace(applied, must_undo=must != "run")


@edit
def new_column(world: World) -> Applied:
    """Add a column to an output."""
    return _new_column(world, world.rng.choice(["orders", "customers", "sales", "totals", "unique"]))


def _new_column(world: World, stream: str) -> Applied:
    column = f"extra{world.number('column')}"
    before = world.definition.columns.get(stream, lambda output: output)
    return _function(
        world,
        stream,
        lambda output: before(output).withColumn(column, F.lit(1)),
        f"new column {column}",
        "run",
    )


@edit
def lost_column(world: World) -> Applied:
    """Leave a column out, or give it another type."""
    return _lost_column(
        world, *world.rng.choice([("sales", "name"), ("hourly", "n"), ("orders", "customer")])
    )


def _lost_column(world: World, stream: str = "sales", column: str = "name") -> Applied:
    if world.rng.random() < 0.5:
        return _function(
            world, stream, lambda output: output.drop(column), f"no column {column}", "be refused if it runs"
        )
    return _function(
        world,
        stream,
        lambda output: output.withColumn(column, F.col(column).cast("boolean")),
        f"{column} is BOOLEAN",
        "be refused if it runs",
    )


@edit
def broken_function(world: World) -> Applied:
    """Use a column that does not exist, or an operation that Spark does not stream, after a new column."""
    return _broken_function(world, world.rng.choice(world.streams))


def _broken_function(world: World, stream: str) -> Applied:
    what, change = world.rng.choice(
        [
            ("a column that does not exist", lambda rows: rows.where("nothing > 0")),
            ("a sorted output", lambda rows: rows.orderBy(rows.columns[0])),
        ]
    )
    must: Must = "run or be refused"
    return _function(world, stream, lambda rows: change(rows.withColumn("more", F.lit(1))), what, must)


@edit
def other_state(world: World) -> Applied:
    """Change what a stateful stream keeps."""
    applied = redefined(
        world, "keyed_by unique", ("id", "customer"), "unique: other keys", "run or be refused"
    )
    return replace(applied, must_undo=True)


@edit
def unwritten_table(world: World) -> Applied | None:
    """Give a column another type while the table has no row and its reader waits."""
    if world.oracle.files.get("early"):
        return None
    kind = world.rng.choice(["string", "double", "int"])
    return redefined(
        world,
        "columns early",
        lambda rows: rows.withColumn("amount", F.col("amount").cast(kind)),
        f"early: amount is {kind}",
        "run",
    )


@edit
def first_rows(world: World) -> Applied | None:
    """Let the first rows of a table arrive, long after its reader has started."""
    if world.oracle.files.get("early"):
        return None
    world.drop("early", world.records("orders", clean=True))
    return Applied("early: the first file", "early", "run")


@edit
def two_edits(world: World) -> Applied | None:
    """Make two edits of one declaration at once."""
    one_stream = (renamed_argument, further_sink_of, _new_column, _lost_column, _broken_function)
    functions: list[Edit] = [partial(function, stream="sales") for function in one_stream]
    chosen = world.rng.sample([remove_source, add_source, reorder_sources, *functions], 2)
    applied = [done for done in (function(world) for function in chosen) if done is not None]
    if len(applied) < 2:
        for one in applied:
            if one.undo is not None:
                one.undo()
        return None

    def undo() -> None:
        for one in reversed(applied):
            if one.undo is not None:
                one.undo()

    what = "; ".join(one.what for one in applied)
    return Applied(what, applied[0].stream, "run or be refused", undo, must_undo=True)
