"""How Spark reads folders of files."""

import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.checkpoint import SourceFile, SourceOffset
from tidemill.connectors.answers import SOURCE, Continuation, ExternalData, Period, SourceSpan, Start
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.connector import Binding, Connector, Reading, SourceContext
from tidemill.connectors.external_keys import folder_key
from tidemill.connectors.files.addresses import (
    file_address,
    is_glob,
    is_on_store,
    is_unknown,
    plain_path,
    source_path,
    without_glob,
)
from tidemill.connectors.files.backlog import Relocation, logged_files, waiting_files
from tidemill.connectors.files.listing import listed_files, missing_paths, present_files
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.files.span import files_span, missing_files
from tidemill.connectors.known_options import option_of
from tidemill.errors import TerminalError
from tidemill.text.ddl import ddl_columns
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    from tidemill.storage.lake import Lake
    from tidemill.target.target import Target

# Spark skips files that are older than this, relative to the newest one, without a warning: a backfilled old
# file would be lost. A hundred years means never.
MAX_FILE_AGE = "36500d"


class FileConnector(Connector[FileSource]):
    """Folders of files (Spark guide, "Input Sources", file source)."""

    kind = "file"
    position = FilePosition

    def binding(self, source: FileSource, target: "Target") -> Binding:
        """Return the folder."""
        return folder_binding(source.path, target)

    def describe_binding(self, binding: Binding) -> str:
        """Return the folder."""
        return f"the folder {binding['path']}"

    def difference(self, source: FileSource, recorded: Binding, now: Binding) -> str | None:
        """Return that the folder is another one; None where it is the same, or has moved with the lake."""
        same = recorded["path"] == now["path"] or has_moved(recorded, now)
        return None if same else self.changed(recorded, now)

    def backlog(self, source: FileSource, reading: Reading) -> Backlog:
        """Return the files that no batch has read."""
        return waiting_files(
            source.path,
            reading.offset,
            lake=reading.target.lake,
            checkpoint=reading.checkpoint,
            name=reading.name,
            what=source.describe(),
            options=source.options,
            relocation=relocation_of(reading.record.binding, self.binding(source, reading.target)),
            is_ordered=source.is_ordered,
        )

    def missing_from_batch(
        self, source: FileSource, reading: Reading, planned: SourceOffset, now: Binding | None
    ) -> tuple[str, ...]:
        """Return the files of a batch that are missing, unless the source is declared to leave them out."""
        if option_of(source.options, "ignoremissingfiles") == "true":
            return ()
        return tuple(missing_paths(_files_of_batch(reading, planned, now), reading.target.lake))

    def load_again(
        self, source: FileSource, context: SourceContext, reading: Reading, end: SourceOffset
    ) -> "DataFrame | None":
        """Return the rows of the batch's files that are still there."""
        paths = set(_files_of_batch(reading, end, self.binding(source, reading.target)))
        present = sorted(paths - set(missing_paths(paths, reading.target.lake)))
        if not present or source.format == "binaryFile":
            return None
        columns = context.schemas.get(reading.name) if source.infers_schema else source.columns
        reader = context.spark.read.format(source.format).options(**source.options)
        # With the folder, values of `column=value` in paths are columns, as where it streams.
        reader = reader.option("basePath", without_glob(source_path(source.path)))
        return (reader if columns is None else reader.schema(columns)).load(present)

    def readdressed(self, recorded: Binding, now: Binding) -> Callable[[str], str] | None:
        """Return the address now of a logged file; None where lake and folder have not moved."""
        relocation = relocation_of(recorded, now)
        return None if relocation is None else relocation.address

    def span(self, source: FileSource, reading: Reading, period: Period) -> SourceSpan:
        """Return the files of a period."""
        return files_span(source, _read_files(reading), period, reading.target.lake)

    def span_read(self, reading: Reading) -> SourceSpan:
        """Return the files that a checkpoint has read."""
        files = tuple(_read_files(reading))
        return SourceSpan(reads=pluralize(len(files), "file"), files=files)

    def missing(self, source: FileSource, reading: Reading) -> tuple[str, ...]:
        """Return that files are missing."""
        files = logged_files(reading.checkpoint, reading.name)
        return missing_files(source.describe(), (file.path for file in files), reading.target.lake)

    def now(self, source: FileSource, reading: Reading) -> Start:
        """Return that all files of the folder count as read."""
        present = listed_files(source.path, source.options, reading.target.lake)
        files = tuple(
            SourceFile(file_address(path), status.modified_ms, 0)
            for path in sorted(present.paths)
            if (status := present.status(path)) is not None
        )
        skipped = f"those of {pluralize(len(files), 'file')} of {source.describe()} that no batch has read"
        return Start(offset=json.dumps({"logOffset": 0}, separators=(",", ":")), files=files, skipped=skipped)

    def start_where_it_is(self, reading: Reading, raw: str) -> Start:
        """Refuse: the files that are read have no offsets."""
        raise TerminalError(
            f"its source {reading.name!r} is a folder, whose files have no offsets.",
            fix="give --from now.",
            code="start-invalid",
        )

    def fits(self, source: FileSource, reading: Reading) -> bool:
        """Return whether all files that were read are in the folder, up to the first pattern in it."""
        folder = without_glob(source_path(source.path).rstrip("/"))
        files = logged_files(reading.checkpoint, reading.name)
        is_here = (plain_path(file.path).startswith(f"{folder}/") for file in files)
        return FilePosition.of(reading.offset) is not None and all(is_here)

    def has_read(self, reading: Reading) -> str:
        """Return a file that was read."""
        if FilePosition.of(reading.offset) is None:
            return ""
        files = logged_files(reading.checkpoint, reading.name)
        return f"files such as {next((plain_path(file.path) for file in files), 'no file')}"

    def continuation(
        self, source: FileSource, reading: Reading, now: Binding, *, from_beginning: bool
    ) -> Continuation | None:
        """Return that files with the same path below the new folder count as read."""
        old = reading.record.binding
        if (
            from_beginning
            or old is None
            or old["kind"] != self.kind
            or FilePosition.of(reading.offset) is None
        ):
            return None
        relocation = Relocation(old["path"], now["path"])
        present = set(listed_files(now["path"], source.options, reading.target.lake).paths)
        logged = [file.path for file in logged_files(reading.checkpoint, reading.name)]
        read = {plain_path(relocation.address(address)) for address in logged}
        return Continuation(
            effects=(
                f"The stream has read {pluralize(len(logged), 'file')} in {old['path']}.",
                f"Read already, by their path below {now['path']}: {pluralize(len(read & present), 'file')}.",
                f"Not read yet: {pluralize(len(present - read), 'file')}.",
            ),
            address=relocation.address,
        )

    def external(self, source: FileSource, target: "Target | None") -> Iterator[ExternalData]:
        """Yield the folder."""
        yield ExternalData(
            path=folder_key("files", source.path),
            kind="file",
            description=f"{source.describe()}.",
            metadata={SOURCE: source.path},
        )

    def inferred_schema(self, source: FileSource, spark: "SparkSession") -> str | None:
        """Return the columns of the files that are there, as Spark infers them."""
        if not source.infers_schema:
            return None
        from pyspark.errors import AnalysisException

        reader = spark.read.format(source.format).option("inferSchema", "true").options(**source.options)
        try:
            columns = reader.load(spark_path(source.path)).schema.jsonValue()
        except AnalysisException as error:
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                raise
            columns = {"fields": []}
        if not columns["fields"]:
            raise TerminalError(
                f"the columns of {source.describe()} are inferred by the first run, and no file has any yet.",
                fix="run it again when there are files, or declare them with schema=.",
                code="schema-unknown",
            )
        return ", ".join(ddl_columns(columns, " ", field=source.describe()))

    def signature(self, source: FileSource, lake: "Lake") -> Hashable:
        """Return the files with their sizes and times; None where only Spark can list them."""
        if is_unknown(source_path(source.path)):
            return None
        try:
            present = listed_files(source.path, source.options, lake)
        except OSError:  # it is reported where the files are read
            return None
        return tuple((path, present.status(path)) for path in sorted(present.paths))

    def load(self, source: FileSource, context: SourceContext, name: str) -> "DataFrame":
        """Return the rows of the files; only those of new files where it streams."""
        columns = context.schemas.get(name) if source.infers_schema else source.columns
        if not source.streaming:
            return _snapshot(source, context, columns)
        reader = context.spark.readStream.name(name).format(source.format)
        if columns is not None:
            reader = reader.schema(columns)
        reader = limited(reader, source.max_files_per_batch, source.max_bytes_per_batch)
        return reader.options(**_spark_options(source.options)).load(streamed(source.path, context.target))


