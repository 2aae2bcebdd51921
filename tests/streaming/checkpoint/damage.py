"""Ways to damage a checkpoint: every file of it in turn, and whole folders."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.streaming.checkpoint.handmade import sidecar

_NUMBERED = re.compile(r"(\d+)(\.\w+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing done to one file or folder of a checkpoint.

    Attributes:
        kind: What is done.
        where: The file or folder, relative to the checkpoint.
        apply: Does it, to the checkpoint it is given.
    """

    kind: str
    where: str
    apply: Callable[[Path], None]


def damages(checkpoint: Path) -> Iterator[Damage]:
    """Everything that can be done to a checkpoint; the same ones in the same order each time.

    Sums (`.NAME.crc`) move with their files where files change their target, as every copy does, and stay
    behind where a file is deleted or rewritten.
    """
    for place in sorted(checkpoint.rglob("*")):
        where = str(place.relative_to(checkpoint))
        if place.is_dir():
            yield Damage("folder gone", where, _on(where, shutil.rmtree))
        else:
            yield from _of_file(place, where)


def _of_file(place: Path, where: str) -> Iterator[Damage]:
    yield Damage("delete", where, _on(where, Path.unlink))
    if place.name.startswith("."):
        yield Damage("flip", where, _on(where, _flip))
        return
    if sidecar(place).exists():
        yield Damage("delete with sums", where, _on(where, _delete_with_sums))
    if place.stat().st_size:
        yield Damage("empty", where, _on(where, _empty))
        yield Damage("truncate", where, _on(where, _truncate))
        yield Damage("flip", where, _on(where, _flip))
    following, previous = _neighbour(place, 1), _neighbour(place, -1)
    if following is not None and not following.exists():
        yield Damage("duplicate", where, _on(where, _duplicate))
    if previous is not None and previous.exists() and previous.read_bytes() != place.read_bytes():
        yield Damage("swap", where, _on(where, _swap))


def _on(where: str, act: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(checkpoint: Path) -> None:
        act(checkpoint / where)

    return apply


def _neighbour(place: Path, step: int) -> Path | None:
    """The file of the batch or version before or after; None for files without a number, or with an id."""
    match = _NUMBERED.fullmatch(place.name)
    return match and place.with_name(f"{int(match[1]) + step}{match[2] or ''}")


def _delete_with_sums(place: Path) -> None:
    place.unlink()
    sidecar(place).unlink()


def _empty(place: Path) -> None:
    place.write_bytes(b"")


def _truncate(place: Path) -> None:
    data = place.read_bytes()
    place.write_bytes(data[: len(data) // 2])


def _flip(place: Path) -> None:
    data = bytearray(place.read_bytes())
    if data:
        data[len(data) * 2 // 3] ^= 1
    place.write_bytes(data)


def _duplicate(place: Path) -> None:
    following = _neighbour(place, 1)
    assert following is not None
    for file, copy in ((place, following), (sidecar(place), sidecar(following))):
        if file.exists():
            shutil.copy2(file, copy)


def _swap(place: Path) -> None:
    previous = _neighbour(place, -1)
    assert previous is not None
    for one, other in ((place, previous), (sidecar(place), sidecar(previous))):
        if one.exists() and other.exists():
            aside = one.with_name("aside")
            one.rename(aside)
            other.rename(one)
            aside.rename(other)
