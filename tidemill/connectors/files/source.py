"""Folders of files as a source: json, csv, xml, text, parquet, orc, avro, and whole files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, get_args

from tidemill.connectors.files.addresses import alternatives, source_path
from tidemill.connectors.known_options import (
    FILE_OPTIONS,
    FORMAT_OPTIONS,
    STREAMED_FILE_OPTIONS,
    known_options,
    option_of,
)
from tidemill.definitions.arguments import ADDED_LATER
from tidemill.definitions.source import MAX_FILES_PER_BATCH, Source, positive
from tidemill.errors import DefinitionError
from tidemill.text.sql_parsing import valid_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FileFormat = Literal["json", "csv", "xml", "text", "parquet", "orc", "avro", "binaryFile"]
FileMode = Literal["append", "static"]
_INFER = "infer"
_WITHOUT_SCHEMA: Mapping[str, str | None] = {
    "text": None,
    "binaryFile": "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY",
}
"""The formats with columns of their own, and the schema that Spark requires of them."""


@dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    """Files of a folder, each read once (Spark guide, "Input Sources", file source); or all of them, as a snapshot.

    ```python
    from tidemill import FileSource

    countries = FileSource(path="/data/countries", format="csv", schema="code STRING, name STRING").static()
    ```

    Attributes:
        path: A folder or a glob of folders: a path, or an address on S3 such as `s3://bucket/folder`.
        format: json, csv, xml, text, parquet, orc, avro or binaryFile (a row per file, with its content). xml needs
            the option `rowTag`.
        schema: A DDL schema or a `StructType`; text and binaryFile have their own. With `"infer"` the first run infers
            it from the files that are there and records it, and files that come later do not change it; `tidemill
            rebuild` and `tidemill reset` infer it again.
        max_files_per_batch: The most files per micro-batch; None: no limit.
        max_bytes_per_batch: The most bytes of files per micro-batch, or one file that is larger. It
            replaces `max_files_per_batch`: Spark's file source has one limit.
        options: Further options of the format, and of the file source.
        mode: `append` reads new files, `static` a snapshot: all files that are there when a query starts.
        is_ordered: Whether the address of each new file comes after those of all earlier ones, as with a time at its
            beginning. On S3, what waits is then known by a listing of the newest files only.
    """

    kind = "file"
    path: str
    format: FileFormat
    schema: "str | StructType | None" = None
    max_files_per_batch: int | None = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    mode: FileMode = "append"
    is_ordered: bool = field(default=False, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise DefinitionError(f"FileSource: path is {self.path!r}; name a folder.")
        if self.format not in get_args(FileFormat):
            raise DefinitionError(
                f"FileSource {self.path!r}: format is {self.format!r}; "
                f"use one of {', '.join(get_args(FileFormat))}."
            )
        if self.schema is None and self.format not in _WITHOUT_SCHEMA:
            raise DefinitionError(
                f"FileSource {self.path!r}: schema is missing; write it as DDL, or let the first run infer it: "
                "schema='infer'."
            )
        if self.format == "binaryFile" and self.schema is not None:
            raise DefinitionError(
                f"FileSource {self.path!r}: binaryFile has the columns {_WITHOUT_SCHEMA[self.format]}; "
                "leave schema out.",
                code="arguments-conflict",
            )
        if self.format == "xml" and not option_of(self.options, "rowtag"):
            raise DefinitionError(
                f"FileSource {self.path!r}: option 'rowTag' is missing; name the element that is a row: "
                "options={'rowTag': 'order'}."
            )
        if self.schema is not None and not self.infers_schema:
            schema = valid_schema(self.schema, field=f"FileSource {self.path!r}: schema")
            object.__setattr__(self, "schema", schema)
        known_options(
            self.options, FILE_OPTIONS | FORMAT_OPTIONS[self.format], field=f"FileSource {self.path!r}"
        )
        positive(self.max_files_per_batch, field=f"FileSource {self.path!r}: max_files_per_batch")
        positive(self.max_bytes_per_batch, field=f"FileSource {self.path!r}: max_bytes_per_batch")
        self._check_archive()
        self._check_mode()

    def _check_mode(self) -> None:
        if self.mode not in get_args(FileMode):
            raise DefinitionError(
                f"FileSource {self.path!r}: mode is {self.mode!r}; use {' or '.join(get_args(FileMode))}."
            )
        streamed = next((option for option in self.options if option.lower() in STREAMED_FILE_OPTIONS), None)
        if streamed is not None and not self.streaming:
            raise DefinitionError(
                f"FileSource {self.path!r}: {streamed} is for a stream of files, and a snapshot reads all of them each "
                "time; leave it out.",
                code="snapshot-not-streamed",
            )

    def _check_archive(self) -> None:
        options = {option.lower(): value for option, value in self.options.items()}
        archive = options.get("sourcearchivedir")
        if archive is None and options.get("cleansource", "").lower() == "archive":
            raise DefinitionError(
                f"FileSource {self.path!r}: cleanSource is 'archive', and no folder is named; add sourceArchiveDir.",
                code="arguments-conflict",
            )
        if archive is not None and _matches(self.path, archive):
            raise DefinitionError(
                f"FileSource {self.path!r}: sourceArchiveDir {archive!r} is inside the source, or contains it, "
                "so archived files could be read again; choose a folder outside it.",
                code="arguments-conflict",
            )

    @property
    def infers_schema(self) -> bool:
        """Whether the first run infers the columns."""
        return self.schema == _INFER and self.format not in _WITHOUT_SCHEMA

    @property
    def columns(self) -> "str | StructType | None":
        """The schema that Spark gets; None where it knows the columns, and where they are inferred."""
        if self.infers_schema:
            return None
        return self.schema or _WITHOUT_SCHEMA.get(self.format)

    @property
    def streaming(self) -> bool:
        """Whether new files trigger the stream; a snapshot does not."""
        return self.mode != "static"

    def static(self) -> "FileSource":
        """Return a snapshot: all files that are in the folder when a query starts; new files trigger nothing.

        A batch that is repeated after a kill reads the files that are there then.

        Raises:
            DefinitionError: An option is for a stream of files.
        """
        return replace(self, mode="static", watermark=None)

    def describe(self) -> str:
        """Return the format and the folder."""
        return f"{self.format} files in {self.path}" + ("" if self.streaming else " (static)")


def _matches(path: str, archive: str) -> bool:
    """Return whether an archive and a source have the same folders, as far down as both go, as Spark compares them."""
    folders = source_path(archive).split("/")
    patterns = (source_path(one).split("/") for one in alternatives(path))
    return any(all(map(fnmatchcase, folders, pattern)) for pattern in patterns)