def _snapshot(source: FileSource, context: SourceContext, columns: "str | StructType | None") -> "DataFrame":
    """Return the rows of all files that are there; Spark lists them now, and reads them in each batch."""
    if not is_unknown(source_path(source.path)):
        present_files(source.path, source.options, context.target.lake, what=source.describe())
    reader = context.spark.read.format(source.format).options(**source.options)
    return (reader if columns is None else reader.schema(columns)).load(spark_path(source.path))


def _files_of_batch(reading: Reading, end: SourceOffset, now: Binding | None) -> list[str]:
    """Return the paths of the files from the position of a reading to an end.

    Args:
        now: The binding of this run; that of the record may be an earlier one.
    """
    last, first = FilePosition.of(end), FilePosition.of(reading.offset)
    if last is None:
        return []
    relocation = relocation_of(reading.record.binding, now)
    files = logged_files(reading.checkpoint, reading.name)
    batch = (file for file in files if (-1 if first is None else first.entry) < file.entry <= last.entry)
    return [plain_path(file.path if relocation is None else relocation.address(file.path)) for file in batch]


def _read_files(reading: Reading) -> Iterator[SourceFile]:
    """Yield the files that are read up to a position."""
    position = FilePosition.of(reading.offset)
    last = -1 if position is None else position.entry
    return (file for file in logged_files(reading.checkpoint, reading.name) if file.entry <= last)


