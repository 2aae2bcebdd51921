"""The `.NAME.crc` files that Hadoop keeps beside each file of a local file system."""

import struct
import zlib
from collections.abc import Iterable, Iterator

MAGIC = b"crc\0"
_HEAD = struct.Struct(">4sI")
_MAX_CHUNK = 1 << 20


def sidecar(name: str) -> str:
    """Return the name of the checksum file of a file."""
    return f".{name}.crc"


def matches(checksums: bytes, blocks: Iterable[bytes]) -> bool:
    """Return whether a file has the checksums in its sidecar.

    Args:
        checksums: The sidecar: `crc`, a zero byte, the chunk length, then the CRC-32 of each chunk, each of
            four bytes, big-endian (Hadoop's ChecksumFileSystem; the CRC-32 is that of `zlib.crc32`).
        blocks: The file.
    """
    if len(checksums) < _HEAD.size or len(checksums) % 4:
        return False
    magic, chunk = _HEAD.unpack_from(checksums)
    if magic != MAGIC or not 0 < chunk <= _MAX_CHUNK:
        return False
    expected = memoryview(checksums)[_HEAD.size :]
    position = 0
    for piece in _chunks(blocks, chunk):
        if expected[position : position + 4] != zlib.crc32(piece).to_bytes(4, "big"):
            return False
        position += 4
    return position == len(expected)


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
