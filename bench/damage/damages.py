"""Ways to damage a checkpoint: every file of it in turn, and whole folders."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemill.checkpoint.format import hadoop_checksum

_NUMBERED = re.compile(r"(\d+)(\.\w+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Damage:
    """One change of one file or folder of a checkpoint.

    Attributes:
        kind: The kind of change.
        where: The file or folder, relative to the checkpoint.
        apply: A function that makes the change in a checkpoint.
    """

    kind: str
    where: str
    apply: Callable[[Path], None]


def damages(checkpoint: Path) -> Iterator[Damage]:
    """Yield every damage of a checkpoint, in the same order each time.

    A checksum file (`.NAME.crc`) follows its file when that is copied or renamed, and stays when the file is
    deleted or rewritten.
    """
    for path in sorted(checkpoint.rglob("*")):
        where = str(path.relative_to(checkpoint))
        if path.is_dir():
            yield Damage("delete folder", where, _on(where, shutil.rmtree))
        else:
            yield from _of_file(path, where)


def sidecar(file: Path) -> Path:
    """Return the checksum file of a file."""
    return file.with_name(hadoop_checksum.sidecar(file.name))


def _of_file(path: Path, where: str) -> Iterator[Damage]:
    yield Damage("delete", where, _on(where, Path.unlink))
    if path.name.startswith("."):
        yield Damage("flip", where, _on(where, _flip))
        return
    if sidecar(path).exists():
        yield Damage("delete with checksum", where, _on(where, _delete_with_checksum))
    if path.stat().st_size:
        yield Damage("empty", where, _on(where, _empty))
        yield Damage("truncate", where, _on(where, _truncate))
        yield Damage("flip", where, _on(where, _flip))
    following, previous = _neighbor(path, 1), _neighbor(path, -1)
    if following is not None and not following.exists():
        yield Damage("duplicate", where, _on(where, _duplicate))
    if previous is not None and previous.exists() and previous.read_bytes() != path.read_bytes():
        yield Damage("swap", where, _on(where, _swap))


def _on(where: str, act: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(checkpoint: Path) -> None:
        act(checkpoint / where)

    return apply


def _neighbor(path: Path, step: int) -> Path | None:
    """Return the file of the previous or next batch or version; None for files without a number, or with an id."""
    match = _NUMBERED.fullmatch(path.name)
    return match and path.with_name(f"{int(match[1]) + step}{match[2] or ''}")


def _delete_with_checksum(path: Path) -> None:
    path.unlink()
    sidecar(path).unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) * 2 // 3] ^= 1
    path.write_bytes(data)


def _duplicate(path: Path) -> None:
    following = _neighbor(path, 1)
    if following is None:
        raise ValueError(f"{path} has no number.")
    for file, copy in ((path, following), (sidecar(path), sidecar(following))):
        if file.exists():
            shutil.copy2(file, copy)


def _swap(path: Path) -> None:
    previous = _neighbor(path, -1)
    if previous is None:
        raise ValueError(f"{path} has no number.")
    for one, other in ((path, previous), (sidecar(path), sidecar(previous))):
        if one.exists() and other.exists():
            temporary = one.with_name("temporary")
            one.rename(temporary)
            other.rename(one)
            temporary.rename(other)
