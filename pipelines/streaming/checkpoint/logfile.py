"""What all of Spark's log files share: a version line, lines after it, JSON in them, a number as a name."""

import json
import re
from typing import Any

from pipelines.streaming.checkpoint.errors import CheckpointFormatError

_MAX_DIGITS = 19  # of a JVM's long
_LINE_END = re.compile(r"\r\n|\n|\r")  # as Scala's Source.getLines splits, not as str.splitlines does
_VERSION = re.compile(r"v([0-9]{1,9})", re.ASCII)

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


def batch_number(name: str) -> int | None:
    """The batch that a file name stands for; None for every other name (temporary files, checksums)."""
    # No regular expression: this is called for every name of a log, and there are ten thousands.
    plain = name.isdigit() and name.isascii() and len(name) <= _MAX_DIGITS
    return int(name) if plain and (name[0] != "0" or name == "0") else None


def decode(where: str, data: bytes) -> str:
    """The text of a log file.

    Raises:
        CheckpointFormatError: it is empty or not UTF-8.
    """
    if not data:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointFormatError(
            where, f"It is not text: byte {error.start} is not UTF-8.", code="unparseable-file"
        ) from None


def versioned_lines(where: str, data: bytes, *, known: int) -> tuple[int, list[str]]:
    """The version number and the lines after it.

    Args:
        where: The file, for the error.
        data: The whole file.
        known: The newest version that we read.

    Raises:
        CheckpointFormatError: no text, no version line, or a version that is not known (named by number).
    """
    first, *rest = _LINE_END.split(decode(where, data))
    version = parse_version(where, first.strip(), known=known)
    if rest and not rest[-1]:
        rest.pop()  # a line end at the end of the file starts no line
    return version, rest


def parse_version(where: str, text: str, *, known: int) -> int:
    """The number of a version line such as `v1`."""
    match = _VERSION.fullmatch(text)
    if match is None or int(match[1]) < 1:
        raise CheckpointFormatError(
            where,
            f"It starts with {shown(text)} where a version such as v1 must stand.",
            code="unparseable-file",
        )
    version = int(match[1])
    if version > known:
        raise CheckpointFormatError(
            where,
            f"It has format version {version}; versions 1 to {known} are known.",
            code="unknown-version",
            fix="It was written by a newer Spark: read it with a newer release of Tidemill.",
        )
    return version


def parse_json(where: str, text: str) -> Any:
    """A JSON text.

    Raises:
        CheckpointFormatError: it is none, or nested deeper than any file of Spark.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise CheckpointFormatError(
            where, "Its JSON is nested too deeply.", code="unparseable-file"
        ) from None
    except ValueError as error:
        raise CheckpointFormatError(
            where, f"{shown(text)} is not JSON: {error}.", code="unparseable-file"
        ) from None


def parse_object(where: str, text: str) -> dict[str, Any]:
    """A JSON object; raises as `parse_json` does, also for any other JSON value."""
    value = parse_json(where, text)
    if not isinstance(value, dict):
        raise CheckpointFormatError(where, f"{shown(text)} is not a JSON object.", code="unparseable-file")
    return value


def long_field(where: str, fields: dict[str, Any], name: str, default: int | None = None) -> int:
    """A 64-bit integer of a JSON object.

    Raises:
        CheckpointFormatError: absent without a default, or no such integer.
    """
    value = fields.get(name, default)
    if value is None or not is_long(value):
        raise CheckpointFormatError(
            where, f"{name} is {shown(repr(value))}, not a 64-bit integer.", code="unparseable-file"
        )
    return int(value)


def is_long(value: object) -> bool:
    """Whether a JSON value is an integer that a JVM's long can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and LONG_MIN <= value <= LONG_MAX


def shown(text: str, limit: int = 60) -> str:
    """A text of unknown origin for a message: quoted, without control characters, cut."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
