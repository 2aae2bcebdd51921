"""Folders of files as a source: json, csv, text, parquet, orc."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.sources.known_options import FILE_OPTIONS, FORMAT_OPTIONS, known_options
from pipelines.streaming.sources.source import Source, SourceContext, positive
from pipelines.streaming.sql import valid_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

FileFormat = Literal["json", "csv", "text", "parquet", "orc"]

# Spark skips files that are older than this, relative to the newest one, without a warning: a backfilled old
# file would be lost. A hundred years means never.
MAX_FILE_AGE = "36500d"
# A restart reads the last committed batch's file list again, about 3 ms per file, so batches stay small.
MAX_FILES_PER_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    """Files of a folder, each read once (Spark guide, "Input Sources", file source).

    Attributes:
        path: A folder or a glob of folders.
        format: json, csv, text, parquet or orc.
        schema: A DDL schema; required, because an inferred one changes with the data. text has its own.
        max_files_per_batch: The most files per micro-batch; None: no limit.
        max_bytes_per_batch: The most bytes of files per micro-batch, or one file that is larger. It
            replaces `max_files_per_batch`: Spark's file source has one limit.
        options: Further options of the format, and of the file source.
    """

    path: str
    format: FileFormat
    schema: str | None = None
    max_files_per_batch: int | None = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise DefinitionError(f"FileSource: path is {self.path!r}; name a folder.")
        if self.format not in get_args(FileFormat):
            raise DefinitionError(
                f"FileSource {self.path!r}: format is {self.format!r}; "
                f"use one of {', '.join(get_args(FileFormat))}."
            )
        if self.schema is None and self.format != "text":
            raise DefinitionError(f"FileSource {self.path!r}: schema is missing; write it as DDL.")
        if self.schema is not None:
            schema = valid_schema(self.schema, what=f"FileSource {self.path!r}: schema")
            object.__setattr__(self, "schema", schema)
        known_options(
            self.options, FILE_OPTIONS | FORMAT_OPTIONS[self.format], what=f"FileSource {self.path!r}"
        )
        positive(self.max_files_per_batch, what=f"FileSource {self.path!r}: max_files_per_batch")
        positive(self.max_bytes_per_batch, what=f"FileSource {self.path!r}: max_bytes_per_batch")
        archive = {k.lower(): v for k, v in self.options.items()}.get("sourcearchivedir")
        if archive is not None and (archive.rstrip("/") + "/").startswith(self.path.rstrip("/") + "/"):
            raise DefinitionError(
                f"FileSource {self.path!r}: sourceArchiveDir {archive!r} is inside the source, "
                "so archived files would be read again; choose a folder outside it."
            )

    def describe(self) -> str:
        """Return the format and the folder."""
        return f"{self.format} files in {self.path}"

    def load(self, context: SourceContext, name: str) -> "DataFrame":
        """Return a streaming DataFrame of the files' rows."""
        reader = context.spark.readStream.name(name).format(self.format)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        reader = limited(reader, self.max_files_per_batch, self.max_bytes_per_batch)
        return reader.options(**self.options).load(self.path)


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
