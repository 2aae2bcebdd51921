"""The parts that all of Spark's log files share: a version line, lines of JSON, a number as the file name."""

import json
import re
from typing import Any

from tidemill.checkpoint.format.errors import CheckpointFormatError

_MAX_DIGITS = 19  # of a JVM's long
_LINE_END = re.compile(r"\r\n|\n|\r")  # as Scala's Source.getLines splits, not as str.splitlines does
_VERSION = re.compile(r"v([0-9]{1,9})", re.ASCII)

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


def batch_number(name: str) -> int | None:
    """Return the batch of a file name; None for every other name (temporary files, checksums)."""
    # No regular expression: this runs for every name of a log, and there are tens of thousands.
    plain = name.isdigit() and name.isascii() and len(name) <= _MAX_DIGITS
    return int(name) if plain and (name[0] != "0" or name == "0") else None


def decode(where: str, data: bytes) -> str:
    """Decode the content of a log file.

    Raises:
        CheckpointFormatError: The file is empty or not UTF-8.
    """
    if not data:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointFormatError(
            where, f"It is not UTF-8 (byte {error.start}).", code="unparseable-file"
        ) from None


def versioned_lines(where: str, data: bytes, *, known: int) -> tuple[int, list[str]]:
    """Return the version number of a log file and the lines after it.

    Args:
        where: The file, for the error.
        data: The content of the file.
        known: The newest supported version.

    Raises:
        CheckpointFormatError: The file is not UTF-8, has no version line, or its version is not supported; the
            error names the version.
    """
    first, *rest = _LINE_END.split(decode(where, data))
    version = parse_version(where, first.strip(), known=known)
    if rest and not rest[-1]:
        rest.pop()  # a line end at the end of the file starts no line
    return version, rest


def parse_version(where: str, line: str, *, known: int) -> int:
    """Return the number of a version line such as `v1`.

    Raises:
        CheckpointFormatError: The line is not a version line, or its version is not supported.
    """
    match = _VERSION.fullmatch(line)
    if match is None or int(match[1]) < 1:
        raise CheckpointFormatError(
            where,
            f"It starts with {excerpt(line)} instead of a version such as v1.",
            code="unparseable-file",
        )
    version = int(match[1])
    if version > known:
        raise CheckpointFormatError(
            where,
            f"It has format version {version}; versions 1 to {known} are supported.",
            code="unknown-version",
            fix="A newer version of Spark wrote it: read it with a newer release of Tidemill.",
        )
    return version


def parse_json(where: str, string: str) -> Any:
    """Parse a JSON string.

    Raises:
        CheckpointFormatError: The string is not JSON, or nested deeper than any file of Spark.
    """
    try:
        return json.loads(string, parse_constant=_refuse)
    except RecursionError:
        raise CheckpointFormatError(
            where, "Its JSON is nested too deeply.", code="unparseable-file"
        ) from None
    except ValueError as error:
        raise CheckpointFormatError(
            where, f"{excerpt(string)} is not JSON: {error}.", code="unparseable-file"
        ) from None


def parse_object(where: str, string: str) -> dict[str, Any]:
    """Parse a JSON object; raises as `parse_json` does, also for any other JSON value."""
    value = parse_json(where, string)
    if not isinstance(value, dict):
        raise CheckpointFormatError(
            where, f"{excerpt(string)} is not a JSON object.", code="unparseable-file"
        )
    return value


def long_field(where: str, fields: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a 64-bit integer field of a JSON object.

    Raises:
        CheckpointFormatError: The field is missing and has no default, or is not a 64-bit integer.
    """
    value = fields.get(name, default)
    if value is None or not is_long(value):
        raise CheckpointFormatError(
            where, f"{name} is {excerpt(repr(value))}, not a 64-bit integer.", code="unparseable-file"
        )
    return int(value)


def is_long(value: object) -> bool:
    """Return whether a JSON value is an integer that fits a JVM's long."""
    return isinstance(value, int) and not isinstance(value, bool) and LONG_MIN <= value <= LONG_MAX


def excerpt(string: str, limit: int = 60) -> str:
    """Return an untrusted string for a message: quoted, without control characters, truncated."""
    return repr(string if len(string) <= limit else string[:limit] + "…")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
