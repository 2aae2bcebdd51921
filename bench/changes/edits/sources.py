"""Edits of what a stream reads: its arguments, and the folders that they are bound to."""

import shutil

from bench.changes.edits.edit import Applied, edit, redefined
from bench.changes.world import World


def _arguments(world: World, stream: str, kinds: tuple[str, ...]) -> list[str]:
    sources = world.definition.sources[stream]
    return [argument for argument, what in sources.items() if what.split(" ")[0] in kinds]


STREAMING = ("feed", "files", "rows", "changes")


@edit
def rename_argument(world: World) -> Applied:
    """Rename an argument of a function."""
    return renamed_argument(world, world.rng.choice(world.streams))


def renamed_argument(world: World, stream: str) -> Applied:
    """Rename an argument of a stream."""
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
    missing = sorted({argument for argument in world.oracle.streams["sales"].read if argument not in sources})
    if not missing:
        return None
    argument = world.rng.choice(missing)
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


def some_folder(world: World) -> tuple[str, str, str]:
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
    stream, name, _ = some_folder(world)
    folder = f"{name}-{world.number('folder')}"
    kind = "customers" if name == "customers" else "orders"
    world.drop(folder, world.records(kind, clean=name != "orders"))
    return _rebound(world, stream, name, folder, f"{stream}: {name} is bound to {folder}")


@edit
def moved_folder(world: World) -> Applied | None:
    """Move a folder and bind the source to it."""
    stream, name, old = some_folder(world)
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
    stream, name, old = some_folder(world)
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
    """Copy the lake with its landing folder, and continue in the copy."""
    old, new = world.root, world.base / f"home-{world.number('home')} ü"
    shutil.copytree(old, new)
    shutil.rmtree(old)
    world.root = new
    return Applied(f"the lake is {new.name}", "orders", "run")
