"""The check of one file of a checkpoint against the format that its path implies: a log entry, a schema.

`quick` reads what takes no time; `full` decompresses archives, reads compressed streams and every line of a
source's log, and compares the checksums beside the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from tidemill.checkpoint.format.errors import CheckpointFormatError, FileAbsentError
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.hadoop_checksum import matches, sidecar
from tidemill.checkpoint.format.logfile import batch_number
from tidemill.checkpoint.format.logs import commit_entry, offset_entry, query_id
from tidemill.checkpoint.format.lz4 import Lz4FormatError, check_checksums, check_framing, ends_whole
from tidemill.checkpoint.format.operators import parse_operator
from tidemill.checkpoint.format.rocksdb import check_members, snapshot_tables
from tidemill.checkpoint.format.schema_file import parse_schema
from tidemill.checkpoint.format.spark_checksum import crc32c, parse_spark_checksum
from tidemill.checkpoint.format.state_files import StateFile
from tidemill.checkpoint.positions import Position

LZ4 = "lz4"
_MAX_CHECKSUMS = 256 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """The check of files by their paths in one checkpoint.

    Attributes:
        positions: The position of the source of each folder below `sources/`.
        codec: The codec of state files (pinned conf); only `lz4`, Spark's default, is decompressed.
        full: True to read everything.
    """

    folder: Folder
    positions: Mapping[str, Position]
    codec: str
    full: bool

    def problem(self, path: str) -> CheckpointFormatError | None:
        """Return the problem of a file; None if the file is sound or of an unknown kind."""
        try:
            self._check(path)
        except CheckpointFormatError as problem:
            return problem
        return None

    def matches_checksums(self, path: str) -> bool | None:
        """Return whether a file matches the Hadoop checksums next to it; None if there are none."""
        parent, slash, name = path.rpartition("/")
        try:
            checksums = self.folder.read(f"{parent}{slash}{sidecar(name)}", _MAX_CHECKSUMS)
        except FileAbsentError:
            return None
        except CheckpointFormatError:
            return False
        try:
            return matches(checksums, self.folder.blocks(path))
        except CheckpointFormatError:
            return None  # the file itself is unreadable, which is reported elsewhere

    def _check(self, path: str) -> None:
        match path.split("/"):
            case [*_, name] if name.startswith("."):
                return  # checksums and temporary files
            case ["metadata"]:
                query_id(self.folder)
            case ["offsets", name] if (batch := batch_number(name)) is not None:
                offset_entry(self.folder, batch)
            case ["commits", name] if (batch := batch_number(name)) is not None:
                commit_entry(self.folder, batch)
            case ["sources", key, name]:
                self.positions.get(key, Position()).check_file(self.folder, path, name, full=self.full)
            case ["state", *rest]:
                self._state_file(path, rest)

    def _state_file(self, path: str, rest: list[str]) -> None:
        match rest:
            case [operator, "_metadata", "metadata"] | [operator, "_metadata", "v2", _]:
                number = batch_number(operator)
                if number is not None:
                    parse_operator(number, self.folder.read(path), path)
            case [*_, "_metadata", "schema"] | [_, "_stateSchema", _, _]:
                parse_schema(path, self.folder.read(path))
            case [*_, "SSTs", name] if name.endswith(".sst"):
                self._state(path)
            case [*_, name] if StateFile.parse(name) is not None:
                self._state(path)

    def _state(self, path: str) -> None:
        item = self.folder.item(path)
        if item is None:
            raise FileAbsentError(path)
        if item.kind == "file" and item.size == 0:
            raise CheckpointFormatError(path, "The file is empty.", code="empty-file")
        archive = path.endswith((".zip", ".sst"))
        stream = self.codec == LZ4 and not archive
        with self.folder.open(path) as file:
            if path.endswith(".zip"):
                snapshot_tables(path, file)
                if self.full:
                    check_members(path, file)
            elif stream and self.full:
                self._stream(path, file, item.size)
            elif stream and not ends_whole(file, item.size):
                raise CheckpointFormatError(path, "It is damaged: it is truncated.", code="damaged-state")
        self._spark_checksum(path, item.size)
        # Hadoop compares its checksums when it copies an archive, not when it opens a delta or a changelog.
        if archive and self.full and self.matches_checksums(path) is False:
            raise CheckpointFormatError(path, "It does not match its checksums.", code="damaged-state")

    def _stream(self, path: str, file: BinaryIO, size: int) -> None:
        try:
            check_framing(file, size)
            if not self.matches_checksums(path):
                file.seek(0)
                check_checksums(file)
        except Lz4FormatError as error:
            raise CheckpointFormatError(path, f"It is damaged: {error}.", code="damaged-state") from None

    def _spark_checksum(self, path: str, size: int) -> None:
        beside = f"{path}.crc"
        if not self.folder.has(beside):
            return
        expected = parse_spark_checksum(beside, self.folder.read(beside))
        if expected.size != size:
            raise CheckpointFormatError(
                path, f"It has {size} bytes; {beside} expects {expected.size}.", code="damaged-state"
            )
        if not self.full or (self.matches_checksums(path) and self.matches_checksums(beside)):
            return  # both files are as Spark wrote them, so they match each other
        if crc32c(self.folder.blocks(path)) != expected.crc32c:
            raise CheckpointFormatError(
                path, f"It does not match the checksum in {beside}.", code="damaged-state"
            )
