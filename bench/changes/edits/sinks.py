"""Edits of sinks and of the options of queries."""

from dataclasses import replace
from typing import Any

from bench.changes.edits.edit import Applied, Must, edit, redefined
from bench.changes.world import World
from tidemill import DeltaAppend, DeltaMerge, QueryOptions
from tidemill.definitions.sink import Sink


def _other_sink(world: World, stream: str, sink: Sink, what: str, must: Must) -> Applied | None:
    further = world.definition.sinks[stream][:-1]
    must_undo = must == "be refused"  # the oracle knows the rows of the first sinks only
    if not world.updates[stream]:
        return None
    applied = redefined(world, f"sinks {stream}", (*further, sink), f"{stream}: {what}", must)
    return replace(applied, must_undo=must_undo)


def _merge(world: World, stream: str = "customers") -> DeltaMerge:
    sink = world.definition.sinks[stream][-1]
    if not isinstance(sink, DeltaMerge):
        raise TypeError(f"{stream} has the sink {sink}")
    return sink


def _changed(sink: DeltaMerge, **fields: Any) -> DeltaMerge:
    return replace(sink, **fields)


@edit
def merge_keys(world: World) -> Applied | None:
    """Change the keys of a merge."""
    stream, keys = world.rng.choice([("customers", ["id", "name"]), ("mirror", ["id", "seq"])])
    return _other_sink(
        world, stream, _changed(_merge(world, stream), keys=keys), f"keys={keys}", "be refused"
    )


@edit
def merge_sequence(world: World) -> Applied | None:
    """Change the sequence of a merge."""
    stream, column = world.rng.choice(
        [("customers", "id"), ("mirror", "seq"), ("hourly", "hour"), ("totals", "n")]
    )
    sink = _changed(_merge(world, stream), sequence_by=column)
    return _other_sink(world, stream, sink, f"sequence_by={column!r}", "be refused")


@edit
def merge_history(world: World) -> Applied | None:
    """Change the SCD type of a merge."""
    return _other_sink(world, "customers", _changed(_merge(world), scd_type=2), "scd_type=2", "be refused")


@edit
def sink_kind(world: World) -> Applied | None:
    """Change the kind of a sink."""
    stream, sink = world.rng.choice(
        [
            ("hourly", DeltaAppend()),
            ("mirror", DeltaAppend()),
            ("sales", DeltaMerge(keys=["id"], sequence_by="amount")),
            ("unique", DeltaMerge(keys=["id"], sequence_by="id")),
        ]
    )
    return _other_sink(world, stream, sink, f"the sink is {sink}", "be refused")


@edit
def deletes(world: World) -> Applied | None:
    """Let the changes of customers delete, or no longer."""
    sink = _merge(world)
    condition = None if sink.apply_as_deletes else "removed"
    changed = _changed(sink, apply_as_deletes=condition)
    return _other_sink(world, "customers", changed, f"apply_as_deletes={condition!r}", "run")


@edit
def layout(world: World) -> Applied | None:
    """Change the partitions of an append table."""
    stream = world.rng.choice(["orders", "sales"])
    [*_, now] = world.definition.sinks[stream]
    columns = [] if getattr(now, "partition_by", ()) else ["customer"]
    return _other_sink(
        world, stream, DeltaAppend(partition_by=columns), f"partition_by={columns}", "run or be refused"
    )


@edit
def further_sink(world: World) -> Applied:
    """Add a further sink, or remove it."""
    return further_sink_of(world, world.rng.choice(["orders", "sales", "unique"]))


def further_sink_of(world: World, stream: str) -> Applied:
    """Add a further sink to a stream, or remove it."""
    sinks = world.definition.sinks[stream]
    now = sinks[1:] if len(sinks) > 1 else (DeltaAppend(name="copy"), *sinks)
    names = ", ".join(sink.name for sink in now)
    is_new = len(now) > 1 and world.updates[stream] > 0 and "copy" not in world.oracle.streams[stream].further
    must: Must = "be refused" if is_new else "run"
    return redefined(world, f"sinks {stream}", now, f"{stream}: the sinks are {names}", must)


def _query(world: World, stream: str, what: str, must: Must, **fields: Any) -> Applied:
    query = replace(world.definition.queries.get(stream, QueryOptions()), **fields)
    if not world.updates[stream]:
        must = "run or be refused"
    return redefined(world, f"queries {stream}", query, f"{stream}: {what}", must)


@edit
def partitions(world: World) -> Applied:
    """Change the shuffle partitions, which the checkpoint keeps."""
    stream = world.rng.choice(["unique", "hourly", "totals", "sales"])
    number = world.rng.choice([1, 3, 4])
    return _query(world, stream, f"shuffle_partitions={number}", "run", shuffle_partitions=number)


@edit
def state_store(world: World) -> Applied:
    """Change the state store, which the checkpoint keeps."""
    stream = world.rng.choice(["unique", "hourly", "totals"])
    now = world.definition.queries.get(stream, QueryOptions()).state_store
    store = "hdfs" if now == "rocksdb" else "rocksdb"
    return _query(world, stream, f"state_store={store!r}", "run", state_store=store)


@edit
def output_mode(world: World) -> Applied:
    """Change the output mode."""
    stream, must = world.rng.choice([("mirror", "run"), ("hourly", "be refused"), ("totals", "be refused")])
    now = world.definition.queries.get(stream, QueryOptions()).output_mode
    mode = "append" if now == "update" else "update"
    applied = _query(world, stream, f"output_mode={mode!r}", must, output_mode=mode)
    return replace(applied, must_undo=must == "be refused")
