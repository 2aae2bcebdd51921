"""How Spark reads folders of files."""

from typing import TYPE_CHECKING

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.source import FileSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

# Spark skips files that are older than this, relative to the newest one, without a warning: a backfilled old
# file would be lost. A hundred years means never.
MAX_FILE_AGE = "36500d"


class FileConnector(Connector[FileSource]):
    """Folders of files (Spark guide, "Input Sources", file source)."""

    kind = "file"

    def parse(self, offset: SourceOffset) -> FilePosition | None:
        """Return the position in an offset; None where it is of another kind."""
        return FilePosition.of(offset)

    def load(self, source: FileSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a streaming DataFrame of the files' rows."""
        reader = context.spark.readStream.name(name).format(source.format)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        reader = limited(reader, source.max_files_per_batch, source.max_bytes_per_batch)
        return reader.options(**source.options).load(source.path)


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
