"""The compressed stream in which Spark writes state: Java's LZ4BlockOutputStream (lz4-java).

A block is `LZ4Block`, one byte of method and level, the compressed and the plain length and a checksum, each
four bytes, little-endian; a block of two zero lengths ends the stream.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from lz4.block import LZ4BlockError, decompress
from xxhash import xxh32_intdigest

MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBIII")
_RAW, _LZ4 = 0x10, 0x20
_SEED = 0x9747B28C  # LZ4BlockOutputStream's
_CHECKSUM_MASK = 0x0FFFFFFF  # StreamingXXHash32.asChecksum drops the four highest bits
_MAX_BLOCK = 32 << 20  # the largest that lz4-java can write


class Lz4FormatError(ValueError):
    """The bytes are not such a stream, or the stream is truncated."""


def ends_whole(file: BinaryIO, size: int) -> bool:
    """Return whether a stream of that size ends with its end block."""
    file.seek(max(0, size - _HEADER.size))
    return file.read(_HEADER.size).startswith(MAGIC) and size >= _HEADER.size


def check_framing(file: BinaryIO, size: int) -> None:
    """Check the headers of a stream's blocks without decompressing them.

    Args:
        file: The stream, at its start.
        size: Its length in bytes.

    Raises:
        Lz4FormatError: A header is wrong, the end block is missing, or bytes follow it.
    """
    for block in _blocks(file):
        if file.tell() + block.packed > size:
            raise Lz4FormatError("it is truncated within a block")
        file.seek(block.packed, 1)
    if file.tell() != size:
        raise Lz4FormatError("bytes follow its end")


def check_checksums(file: BinaryIO) -> None:
    """Decompress a stream and verify the checksum in each block's header, as Spark does when it reads it.

    Raises:
        Lz4FormatError: A block is damaged or truncated.
    """
    for block in _blocks(file):
        if xxh32_intdigest(_plain(file, block), _SEED) & _CHECKSUM_MASK != block.checksum:
            raise Lz4FormatError("the checksum of a block is wrong")


def plain_head(file: BinaryIO, size: int) -> bytes:
    """Return the first plain bytes of a stream: whole blocks until there are `size` bytes or the stream ends.

    Raises:
        Lz4FormatError: One of these blocks is damaged or truncated.
    """
    head = b""
    for block in _blocks(file):
        head += _plain(file, block)
        if len(head) >= size:
            break
    return head


class _Block(NamedTuple):
    packed: int
    plain: int
    checksum: int
    raw: bool


def _blocks(file: BinaryIO) -> Iterator[_Block]:
    while True:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise Lz4FormatError("it is truncated")
        magic, token, packed, plain, checksum = _HEADER.unpack(header)
        method = token & 0xF0
        if magic != MAGIC or method not in (_RAW, _LZ4) or max(packed, plain) > _MAX_BLOCK:
            raise Lz4FormatError("a block has a wrong header")
        if (packed == 0) != (plain == 0) or (method == _RAW and packed != plain):
            raise Lz4FormatError("a block has a wrong length")
        if plain == 0:
            return
        yield _Block(packed, plain, checksum, method == _RAW)


def _plain(file: BinaryIO, block: _Block) -> bytes:
    data = file.read(block.packed)
    if len(data) != block.packed:
        raise Lz4FormatError("it is truncated within a block")
    return data if block.raw else _decompressed(data, block.plain)


def _decompressed(data: bytes, length: int) -> bytes:
    try:
        plain = bytes(decompress(data, uncompressed_size=length))
    except LZ4BlockError:
        raise Lz4FormatError("a block is damaged") from None
    if len(plain) != length:
        raise Lz4FormatError("a block is damaged")
    return plain
