"""How Spark reads Kafka."""

import json
from typing import TYPE_CHECKING

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.kafka.source import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KafkaConnector(Connector[KafkaSource]):
    """Topics of a Kafka cluster."""

    kind = "kafka"

    def parse(self, offset: SourceOffset) -> TopicPosition | None:
        """Return the position in an offset; None where it is of another kind."""
        return TopicPosition.of(offset)

    def load(self, source: KafkaSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a streaming DataFrame of Kafka's columns (Spark's Kafka guide, "Reading Data from Kafka")."""
        reader = (
            context.spark.readStream.name(name)
            .format("kafka")
            .options(**context.target.cluster(source.cluster).spark_options())
            .options(**source.options)
            .option("startingOffsets", _starting_offsets(source))
            .option("includeHeaders", str(source.include_headers).lower())
        )
        if source.max_records_per_batch:
            reader = reader.option("maxOffsetsPerTrigger", str(source.max_records_per_batch))
        if source.subscribe:
            reader = reader.option("subscribe", ",".join(source.subscribe))
        elif source.subscribe_pattern:
            reader = reader.option("subscribePattern", source.subscribe_pattern)
        else:
            reader = reader.option(
                "assign", json.dumps({topic: list(numbers) for topic, numbers in source.assign.items()})
            )
        return reader.load()


def _starting_offsets(source: KafkaSource) -> str:
    """Return the option `startingOffsets`."""
    if isinstance(source.starting_offsets, str):
        return source.starting_offsets
    return json.dumps(
        {t: {str(p): o for p, o in offsets.items()} for t, offsets in source.starting_offsets.items()}
    )
