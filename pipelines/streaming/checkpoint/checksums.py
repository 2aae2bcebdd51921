"""The `.NAME.crc` files that Hadoop keeps beside each file of a local file system."""

import struct
import zlib
from collections.abc import Iterable, Iterator

MAGIC = b"crc\0"
_HEAD = struct.Struct(">4sI")
_MAX_CHUNK = 1 << 20


def sidecar(name: str) -> str:
    """The name of a file's sums."""
    return f".{name}.crc"


def owner(name: str) -> str | None:
    """The name of the file that these are the sums of; None for every other name."""
    return (
        name[1:-4]
        if name.startswith(".") and name.endswith(".crc") and len(name) > len(".x.crc") - 1
        else None
    )


def matches(sums: bytes, blocks: Iterable[bytes]) -> bool:
    """Whether a file is what its sums were made of.

    Args:
        sums: The sidecar: `crc`, a zero byte, the chunk length, then the CRC-32 of each chunk, each of four
            bytes, most first (Hadoop's ChecksumFileSystem; the sums are those of `zlib.crc32`).
        blocks: The file.
    """
    if len(sums) < _HEAD.size or len(sums) % 4:
        return False
    magic, chunk = _HEAD.unpack_from(sums)
    if magic != MAGIC or not 0 < chunk <= _MAX_CHUNK:
        return False
    expected = memoryview(sums)[_HEAD.size :]
    place = 0
    for piece in _chunks(blocks, chunk):
        if expected[place : place + 4] != zlib.crc32(piece).to_bytes(4, "big"):
            return False
        place += 4
    return place == len(expected)


def _chunks(blocks: Iterable[bytes], size: int) -> Iterator[memoryview]:
    rest = b""
    for block in blocks:
        data = memoryview(rest + block if rest else block)
        whole = len(data) - len(data) % size
        for start in range(0, whole, size):
            yield data[start : start + size]
        rest = bytes(data[whole:])
    if rest:
        yield memoryview(rest)
