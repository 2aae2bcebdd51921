"""Folders of files as a source: json, csv, text, parquet, orc."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from tidemill.connectors.known_options import FILE_OPTIONS, FORMAT_OPTIONS, known_options
from tidemill.definitions.source import MAX_FILES_PER_BATCH, Source, positive
from tidemill.errors import DefinitionError
from tidemill.text.sql_parsing import valid_schema

FileFormat = Literal["json", "csv", "text", "parquet", "orc"]


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

    kind = "file"
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
            schema = valid_schema(self.schema, field=f"FileSource {self.path!r}: schema")
            object.__setattr__(self, "schema", schema)
        known_options(
            self.options, FILE_OPTIONS | FORMAT_OPTIONS[self.format], field=f"FileSource {self.path!r}"
        )
        positive(self.max_files_per_batch, field=f"FileSource {self.path!r}: max_files_per_batch")
        positive(self.max_bytes_per_batch, field=f"FileSource {self.path!r}: max_bytes_per_batch")
        archive = {k.lower(): v for k, v in self.options.items()}.get("sourcearchivedir")
        if archive is not None and (archive.rstrip("/") + "/").startswith(self.path.rstrip("/") + "/"):
            raise DefinitionError(
                f"FileSource {self.path!r}: sourceArchiveDir {archive!r} is inside the source, "
                "so archived files would be read again; choose a folder outside it.",
                code="arguments-conflict",
            )

    def describe(self) -> str:
        """Return the format and the folder."""
        return f"{self.format} files in {self.path}"
