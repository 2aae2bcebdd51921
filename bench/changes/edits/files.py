"""Edits of what arrives: files and topics."""

from bench.changes.edits.edit import Applied, edit
from bench.changes.edits.sources import some_folder
from bench.changes.world import World


@edit
def rewritten_file(world: World) -> Applied | None:
    """Replace a file by one of the same name; one that was read is not read again."""
    _, name, folder = some_folder(world)
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
    _, _, folder = some_folder(world)
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
    stream, name, folder = some_folder(world)
    kind = "customers" if name == "customers" else "orders"
    number = world.rng.randrange(5, 25)
    for _ in range(number):
        world.drop(folder, world.records(kind, clean=name != "orders"))
    (world.landing / folder / f"{world.number('file'):06d}.json").touch()
    return Applied(f"{number} files in {folder}", stream, "run")


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
        "the feed is bound to a copy of the topic",
        "messages",
        "be refused" if read else "run or be refused",
        undo,
    )
