"""Avro files without a library (Avro specification, "Object Container Files")."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_SYNC = b"sixteen bytes   "


def write_avro(path: Path, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows of columns without nulls into a file.

    Args:
        path: The file.
        columns: The type of each column by its name, `string` or `long`.
        rows: Their values, in the order of the columns.
    """
    fields = [{"name": name, "type": kind} for name, kind in columns.items()]
    schema = json.dumps({"type": "record", "name": "row", "fields": fields})
    settings = _long(1) + _bytes(b"avro.schema") + _bytes(schema.encode()) + _long(0)
    values = [b"".join(map(_value, row)) for row in rows]
    block = _long(len(values)) + _bytes(b"".join(values))
    path.write_bytes(b"Obj\x01" + settings + _SYNC + block + _SYNC)


def _value(value: str | int) -> bytes:
    return _bytes(value.encode()) if isinstance(value, str) else _long(value)


def _bytes(content: bytes) -> bytes:
    return _long(len(content)) + content


def _long(number: int) -> bytes:
    """Return a number as Avro writes it: zigzag, seven bits per byte, the lowest first."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    return bytes([*encoded, left])
