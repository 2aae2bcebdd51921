"""Where a source starts or continues after a person has decided it."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.checkpoint import SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where one source starts.

    Attributes:
        offset: The offset up to which it counts as read, as Spark writes it.
        files: The files that count as read, of a folder.
        skipped: What is never read, for people; empty where nothing is.
        doubled: What is read a second time; empty where nothing is.
    """

    offset: str
    files: tuple[SourceFile, ...] = ()
    skipped: str = ""
    doubled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a source continues in another binding.

    Attributes:
        effects: What follows from it, one sentence each.
        address: The address now of a file in the source's own log; None where it keeps none.
        offset: The offset at which it continues, as Spark writes it; None where it stays.
        renamed: The same position in the new binding, of any offset.
        is_exact: Whether it continues where it was, so that a planned batch can be repeated.
    """

    effects: tuple[str, ...]
    address: Callable[[str], str] | None = None
    offset: str | None = None
    renamed: Callable[[str], str] = str
    is_exact: bool = True
