"""The content of the RocksDB provider's files: the manifest of a snapshot, the lineage of a changelog."""

import errno
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.logfile import is_long, parse_json, parse_object, versioned_lines
from tidemill.checkpoint.format.lz4 import Lz4FormatError, plain_head

_MANIFEST = "metadata"
_MAX_MANIFEST = 64 << 20
_MAX_MEMBER = 1 << 30
_KNOWN_MANIFEST = 2
_LINEAGE_SINCE = 3
_KNOWN_CHANGELOG = 4
_BLOCK = 1 << 20
_HEAD_BYTES = 8 + (1 << 16)  # two Java strings: the version and at most 64 KiB of lineage


@dataclass(frozen=True, slots=True)
class TableFile:
    """One RocksDB table (SST) file that a snapshot refers to.

    Attributes:
        name: Its name in the folder `SSTs`.
        size: Its bytes.
    """

    name: str
    size: int


def snapshot_tables(where: str, file: BinaryIO) -> tuple[TableFile, ...]:
    """Return the table files of a snapshot `V.zip`, from the manifest inside it.

    Raises:
        CheckpointFormatError: The file is not a zip archive, has no manifest, or its manifest is of an
            unsupported version.
    """
    with _opened(where, file, "It is not a complete zip archive") as archive:
        try:
            entry = archive.getinfo(_MANIFEST)
        except KeyError:
            raise CheckpointFormatError(where, "It has no manifest.", code="damaged-snapshot") from None
        if entry.file_size > _MAX_MANIFEST:
            raise CheckpointFormatError(where, "Its manifest is too large.", code="file-too-large")
        data = archive.read(entry)
    inside = f"{where}!{_MANIFEST}"
    _, lines = versioned_lines(inside, data, known=_KNOWN_MANIFEST)
    tables = parse_object(inside, "\n".join(lines)).get("sstFiles")
    parsed = [_table(entry) for entry in tables] if isinstance(tables, list) else [None]
    if None in parsed:
        raise CheckpointFormatError(inside, "sstFiles is not a list of tables.", code="damaged-snapshot")
    return tuple(table for table in parsed if table)


def check_members(where: str, file: BinaryIO) -> None:
    """Decompress everything in a snapshot to verify the checksums inside it.

    Raises:
        CheckpointFormatError: A member is damaged, or far larger than any that RocksDB writes.
    """
    with _opened(where, file, "It is damaged inside") as archive:
        for entry in archive.infolist():
            with archive.open(entry) as member:
                read = 0
                while block := member.read(_BLOCK):
                    read += len(block)
                    if read > _MAX_MEMBER:
                        raise CheckpointFormatError(
                            where, f"{entry.filename!r} in it is too large.", code="file-too-large"
                        )


@contextmanager
def _opened(where: str, file: BinaryIO, damaged: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, and name it in the error of `zipfile` about damage."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise CheckpointFormatError(where, f"{damaged}: {error}.", code="damaged-snapshot") from None
    except OSError as error:
        # A damaged archive may refer to a position before its beginning.
        if error.errno != errno.EINVAL:
            raise
        raise CheckpointFormatError(where, f"{damaged}: {error.strerror}.", code="damaged-snapshot") from None


def lineage(where: str, file: BinaryIO) -> Mapping[int, str]:
    """Return the versions and ids before a changelog, back to the newest snapshot; empty if it has none.

    A changelog starts with its version as a Java UTF string; from version 3 on a JSON list follows.

    Raises:
        CheckpointFormatError: The changelog is damaged or of an unsupported version.
    """
    try:
        head = plain_head(file, _HEAD_BYTES)
    except Lz4FormatError as error:
        raise CheckpointFormatError(where, f"It is damaged: {error}.", code="damaged-state") from None
    version, rest = _java_string(head)
    if not version.startswith("v") or not version[1:].isdecimal():
        return {}  # version 1 has no head
    if int(version[1:]) > _KNOWN_CHANGELOG:
        raise CheckpointFormatError(
            where,
            f"It has format version {int(version[1:])}; versions 1 to {_KNOWN_CHANGELOG} are supported.",
            code="unknown-version",
        )
    if int(version[1:]) < _LINEAGE_SINCE:
        return {}
    items = parse_json(where, _java_string(rest)[0])
    ids: dict[int, str] = {}
    for item in items if isinstance(items, list) else [None]:
        number = item.get("version") if isinstance(item, dict) else None
        unique = item.get("checkpointUniqueId") if isinstance(item, dict) else None
        if not is_long(number) or not isinstance(unique, str):
            raise CheckpointFormatError(where, "Its lineage is not a list of versions.", code="damaged-state")
        ids[int(number or 0)] = unique
    return ids


def _table(entry: object) -> TableFile | None:
    if not isinstance(entry, dict):
        return None
    name, size = entry.get("dfsSstFileName"), entry.get("sizeBytes")
    if not isinstance(name, str) or not is_long(size) or "/" in name or name in {"", ".", ".."}:
        return None
    return TableFile(name, int(size or 0))


def _java_string(data: bytes) -> tuple[str, bytes]:
    """Return a string that DataOutputStream.writeUTF wrote, and the bytes after it."""
    length = int.from_bytes(data[:2], "big")
    return data[2 : 2 + length].decode("utf-8", "replace"), data[2 + length :]
