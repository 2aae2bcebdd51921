"""`NAME.crc` beside a state file: Spark's own checksum of the file, with its size, in JSON.

Spark writes it since 4.1 where state has unique ids (`spark.sql.streaming.checkpoint.fileChecksum.enabled`) and
enforces it: a state file that does not match its checksum is not loaded. A file without a checksum is loaded.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.logfile import decode, excerpt, long_field, parse_object

ALGORITHM = "CRC32C"
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class SparkChecksum:
    """Spark's checksum of a state file.

    Attributes:
        size: The file's bytes.
        crc32c: The CRC-32C of the file.
    """

    size: int
    crc32c: int


def parse_spark_checksum(where: str, data: bytes) -> SparkChecksum:
    """Parse a `NAME.crc`.

    Raises:
        CheckpointFormatError: The file is damaged, or its algorithm is unknown.
    """
    fields = parse_object(where, decode(where, data))
    if fields.get("algorithm") != ALGORITHM:
        raise CheckpointFormatError(
            where, f"Its algorithm is {excerpt(repr(fields.get('algorithm')))}.", code="unparseable-file"
        )
    return SparkChecksum(
        long_field(where, fields, "mainFileSize"), long_field(where, fields, "value") & _MASK
    )


def crc32c(blocks: Iterable[bytes]) -> int:
    """Return the CRC-32C of a file."""
    from google_crc32c import extend  # only full verification needs it

    crc = 0
    for block in blocks:
        crc = extend(crc, block)
    return crc
