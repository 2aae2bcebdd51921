"""`NAME.crc` beside a state file: Spark's own sum of it, with its size, in JSON.

Written since Spark 4.1 where state has unique ids (`spark.sql.streaming.checkpoint.fileChecksum.enabled`),
and enforced: a state file that does not fit its sum is not loaded. Without the sum, it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.logfile import decode, long_field, parse_object, shown

ALGORITHM = "CRC32C"
_POLYNOMIAL = 0x82F63B78
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class FileSum:
    """Spark's sum of a state file.

    Attributes:
        size: The file's bytes.
        crc32c: The CRC-32C of the file.
    """

    size: int
    crc32c: int


def parse_file_sum(where: str, data: bytes) -> FileSum:
    """The sum in a `NAME.crc`.

    Raises:
        CheckpointFormatError: damaged, or of another algorithm.
    """
    fields = parse_object(where, decode(where, data))
    if fields.get("algorithm") != ALGORITHM:
        raise CheckpointFormatError(
            where, f"Its algorithm is {shown(repr(fields.get('algorithm')))}.", code="unparseable-file"
        )
    return FileSum(long_field(where, fields, "mainFileSize"), long_field(where, fields, "value") & _MASK)


def crc32c(blocks: Iterable[bytes]) -> int:
    """The CRC-32C of a file, at some megabytes a second: for files that no quicker sum vouches for."""
    crc = _MASK
    for block in blocks:
        for byte in block:
            crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _MASK


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_entry(value) for value in range(256))
