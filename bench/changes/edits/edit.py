"""What an edit is, and the table of all edits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.changes.world import World

Must = Literal["be refused", "be refused if it runs", "run", "run or be refused"]


@dataclass(frozen=True)
class Applied:
    """An edit that was made.

    Attributes:
        what: What it was, for people.
        stream: The stream that it concerns.
        must: What must follow for that stream.
        undo: How it is undone; None for an edit of a table, which cannot be.
        only: The streams that the next runs select; None: all.
        must_undo: Whether a refusal leaves no other way, and a stream that has nothing to read keeps it open.
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
