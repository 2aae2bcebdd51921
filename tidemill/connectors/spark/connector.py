"""How Spark reads a source that Tidemill knows nothing about."""

import os
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.spark.source import SparkSource
from tidemill.text.secret import substitute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkConnector(Connector[SparkSource]):
    """Any format of Spark's `readStream` (Spark guide, "Input Sources")."""

    kind = "spark"

    def load(self, source: SparkSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a streaming DataFrame.

        Raises:
            ConfigurationError: A variable that an option names is not set.
        """
        if not isinstance(source.format, str):
            context.spark.dataSource.register(source.format)
        reader = context.spark.readStream.name(name).format(source.format_name)
        for option, value in source.options.items():
            setting = f"option {option!r} of {source.describe()}"
            reader = reader.option(option, substitute(value, os.environ, setting))
        return (reader if source.schema is None else reader.schema(source.schema)).load()
