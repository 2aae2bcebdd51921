"""Whether one file of a checkpoint is what its place says: a log entry, a snapshot, a schema.

`quick` reads what can be read at once; `full` unpacks archives, walks compressed streams and every line of a
source's log, and compares the sums that lie beside the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from pipelines.streaming.checkpoint.checksums import matches, sidecar
from pipelines.streaming.checkpoint.errors import CheckpointFormatError, FileAbsentError
from pipelines.streaming.checkpoint.file_sums import crc32c, parse_file_sum
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.logfile import batch_number, is_long, parse_json, parse_object
from pipelines.streaming.checkpoint.lz4 import Lz4FormatError, check_framing, check_sums, ends_whole
from pipelines.streaming.checkpoint.operators import parse_operator
from pipelines.streaming.checkpoint.rocksdb import check_members, snapshot_tables
from pipelines.streaming.checkpoint.schema_file import parse_schema
from pipelines.streaming.checkpoint.source_log import LogEntry, check_ends, read_entry
from pipelines.streaming.checkpoint.source_offset import SourceKind
from pipelines.streaming.checkpoint.state_files import StateFile
from pipelines.streaming.checkpoint.tail import commit_entry, offset_entry, query_id

LZ4 = "lz4"
_MAX_SUMS = 256 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """Checks files by their place in one checkpoint.

    Attributes:
        folder: The checkpoint.
        kinds: Which kind of source writes into which folder below `sources/`.
        codec: The codec of state files (pinned conf); only `lz4`, Spark's default, is looked into.
        full: Whether to read everything.
    """

    folder: Folder
    kinds: Mapping[str, SourceKind]
    codec: str
    full: bool

    def problem(self, path: str) -> CheckpointFormatError | None:
        """What is wrong with a file; None when nothing is, or when nothing is known about such a file."""
        try:
            self._check(path)
        except CheckpointFormatError as problem:
            return problem
        return None

    def sum_matches(self, path: str) -> bool | None:
        """Whether a file is what the sums beside it were made of; None where there are no sums."""
        place, slash, name = path.rpartition("/")
        try:
            sums = self.folder.read(f"{place}{slash}{sidecar(name)}", _MAX_SUMS)
        except FileAbsentError:
            return None
        except CheckpointFormatError:
            return False
        try:
            return matches(sums, self.folder.blocks(path))
        except CheckpointFormatError:
            return None  # the file itself cannot be read, which is said elsewhere

    def _check(self, path: str) -> None:
        match path.split("/"):
            case [*_, name] if name.startswith("."):
                return  # sums and temporary files
            case ["metadata"]:
                query_id(self.folder)
            case ["offsets", name] if (batch := batch_number(name)) is not None:
                offset_entry(self.folder, batch)
            case ["commits", name] if (batch := batch_number(name)) is not None:
                commit_entry(self.folder, batch)
            case ["sources", key, name]:
                self._source(path, key, name)
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

    def _source(self, path: str, key: str, name: str) -> None:
        kind = self.kinds.get(key)
        if kind == "file" and (entry := LogEntry.parse(name)) is not None:
            last = None if self.full else check_ends(self.folder, path)
            files = read_entry(self.folder, path) if self.full else [last] if last else []
            for file in files:
                if not entry.compact and file.entry != entry.number:
                    what = f"Its lines are those of entry {file.entry}: Spark leaves them out."
                    raise CheckpointFormatError(path, what, code="wrong-entry")
        elif kind in ("kafka", "rate") and name == "0":
            self._initial_offset(path, kafka=kind == "kafka")

    def _initial_offset(self, path: str, *, kafka: bool) -> None:
        """Where a source began: a version line and a JSON value, after a zero byte in Spark before 2.1."""
        data = self.folder.read(path).removeprefix(b"\0")
        version, _, value = data.decode("utf-8", "replace").partition("\n")
        if version.strip() != "v1":
            raise CheckpointFormatError(path, "It has no version line.", code="unparseable-file")
        if kafka:
            parse_object(path, value)
        elif not is_long(parse_json(path, value)):
            raise CheckpointFormatError(path, "It holds no number.", code="unparseable-file")

    def _state(self, path: str) -> None:
        item = self.folder.item(path)
        if item is None:
            raise FileAbsentError(path)
        if item.kind == "file" and item.size == 0:
            raise CheckpointFormatError(path, "The file is empty.", code="empty-file")
        archive = path.endswith((".zip", ".sst"))
        stream = self.codec == LZ4 and not archive
        with self.folder.opened(path) as file:
            if path.endswith(".zip"):
                snapshot_tables(path, file)
                if self.full:
                    check_members(path, file)
            elif stream and self.full:
                self._stream(path, file, item.size)
            elif stream and not ends_whole(file, item.size):
                raise CheckpointFormatError(path, "It is damaged: it is cut off.", code="damaged-state")
        self._spark_sum(path, item.size)
        # Hadoop compares the sums when it copies an archive out, not when it opens a delta or a changelog.
        if archive and self.full and self.sum_matches(path) is False:
            raise CheckpointFormatError(path, "The sums beside it do not fit.", code="damaged-state")

    def _stream(self, path: str, file: BinaryIO, size: int) -> None:
        try:
            check_framing(file, size)
            if not self.sum_matches(path):
                file.seek(0)
                check_sums(file)
        except Lz4FormatError as error:
            raise CheckpointFormatError(path, f"It is damaged: {error}.", code="damaged-state") from None

    def _spark_sum(self, path: str, size: int) -> None:
        temporary = f"{path}.crc"
        if self.folder.item(temporary) is None:
            return
        expected = parse_file_sum(temporary, self.folder.read(temporary))
        if expected.size != size:
            raise CheckpointFormatError(
                path, f"It has {size} bytes; its sum is that of {expected.size}.", code="damaged-state"
            )
        if not self.full or (self.sum_matches(path) and self.sum_matches(temporary)):
            return  # both files are what Spark wrote, so they fit each other
        if crc32c(self.folder.blocks(path)) != expected.crc32c:
            raise CheckpointFormatError(
                path, f"It does not fit the sum in {temporary}.", code="damaged-state"
            )
