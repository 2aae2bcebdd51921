"""Sentences about the effects of a change that several commands print."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.records.operation import Operation


def refusing_readers(stream: "Stream", readers: "Sequence[Stream]", *, again: str) -> tuple[str, ...]:
    """Return a sentence for each stream that will refuse a commit that replaces rows of a table.

    Args:
        stream: The stream whose table it is.
        readers: The streams that may read it.
        again: How a reader is computed again, as the beginning of a sentence.
    """
    return tuple(
        f"{reader.name} reads new rows of the table: its next run refuses the commit. {again} it as well "
        "(--downstream), or keep what it has (tidemill accept)."
        for reader in readers
        if stream.name in reader.upstreams
    )


def began(operation: "Operation") -> tuple[str, ...]:
    """Return how far an operation is; empty for one that has done nothing."""
    if not (operation.done or operation.publishing):
        return ()
    done = ", ".join(operation.done) or "nothing"
    return (f"The operation began at {operation.began_at}; done: {done}.",)