def spark_path(path: str) -> str:
    """Return the folder, file or glob of a source as Spark takes it: S3 has one scheme there."""
    return source_path(path) if is_on_store(source_path(path)) else path


def _spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the address of an archive as Spark takes it."""
    return {
        name: spark_path(value) if name.lower() == "sourcearchivedir" else value
        for name, value in options.items()
    }


def streamed(path: str, target: "Target") -> str:
    """Return the same as Spark streams it.

    On a store a folder is missing until it has a file, and Spark refuses to stream a missing one; the same name as a
    pattern is one that nothing matches yet.
    """
    folder = spark_path(path)
    if not is_on_store(folder) or is_glob(folder) or target.lake.elsewhere(folder).has_files():
        return folder
    return f"{folder[:-1]}[{folder[-1]}]"


def limited(
    reader: "DataStreamReader", max_files_per_batch: int | None, max_bytes_per_batch: int | None
) -> "DataStreamReader":
    """Return a file reader with limits: batches of bounded size, and no file too old to be read."""
    reader = reader.option("maxFileAge", MAX_FILE_AGE)
    if max_bytes_per_batch:
        return reader.option("maxBytesPerTrigger", str(max_bytes_per_batch))
    if max_files_per_batch:
        return reader.option("maxFilesPerTrigger", str(max_files_per_batch))
    return reader


# `Path` resolves nothing here; `os` compares paths as strings, as Spark does.
def folder_binding(path: str, target: "Target") -> "Binding":
    """Return a folder: its path, and, where it lies next to the lake, its path as seen from the lake."""
    absolute = source_path(path)
    if "://" in absolute:
        return {"kind": "file", "path": absolute if is_on_store(absolute) else path, "from_lake": None}
    lake = target.lake.uri
    is_beside = "://" not in lake and Path(absolute).is_relative_to(Path(lake).parent)
    return {
        "kind": "file",
        "path": absolute,
        "from_lake": os.path.relpath(absolute, lake) if is_beside else None,
    }


def has_moved(recorded: "Binding", now: "Binding") -> bool:
    """Return whether a folder is at the same path as seen from the lake, and lake and folder have moved."""
    return (
        recorded["kind"] == now["kind"] == "file"
        and recorded["path"] != now["path"]
        and recorded["from_lake"] is not None
        and recorded["from_lake"] == now["from_lake"]
    )


def relocation_of(recorded: "Binding | None", now: "Binding | None") -> Relocation | None:
    """Return where a source's log has its files and where they are now; None where they have not moved."""
    if recorded is None or now is None or not has_moved(recorded, now):
        return None
    return Relocation(recorded["path"], now["path"])
