"""`_metadata/schema` and `_stateSchema/*`: the schema of a state store, as Java's UTF strings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.logfile import excerpt, parse_object

KNOWN_VERSION = 3
_CHUNKED, _FAMILIES = 2, 3
_ID_BYTES = 2
_VOID = ("void", "null")  # the second in Spark before 3.1


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The schema of a state store.

    Attributes:
        version: The format version of the file.
        key: The schema of the keys; with column families, of the keys of the first one.
    """

    version: int
    key: Mapping[str, Any]

    @property
    def one_key(self) -> bool:
        """True if all rows have the same key, as in a global aggregation or a global limit."""
        fields = self.key.get("fields")
        return isinstance(fields, list) and all(
            isinstance(field, dict) and field.get("type") in _VOID for field in fields
        )


def parse_schema(where: str, data: bytes) -> StateSchema:
    """Parse a schema file and check it to its end.

    Version 1 is a key schema and a value schema, one string each. Version 2 (Spark 3.0) splits each schema into
    strings of at most 64 KiB, preceded by their count. Version 3 has per column family its name, both schemas
    with their number before them, the encoding of keys, and the schema of the user's key.

    Raises:
        CheckpointFormatError: The file is truncated, not JSON, or of an unsupported version.
    """
    if not data:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    version, position = _string(where, data, 0)
    number = int(version[1:]) if version[:1] == "v" and version[1:].isdecimal() else 0
    if number < 1:
        raise CheckpointFormatError(where, f"It starts with {excerpt(version)}.", code="unparseable-file")
    if number > KNOWN_VERSION:
        raise CheckpointFormatError(
            where,
            f"It has format version {number}; versions 1 to {KNOWN_VERSION} are supported.",
            code="unknown-version",
        )
    schemas: list[dict[str, Any]] = []
    if number == _FAMILIES:
        families, position = _number(where, data, position)
        for _ in range(families):
            _, position = _string(where, data, position)
            for id_bytes in (_ID_BYTES, _ID_BYTES, 0):
                schema, position = _chunks(where, data, position + id_bytes)
                schemas.append(parse_object(where, schema))
            _, position = _chunks(where, data, position)  # Spark ignores one that it cannot parse
    else:
        for _ in ("key", "value"):
            schema, position = (_chunks if number == _CHUNKED else _string)(where, data, position)
            schemas.append(parse_object(where, schema))
    return StateSchema(number, schemas[0] if schemas else {})


def _chunks(where: str, data: bytes, position: int) -> tuple[str, int]:
    """Return a string that is stored in pieces after their count, and the position behind it."""
    count, position = _number(where, data, position)
    pieces = []
    for _ in range(count):
        piece, position = _string(where, data, position)
        pieces.append(piece)
    return "".join(pieces), position


def _string(where: str, data: bytes, position: int) -> tuple[str, int]:
    length = int.from_bytes(data[position : position + 2], "big")
    end = position + 2 + length
    if len(data) < position + 2 or len(data) < end:
        raise CheckpointFormatError(where, "It is truncated.", code="truncated-file")
    return data[position + 2 : end].decode("utf-8", "replace"), end


def _number(where: str, data: bytes, position: int) -> tuple[int, int]:
    if len(data) < position + 4:
        raise CheckpointFormatError(where, "It is truncated.", code="truncated-file")
    return int.from_bytes(data[position : position + 4], "big"), position + 4
