"""`_metadata/schema` and `_stateSchema/*`: the schema of a state store, in Java's binary text form."""

from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.logfile import parse_object, shown

KNOWN_VERSION = 3
_CHUNKED, _FAMILIES = 2, 3
_ID_BYTES = 2


def parse_schema(where: str, data: bytes) -> int:
    """The format version of a schema file, after a look at what follows it.

    Version 1 is a key and a value schema, each one text; version 2 (Spark 3.0) cuts each into texts of at
    most 64 KiB with their count before them. Version 3 has, for each column family, its name, both schemas with
    their number before them, how keys are encoded, and the schema of the user's key.

    Raises:
        CheckpointFormatError: cut off, no JSON, or of an unknown version.
    """
    if not data:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    version, place = _text(where, data, 0)
    number = int(version[1:]) if version[:1] == "v" and version[1:].isdecimal() else 0
    if number < 1:
        raise CheckpointFormatError(where, f"It starts with {shown(version)}.", code="unparseable-file")
    if number > KNOWN_VERSION:
        raise CheckpointFormatError(
            where,
            f"It has format version {number}; versions 1 to {KNOWN_VERSION} are known.",
            code="unknown-version",
        )
    if number == _FAMILIES:
        families, place = _number(where, data, place)
        for _ in range(families):
            _, place = _text(where, data, place)
            for id_bytes in (_ID_BYTES, _ID_BYTES, 0):
                text, place = _chunks(where, data, place + id_bytes)
                parse_object(where, text)
            _, place = _chunks(where, data, place)  # one that it cannot parse Spark takes for none
        return number
    for _ in ("key", "value"):
        text, place = (_chunks if number == _CHUNKED else _text)(where, data, place)
        parse_object(where, text)
    return number


def _chunks(where: str, data: bytes, place: int) -> tuple[str, int]:
    """A text in pieces, with their count before them, and the place behind it."""
    count, place = _number(where, data, place)
    pieces = []
    for _ in range(count):
        piece, place = _text(where, data, place)
        pieces.append(piece)
    return "".join(pieces), place


def _text(where: str, data: bytes, place: int) -> tuple[str, int]:
    length = int.from_bytes(data[place : place + 2], "big")
    end = place + 2 + length
    if len(data) < place + 2 or len(data) < end:
        raise CheckpointFormatError(where, "It is cut off.", code="truncated-file")
    return data[place + 2 : end].decode("utf-8", "replace"), end


def _number(where: str, data: bytes, place: int) -> tuple[int, int]:
    if len(data) < place + 4:
        raise CheckpointFormatError(where, "It is cut off.", code="truncated-file")
    return int.from_bytes(data[place : place + 4], "big"), place + 4
