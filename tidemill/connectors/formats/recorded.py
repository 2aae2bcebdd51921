"""A format as plain data that a commit can carry."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tidemill.connectors.formats.csv import Csv
from tidemill.connectors.formats.format import Format
from tidemill.connectors.formats.json import Json
from tidemill.connectors.formats.raw import Raw

_FORMATS: Mapping[str, type[Format]] = {kind.kind: kind for kind in (Csv, Json, Raw)}


def recorded(format_: Format) -> dict[str, Any]:
    """Return a format as JSON data: its kind and its arguments."""
    return {"format": format_.kind, **{name: getattr(format_, name) for name in _arguments(type(format_))}}


def format_of(record: Mapping[str, Any]) -> Format:
    """Return the format that was recorded."""
    kind = _FORMATS[record["format"]]
    return kind(**{name: record[name] for name in _arguments(kind)})


def _arguments(kind: type[Format]) -> list[str]:
    return [field.name for field in fields(kind) if field.init]
