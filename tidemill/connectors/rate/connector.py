"""How Spark generates rows."""

from typing import TYPE_CHECKING

from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.rate.position import RowPosition
from tidemill.connectors.rate.source import RateSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RateConnector(Connector[RateSource]):
    """Spark's source `rate-micro-batch` (Spark guide, "Input Sources")."""

    kind = "rate"
    position = RowPosition

    def load(self, source: RateSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a streaming DataFrame of generated rows."""
        return (
            context.spark.readStream.name(name)
            .format("rate-micro-batch")
            .option("rowsPerBatch", str(source.rows_per_batch))
            .option("advanceMillisPerBatch", str(source.advance_ms))
            .load()
        )
