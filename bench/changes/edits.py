"""The edits, a table of small functions: each changes the declaration, the files or the lake of a world.

An edit returns what must follow: that its stream is refused, that it runs, or either. One that does not apply to the
world as it is returns None.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F

from bench.changes.streams import Change
from bench.changes.world import Backup, World
from pipelines.streaming import DeltaAppend, DeltaMerge, QueryOptions
from pipelines.streaming.sinks import Sink

if TYPE_CHECKING:
    from pathlib import Path

    from bench.changes.oracle import Rows

Must = Literal["be refused", "run", "run or be refused"]


@dataclass(frozen=True)
class Applied:
    """An edit that was made.

    Attributes:
        what: What it was, for people.
        stream: The stream that it concerns.
        must: What must follow for that stream.
        undo: How it is undone; None for an edit of a table, which cannot be.
        only: The streams that the next runs select; None: all.
        must_undo: Whether a refusal leaves no other way.
    """

    what: str
    stream: str
    must: Must
    undo: Callable[[], None] | None = None
    only: tuple[str, ...] | None = None
    must_undo: bool = False


Edit = Callable[[World], Applied | None]
EDITS: dict[str, Edit] = {}


def edit(function: Edit) -> Edit:
    """Add an edit to the table."""
    EDITS[function.__name__] = function
    return function


def redefined(world: World, entry: str, value: object, what: str, must: Must) -> Applied:
    """Change one entry of the definition: `sources sales`."""
    part, name = entry.split(" ")
    before = world.definition
    world.definition = before.changed(part, name, value)

    def undo() -> None:
        world.definition = before

    return Applied(what, name, must, undo)


# Sources


def _arguments(world: World, stream: str, kinds: tuple[str, ...]) -> list[str]:
    sources = world.definition.sources[stream]
    return [argument for argument, what in sources.items() if what.split(" ")[0] in kinds]


STREAMING = ("feed", "files", "rows", "changes")


@edit
def rename_argument(world: World) -> Applied:
    """Rename an argument of a function."""
    return _renamed_argument(world, world.rng.choice(world.streams))


def _renamed_argument(world: World, stream: str) -> Applied:
    sources = world.definition.sources[stream]
    old = world.rng.choice(list(sources))
    new = f"a{world.number('argument')}"
    renamed = {new if argument == old else argument: what for argument, what in sources.items()}
    has_position = bool(world.oracle.streams[stream].read.get(old)) and not sources[old].startswith("static")
    return redefined(
        world,
        f"sources {stream}",
        renamed,
        f"{stream}: {old} is called {new}",
        "be refused" if has_position else "run or be refused",
    )


@edit
def reorder_sources(world: World) -> Applied:
    """Change the order of the arguments."""
    sources = list(world.definition.sources["sales"].items())
    world.rng.shuffle(sources)
    return redefined(world, "sources sales", dict(sources), f"sales: {', '.join(dict(sources))}", "run")


@edit
def add_source(world: World) -> Applied:
    """Add a source of files."""
    argument = f"a{world.number('argument')}"
    name = f"files{world.number('files')}"
    for _ in range(world.rng.randrange(3)):
        world.drop(name, world.records("orders", clean=True))
    sources = {**world.definition.sources["sales"], argument: f"files {name}"}
    return redefined(world, "sources sales", sources, f"sales: {argument} reads {name}", "run")


@edit
def remove_source(world: World) -> Applied | None:
    """Remove a source."""
    arguments = _arguments(world, "sales", STREAMING)
    if len(arguments) < 2:
        return None
    argument = world.rng.choice(arguments)
    sources = {a: what for a, what in world.definition.sources["sales"].items() if a != argument}
    return redefined(world, "sources sales", sources, f"sales: {argument} is removed", "run")


@edit
def return_source(world: World) -> Applied | None:
    """Declare a source again that an earlier run removed."""
    sources = world.definition.sources["sales"]
    gone = sorted({argument for argument in world.oracle.streams["sales"].read if argument not in sources})
    if not gone:
        return None
    argument = world.rng.choice(gone)
    now = {**sources, argument: world.sales_sources[argument]}
    return redefined(world, "sources sales", now, f"sales: {argument} is back", "run or be refused")


@edit
def swap_sources(world: World) -> Applied | None:
    """Exchange what two arguments read."""
    arguments = _arguments(world, "sales", STREAMING)
    if len(arguments) < 2:
        return None
    one, other = world.rng.sample(arguments, 2)
    sources = dict(world.definition.sources["sales"])
    sources[one], sources[other] = sources[other], sources[one]
    return redefined(world, "sources sales", sources, f"sales: {one} and {other} swap", "be refused")


# Bindings


def _some_folder(world: World) -> tuple[str, str, str]:
    """Return a stream, a feed or set of files that it reads, and its folder."""
    reads = [
        (stream, what.split(" ")[1])
        for stream, sources in world.definition.sources.items()
        for what in sources.values()
        if what.split(" ")[0] in ("feed", "files")
    ]
    stream, name = world.rng.choice([read for read in reads if read[1] not in ("messages", "early")])
    return stream, name, world.definition.folder(name)


def _rebound(world: World, stream: str, name: str, folder: str, what: str) -> Applied:
    applied = redefined(world, f"folders {name}", folder, what, "be refused")
    read = any(
        world.oracle.streams[stream].read.get(argument)
        for argument, source in world.definition.sources[stream].items()
        if source.split(" ")[1] == name
    )
    return Applied(what, stream, "be refused" if read else "run or be refused", applied.undo)


@edit
def other_folder(world: World) -> Applied:
    """Bind a source to another folder with other files."""
    stream, name, _ = _some_folder(world)
    folder = f"{name}-{world.number('folder')}"
    kind = "customers" if name == "customers" else "orders"
    world.drop(folder, world.records(kind, clean=name != "orders"))
    return _rebound(world, stream, name, folder, f"{stream}: {name} is bound to {folder}")


@edit
def moved_folder(world: World) -> Applied | None:
    """Move a folder and bind the source to it."""
    stream, name, old = _some_folder(world)
    new = f"{name}-{world.number('folder')}"
    if not (world.landing / old).exists():
        return None
    (world.landing / old).rename(world.landing / new)
    world.oracle.files[new] = world.oracle.files.pop(old, {})
    applied = _rebound(world, stream, name, new, f"{stream}: {old} is moved to {new}")

    def undo() -> None:
        if applied.undo is not None:
            applied.undo()
        (world.landing / new).rename(world.landing / old)
        world.oracle.files[old] = world.oracle.files.pop(new)

    return Applied(applied.what, stream, applied.must, undo)


@edit
def copied_folder(world: World) -> Applied | None:
    """Bind a source to a copy of its folder that has one file more."""
    stream, name, old = _some_folder(world)
    new = f"{name}-{world.number('folder')}"
    if not (world.landing / old).exists():
        return None
    shutil.copytree(world.landing / old, world.landing / new)
    world.oracle.files[new] = dict(world.oracle.files.get(old, {}))
    kind = "customers" if name == "customers" else "orders"
    world.drop(new, world.records(kind, clean=name != "orders"))
    return _rebound(world, stream, name, new, f"{stream}: {old} is copied to {new}")


@edit
def copied_lake(world: World) -> Applied:
    """Copy the lake with its landing folder, and go on in the copy."""
    old, new = world.root, world.base / f"home-{world.number('home')} ü"
    shutil.copytree(old, new)
    shutil.rmtree(old)
    world.root = new
    return Applied(f"the lake is {new.name}", "orders", "run")


# Files


@edit
def rewritten_file(world: World) -> Applied | None:
    """Replace a file by one of the same name; one that was read is not read again."""
    _, name, folder = _some_folder(world)
    files = sorted(world.oracle.files.get(folder, {}))
    if not files:
        return None
    file = world.rng.choice(files)
    kind = "customers" if name == "customers" else "orders"
    world.drop(folder, world.records(kind, clean=name != "orders"), file)
    return Applied(f"{folder}/{file} is rewritten", "orders", "run")


@edit
def removed_file(world: World) -> Applied | None:
    """Remove a file."""
    _, _, folder = _some_folder(world)
    files = sorted(world.oracle.files.get(folder, {}))
    if not files:
        return None
    file = world.rng.choice(files)
    (world.landing / folder / file).unlink()
    del world.oracle.files[folder][file]
    return Applied(f"{folder}/{file} is removed", "orders", "run")


@edit
def many_files(world: World) -> Applied:
    """Let many files arrive at once, an empty one among them."""
    stream, name, folder = _some_folder(world)
    kind = "customers" if name == "customers" else "orders"
    number = world.rng.randrange(5, 25)
    for _ in range(number):
        world.drop(folder, world.records(kind, clean=name != "orders"))
    (world.landing / folder / f"{world.number('file'):06d}.json").touch()
    return Applied(f"{number} files in {folder}", stream, "run")


# Sinks


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
    return _further_sink(world, world.rng.choice(["orders", "sales", "unique"]))


def _further_sink(world: World, stream: str) -> Applied:
    sinks = world.definition.sinks[stream]
    now = sinks[1:] if len(sinks) > 1 else (DeltaAppend(name="copy"), *sinks)
    names = ", ".join(sink.name for sink in now)
    return redefined(world, f"sinks {stream}", now, f"{stream}: the sinks are {names}", "run")


# Queries


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


# Functions


def _function(world: World, stream: str, change: Change, what: str, must: Must) -> Applied:
    """Change a function; a stream that has no table yet takes every output."""
    if not world.updates[stream] and must == "be refused":
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
            world, stream, lambda output: output.drop(column), f"no column {column}", "be refused"
        )
    return _function(
        world,
        stream,
        lambda output: output.withColumn(column, F.col(column).cast("boolean")),
        f"{column} is BOOLEAN",
        "be refused",
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


# Several at once


@edit
def two_edits(world: World) -> Applied | None:
    """Make two edits of one declaration at once."""
    one_stream = (_renamed_argument, _further_sink, _new_column, _lost_column, _broken_function)
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


# Topics


@edit
def recreated_topic(world: World) -> Applied | None:
    """Delete a topic and create it again, with fewer or with more messages."""
    if world.topics is None:
        return None
    read = world.oracle.streams["messages"].read.get("events", 0)
    world.topics.recreate()
    for _ in range(world.rng.choice([0, 1, 10, 40])):
        world.topics.send(world.records("orders"))
    return Applied("the topic is recreated", "messages", "be refused" if read else "run or be refused")


@edit
def other_topic(world: World) -> Applied | None:
    """Bind a feed to another topic that has the messages of the old one and more."""
    if world.topics is None:
        return None
    read = world.oracle.streams["messages"].read.get("events", 0)
    undo = world.topics.copy()
    world.topics.send(world.records("orders"))
    return Applied(
        "the feed is bound to a copy of the topic", "messages", "be refused" if read else "run", undo
    )


# Tables that others read


def _upstream(world: World) -> str | None:
    return "orders" if world.oracle.streams["orders"].commits else None


@edit
def delete_upstream(world: World) -> Applied | None:
    """Delete rows of a table that others read."""
    if _upstream(world) is None:
        return None
    digit = world.rng.randrange(7)
    state = world.oracle.streams["orders"]
    world.sql("DELETE FROM {table} WHERE id % 7 = {digit}", "orders", digit=digit)
    kept = Counter({row: n for row, n in state.rows.items() if row[0] % 7 != digit})
    if kept != state.rows:
        world.removed("orders", kept)
    return Applied(f"orders: rows with id % 7 = {digit} are deleted", "orders", "run")


@edit
def update_upstream(world: World) -> Applied | None:
    """Update rows of a table that others read."""
    if _upstream(world) is None:
        return None
    digit = world.rng.randrange(7)
    state = world.oracle.streams["orders"]
    world.sql("UPDATE {table} SET amount = amount + 1 WHERE id % 7 = {digit}", "orders", digit=digit)
    now: Rows = Counter()
    for (key, customer, amount, at), number in state.rows.items():
        now[key, customer, amount + (key % 7 == digit), at] += number
    if now != state.rows:
        world.removed("orders", now)
    return Applied(f"orders: rows with id % 7 = {digit} are updated", "orders", "run")


@edit
def restore_upstream(world: World) -> Applied | None:
    """RESTORE a table that others read to an earlier version."""
    known = world.history
    if not known:
        return None
    version = world.rng.choice(sorted(known))
    world.sql("RESTORE TABLE {table} TO VERSION AS OF {version}", "orders", version=version)
    if known[version] != world.oracle.streams["orders"].rows:
        world.removed("orders", Counter(known[version]))
    return Applied(f"orders: RESTORE to version {version}", "orders", "run")


@edit
def delete_customers(world: World) -> Applied | None:
    """Delete rows of a merge table, which its change data feed reports."""
    state = world.oracle.streams["customers"]
    if not state.rows:
        return None
    digit = world.rng.randrange(3)
    world.sql("DELETE FROM {table} WHERE id % 3 = {digit}", "customers", digit=digit)
    state.kept = {key: change for key, change in state.kept.items() if key % 3 != digit}
    state.rows = Counter({row: n for row, n in state.rows.items() if row[0] % 3 != digit})
    return Applied(f"customers: rows with id % 3 = {digit} are deleted", "customers", "run")


@edit
def optimize(world: World) -> Applied | None:
    """Compact a table that others read."""
    stream = world.rng.choice(["orders", "customers"])
    if world.version(stream) < 0:
        return None
    world.sql("OPTIMIZE {table}", stream)
    return Applied(f"{stream}: OPTIMIZE", stream, "run")


@edit
def vacuum(world: World) -> Applied | None:
    """Compact a table that others read, and remove the files that it no longer has."""
    stream = world.rng.choice(["orders", "customers"])
    if world.version(stream) < 0:
        return None
    world.sql("OPTIMIZE {table}", stream)
    world.sql("VACUUM {table} RETAIN 0 HOURS", stream)
    world.forget_history(stream)
    return Applied(f"{stream}: OPTIMIZE and VACUUM", stream, "run or be refused")


# Older copies


def _older(world: World) -> tuple[str, Backup] | None:
    """Return a stream and a backup of its present life, if there is one."""
    candidates = [
        (stream, backup)
        for backup in world.backups
        for stream in world.streams
        if backup.updates[stream] and backup.lives[stream] == world.lives[stream]
    ]
    return world.rng.choice(candidates) if candidates else None


def _put_back(world: World, stream: str, backup: Backup, wanted: Callable[[str], bool]) -> Callable[[], None]:
    """Replace folders of a stream by those of a backup; return how the newer ones come back."""
    aside = world.base / f"aside-{world.number('aside')}"
    moved: list[tuple[Path, Path]] = []
    for kind, path in world.paths(stream).items():
        if not wanted(kind) or not path.exists():
            continue
        kept = aside / kind
        kept.parent.mkdir(parents=True, exist_ok=True)
        path.rename(kept)
        moved.append((kept, path))
        copy = backup.root / path.relative_to(world.lake.root)
        if copy.exists():
            shutil.copytree(copy, path)

    def undo() -> None:
        for kept, path in moved:
            shutil.rmtree(path, ignore_errors=True)
            kept.rename(path)

    return undo


def _older_part(world: World, what: str, wanted: Callable[[str], bool], must: Must) -> Applied | None:
    chosen = _older(world)
    if chosen is None:
        return None
    stream, backup = chosen
    since = world.updates[stream] - backup.updates[stream]
    undo = _put_back(world, stream, backup, wanted)
    what = f"{stream}: the {what} of {since} updates before is restored"
    return Applied(what, stream, must if since else "run or be refused", undo, must_undo=True)


@edit
def rebuilt(world: World) -> Applied:
    """Move everything that a stream and its readers have away."""
    stream = world.rng.choice(world.streams)
    world.rebuild(stream)
    return Applied(f"{stream}: everything is moved away", stream, "run")


@edit
def older_table(world: World) -> Applied | None:
    """Restore an older copy of a table alone."""
    return _older_part(world, "table", lambda kind: kind in world.streams, "be refused")


@edit
def older_checkpoint(world: World) -> Applied | None:
    """Restore an older copy of a checkpoint alone."""
    return _older_part(world, "checkpoint", lambda kind: kind == "checkpoint", "be refused")


@edit
def older_control(world: World) -> Applied | None:
    """Restore an older copy of a control folder alone."""
    return _older_part(world, "control folder", lambda kind: kind == "control", "run or be refused")


@edit
def missing_part(world: World) -> Applied | None:
    """Lose a folder of a stream."""
    ran = [name for name in world.streams if world.updates[name]]
    if not ran:
        return None
    stream = world.rng.choice(ran)
    kind = world.rng.choice(["control", "checkpoint", stream])
    path = world.paths(stream)[kind]
    aside = world.base / f"aside-{world.number('aside')}"
    path.rename(aside)

    def undo() -> None:
        shutil.rmtree(path, ignore_errors=True)
        aside.rename(path)

    what = f"{stream}: the {'table' if kind == stream else kind} is missing"
    return Applied(what, stream, "be refused", undo, must_undo=True)


@edit
def older_backup(world: World) -> Applied | None:
    """Restore everything that a stream has, as it was in one backup: the stream reads the rest again."""
    chosen = _older(world)
    if chosen is None:
        return None
    stream, backup = chosen
    was, now = backup.definition, world.definition
    if was.folders != now.folders or any(
        getattr(was, part).get(stream) != getattr(now, part).get(stream)
        for part in ("sources sinks", "queries")
    ):
        return None
    state, updates = world.oracle.streams[stream], world.updates[stream]
    undo_folders = _put_back(world, stream, backup, lambda _: True)
    world.oracle.streams[stream] = deepcopy(backup.states[stream])
    world.updates[stream] = backup.updates[stream]
    world.forget_history(stream)

    def undo() -> None:
        undo_folders()
        world.oracle.streams[stream] = state
        world.updates[stream] = updates

    what = f"{stream}: everything of {updates - world.updates[stream]} updates before is restored"
    alone = (stream,) if world.rng.random() < 0.6 else None
    return Applied(what, stream, "run or be refused", undo, only=alone)
