"""Write each micro-batch as files into a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, get_args
from uuid import uuid4

from tidemill.connectors.files.sink_log import FileLog, Written
from tidemill.connectors.known_options import WRITER_OPTIONS, known_options
from tidemill.definitions.columns import BATCH, ORIGIN
from tidemill.definitions.sink import Delivery, SinkBatch, SinkContext
from tidemill.errors import DefinitionError, TerminalError
from tidemill.sinks.external_sink import ExternalSink, columns_unsuitable
from tidemill.storage.local_store import LocalStore, local_path
from tidemill.storage.store import Entry, Store
from tidemill.text.durations import parse_duration
from tidemill.text.secret import is_secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.target.target import Target

FileSinkFormat = Literal["parquet", "orc", "avro", "json", "csv", "text"]

_STAGING = "_staging"
_ARGUMENTS = {"path": "path=", "retention": "retention="}


@dataclass(frozen=True)
class FileSink(ExternalSink):
    """Each batch is written as files into a folder, exactly once for readers that use Spark.

    ```python
    from tidemill import Feed, FileSink, Json, Pipeline

    shop = Pipeline("shop")


    @shop.stream(
        source=Feed("orders", format=Json("id STRING, day DATE")),
        sink=FileSink("/exports/orders", format="parquet", partition_by=["day"]),
    )
    def orders(events):
        return events
    ```

    The folder has the layout of Spark's own file sink. Its log, `_spark_metadata`, gets one entry per batch, which
    publishes all files of the batch at once. `spark.read` and `spark.readStream` of the folder itself, without a
    pattern, read the files of the log and no others. A batch that is repeated after an error or a kill is not published
    again. Other readers see every file in the folder, also those of an attempt that was killed before it published:
    give them the files that `FileSink.published(path)` returns.

    The columns `_origin` and `_batch` of a feed are left out. Several streams may write to one folder. The log has
    absolute paths: a folder that was moved or copied has lost its log.

    A rewind and a reset begin a new query: rows that they read again are published again. A backfill and a rebuild
    replace rows of tables and write no files.

    Attributes:
        path: A folder of a local or mounted file system, new or written by such sinks.
        format: parquet, orc, avro, json, csv or text. text takes one STRING column next to those of `partition_by`, and
            csv takes no nested columns.
        partition_by: Columns that become folders, such as `day=2026-01-31`, and are not in the files.
        options: Options of Spark's writer of the format, such as `{"compression": "gzip"}`; for parquet and orc also
            properties that begin with `parquet.` and `orc.`.
        retention: Files that are older, such as `"7 days"`, leave the log with each tenth batch, so that Spark no
            longer reads them. The files are not deleted. None: all files stay in the log.
        name: The name of the sink.
    """

    path: str
    format: FileSinkFormat = "parquet"
    partition_by: Sequence[str] = field(default=(), kw_only=True)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    retention: str | timedelta | None = field(default=None, kw_only=True)
    name: str = field(default="files", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.path, str) or not self.path:
            raise DefinitionError(f"FileSink: path is {self.path!r}; name a folder.")
        local_path(self.path, field="FileSink: the path")
        label = f"FileSink {self.path!r}"
        if self.format not in get_args(FileSinkFormat):
            raise DefinitionError(
                f"{label}: format is {self.format!r}; use one of {', '.join(get_args(FileSinkFormat))}."
            )
        if isinstance(self.partition_by, str) or not all(isinstance(one, str) for one in self.partition_by):
            raise DefinitionError(
                f"{label}: partition_by is {self.partition_by!r}; give a list of columns, such as ['day']."
            )
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if self.retention is not None:
            retention = parse_duration(self.retention, field=f"{label}: retention")
            if not retention:
                raise DefinitionError(f"{label}: retention is 0, so no file would stay in the log.")
            object.__setattr__(self, "retention", retention)
        self._check_options(label)

    def _check_options(self, label: str) -> None:
        for option in self.options:
            if argument := _ARGUMENTS.get(option.lower()):
                raise DefinitionError(
                    f"{label}: options has {option!r}: use {argument}.", code="option-is-argument"
                )
            if is_secret(option):
                raise DefinitionError(
                    f"{label}: {option} is a credential, which belongs to the target's Spark.",
                    code="option-not-allowed",
                )
        of_format = f"{self.format}."
        known_options(
            {name: value for name, value in self.options.items() if not name.startswith(of_format)},
            WRITER_OPTIONS[self.format],
            field=label,
        )

    @property
    def identity(self) -> Mapping[str, object]:
        """Its folder."""
        return {"folder": self.path}

    @property
    def delivery(self) -> Delivery:
        """The log has each batch once; readers of Spark see the files in it."""
        return "exactly once"

    @property
    def forgets_batches(self) -> bool:
        """Another stream that writes into the folder may take all files of this one out of the log."""
        return self.retention is not None

    def connection(self, target: "Target") -> Store:  # noqa: ARG002 - the same folder for every target
        """Return the folder."""
        return LocalStore(local_path(self.path, field="FileSink: the path"))

    def check(self, context: SinkContext, output: "StructType") -> None:
        """Check that files of the format can have the columns, and that the folder is for such files.

        Raises:
            TerminalError: A column is missing or has an unsuitable type; or the folder has other files.
        """
        self._check_columns({column.name: column.dataType.simpleString() for column in output})
        log = FileLog(context.connection)
        newest = log.newest_file()
        others = not log.exists() and any(name[0] not in "._" for name in context.connection.names())
        if others or (newest is not None and "tidemill" not in newest):
            raise TerminalError(
                f"the folder {context.connection} of its sink {self.name!r} has files that another program wrote.",
                fix="name a new folder in FileSink, or move the files away, with _spark_metadata.",
                code="sink-folder-not-empty",
            )
        if newest is not None:
            self._check_layout(context.connection, newest["tidemill"])

    def _check_columns(self, types: Mapping[str, str]) -> None:
        for column in self.partition_by:
            if column not in types:
                raise columns_unsuitable(
                    f"its output has no column {column!r}, by which the sink {self.name!r} partitions (it has "
                    f"{', '.join(types)}).",
                    fix="let the function return the column, or correct partition_by.",
                )
        files = {
            name: kind for name, kind in types.items() if name not in (*self.partition_by, ORIGIN, BATCH)
        }
        if not files:
            raise columns_unsuitable(
                f"its sink {self.name!r} has all columns in partition_by, so none is left for the files.",
                fix="take a column out of partition_by.",
            )
        if self.format == "text" and list(files.values()) != ["string"]:
            columns = ", ".join(f"{name} {kind}" for name, kind in files.items())
            raise columns_unsuitable(
                f"its sink {self.name!r} writes text, which is one column of strings, and the output has {columns}.",
                fix="let the function return one STRING column, or use another format.",
            )
        flat = dict.fromkeys(self.partition_by, "by which the sink partitions")
        if self.format == "csv":
            flat |= dict.fromkeys(files, "which csv cannot have")
        for name, what in flat.items():
            if types[name].startswith(("struct<", "array<", "map<")):
                raise columns_unsuitable(
                    f"its column {name!r} is {types[name]}, {what} (sink {self.name!r}).",
                    fix=f"select a field of it, or write it as a string: F.to_json({name!r}).",
                )

    def _check_layout(self, folder: Store, newest: Mapping[str, object]) -> None:
        recorded, declared = (newest["format"], newest["partition_by"]), (self.format, [*self.partition_by])
        if recorded != declared:
            raise TerminalError(
                f"the folder {folder} of its sink {self.name!r} has files of format {recorded[0]!r} with partition_by "
                f"{recorded[1]}, and the sink declares {declared[0]!r} with {declared[1]}.",
                fix="declare the sink as it was, or name a new folder.",
                code="sink-changed",
            )

    def prepare(self, spark: "SparkSession", context: SinkContext, output: "StructType") -> None:  # noqa: ARG002
        """Begin the log, before there are files that are not published."""
        FileLog(context.connection).begin()

    def last_batch(self, context: SinkContext, query_id: str) -> int | None:
        """Return the newest batch of a query whose files are published."""
        return FileLog(context.connection).last_batch(query_id)

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Write the rows as files, and publish them."""
        query_id, batch_id = batch.identity.query_id, batch.identity.batch_id
        last = self.last_batch(batch.context, query_id)
        if last is not None and last >= batch_id:
            return
        folder: Store = batch.context.connection
        if files := self._files(rows, folder):
            written = Written(query_id, batch_id, self.format, tuple(self.partition_by))
            retention = self.retention if isinstance(self.retention, timedelta) else None
            FileLog(folder).publish(files, written, retention=retention)

    def _files(self, rows: "DataFrame", folder: Store) -> list[Entry]:
        """Write the rows into a folder of their own, which has no other files, and move them below the folder."""
        staging = f"{_STAGING}/{uuid4().hex}"
        writer = rows.drop(ORIGIN, BATCH).write.format(self.format).options(**self.options)
        try:
            writer.partitionBy(*self.partition_by).save(folder.uri(staging))
            staged = folder.below(staging)
            files = [file for file in staged.walk() if file.name[0] not in "._"]
            for file in files:  # whose names are unique: Spark puts a UUID in each
                staged.copy(file.key, file.key, into=folder)
        finally:
            folder.delete_folder(staging)
        return files

    @staticmethod
    def published(path: str) -> list[str]:
        """Return the files of a folder that are published, for readers other than Spark; it needs no JVM.

        For example: `duckdb.read_parquet(FileSink.published("/exports/orders"), hive_partitioning=True)`.

        Args:
            path: The folder of a `FileSink`.

        Returns:
            Absolute paths.
        """
        return FileLog(LocalStore(local_path(path, field="FileSink: the path"))).paths()
