"""`offsets/N`: the offsets up to which batch N reads, its watermark and the pinned settings.

Spark writes the file before the batch runs, so that a repeated batch reads exactly the same range.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.logfile import excerpt, long_field, parse_object, versioned_lines
from tidemill.checkpoint.format.source_offset import SourceOffset

KNOWN_VERSION = 2
_VOID = "-"

Offsets = Mapping[str, str | None]
"""The offset of each source by its name (or its position, in version 1); None for one of which nothing was read."""


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One file of the offset log.

    Attributes:
        batch_id: The batch.
        version: 1: sources by position; 2 (Spark 4.2): sources by name.
        watermark_ms: The watermark of the batch, milliseconds since the epoch; 0 before any event.
        timestamp_ms: The batch's processing time, milliseconds since the epoch; 0 before Spark 2.2.
        conf: The settings that the checkpoint pins; empty before Spark 2.2.
        sources: The offset of each source, in the order of the file.
    """

    batch_id: int
    version: int
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: tuple[SourceOffset, ...]

    @property
    def offsets(self) -> dict[str, str | None]:
        """The offsets by source."""
        return {source.key: source.raw for source in self.sources}

    def source(self, key: str | int) -> SourceOffset | None:
        """Return the offset of one source by its name (version 2) or position; None without such a source."""
        for source in self.sources:
            if key in (source.name, source.index) or (source.name is None and key == str(source.index)):
                return source
        return None


def parse_offsets(batch_id: int, data: bytes, where: str) -> OffsetEntry:
    """Parse one file of the offset log.

    Raises:
        CheckpointFormatError: The file is empty, truncated, not JSON, or of an unsupported version.
    """
    version, lines = versioned_lines(where, data, known=KNOWN_VERSION)
    if not lines:
        raise CheckpointFormatError(where, "It ends after the version line.", code="truncated-file")
    header = lines[0].strip()
    # Spark 2.0 left the second line empty; 2.1 had no conf (OffsetSeqLog keeps reading both).
    fields = parse_object(where, header) if header else {}
    read = _named if version == KNOWN_VERSION else _positional
    return OffsetEntry(
        batch_id=batch_id,
        version=version,
        watermark_ms=long_field(where, fields, "batchWatermarkMs", 0),
        timestamp_ms=long_field(where, fields, "batchTimestampMs", 0),
        conf=_conf(where, fields.get("conf", {})),
        sources=tuple(read(where, lines[1:])),
    )


def _conf(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise CheckpointFormatError(
            where, f"conf is {excerpt(repr(value))}, not an object of strings.", code="unparseable-file"
        )
    return value


def _positional(where: str, lines: list[str]) -> list[SourceOffset]:
    return [SourceOffset.parse(where, None, index, _raw(line)) for index, line in enumerate(lines)]


def _named(where: str, lines: list[str]) -> list[SourceOffset]:
    offsets: dict[str, SourceOffset] = {}
    for line in lines:
        name, colon, offset = line.partition(":")
        if not colon or not name:
            raise CheckpointFormatError(
                where, f"{excerpt(line)} is not of the form <source>:<offset>.", code="unparseable-file"
            )
        if name in offsets:
            raise CheckpointFormatError(where, f"It has source {name!r} twice.", code="unparseable-file")
        offsets[name] = SourceOffset.parse(where, name, None, _raw(offset))
    return list(offsets.values())


def _raw(offset: str) -> str | None:
    return None if offset == _VOID else offset
