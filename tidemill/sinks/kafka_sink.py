"""Write each micro-batch as messages to Kafka."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidemill.connectors.known_options import known_options
from tidemill.definitions.columns import BATCH, ORIGIN
from tidemill.definitions.sink import Delivery, SinkBatch, SinkContext
from tidemill.errors import DefinitionError, TerminalError
from tidemill.sinks.external_sink import ExternalSink, columns_unsuitable
from tidemill.text.names import sql_identifier
from tidemill.text.secret import is_secret

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from tidemill.target.target import KafkaCluster, Target

BATCH_HEADER = "tidemill-batch"
"""The header that every message has: `<query id>/<batch id>`."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OPTIONS = {
    "topic": "use topic=",
    "includeheaders": "headers are written where the output has the column headers",
    "kafka.bootstrap.servers": "use cluster=, and bootstrap of that cluster in the target",
    "kafka.key.serializer": "it is set by Spark's Kafka sink; leave it out",
    "kafka.value.serializer": "it is set by Spark's Kafka sink; leave it out",
    "kafka.transactional.id": "Spark's Kafka sink writes without transactions; leave it out",
}
_TEXT = ("string", "binary")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True)
class KafkaSink(ExternalSink):
    """Each row is a message to a Kafka topic, at least once.

    ```python
    from tidemill import DeltaAppend, Feed, Json, KafkaSink, Pipeline

    shop = Pipeline("shop")


    @shop.stream(
        source=Feed("orders", format=Json("id STRING, amount BIGINT")),
        sink=[DeltaAppend(), KafkaSink("large-orders", key="id", value="json")],
    )
    def large_orders(events):
        return events.where("amount > 1000")
    ```

    The columns of the output have the meaning that they have for Spark's Kafka sink: `value` and `key` (STRING or
    BINARY), `headers` (ARRAY<STRUCT<key: STRING, value: BINARY>>), `partition` (INT), and, where no topic is given,
    `topic` (STRING). Only `value` must be there; other columns are left out. With `value="json"` the value is a JSON
    object of the columns that have no such meaning, without `_origin` and `_batch`. A column that is NULL is left out
    of the object.

    A batch is written before the main table commits. After an error or a kill in between, the next run writes the batch
    again, so a message can be in the topic twice. A batch that the main table has is not written again. The header
    `tidemill-batch` of each message names its batch, as `<query id>/<batch id>`: it is the same in a repeat.

    The password of the cluster is read where the batch is written: with Spark Connect elsewhere, its server needs the
    environment variables that the cluster names.

    Attributes:
        topic: The topic; None: the column `topic`.
        cluster: A cluster's name in the target.
        key: The column of the key; by default `key`, where the output has it.
        value: `"json"`: the value is made of the other columns; None: the column `value`.
        options: Properties of Kafka's producer, such as `{"kafka.compression.type": "zstd"}`. A batch waits until all
            replicas that are in sync have it; another `kafka.acks` is refused.
        name: The name of the sink.
    """

    topic: str | None = None
    cluster: str = field(default="default", kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    value: Literal["json"] | None = field(default=None, kw_only=True)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    name: str = field(default="kafka", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topic is not None and (not _TOPIC.fullmatch(self.topic) or self.topic in (".", "..")):
            raise DefinitionError(
                f"KafkaSink: topic is {self.topic!r}; a topic's name has up to 249 letters, digits, '.', '_' and '-'."
            )
        if self.value not in (None, "json"):
            raise DefinitionError(f"KafkaSink: value is {self.value!r}; use 'json', or leave it out.")
        _check_options(self.options)

    @property
    def is_direct(self) -> bool:
        """Spark has a sink of its own for Kafka."""
        return True

    @property
    def identity(self) -> Mapping[str, object]:
        """Its cluster and topic."""
        return {"cluster": self.cluster, "topic": self.topic}

    @property
    def delivery(self) -> Delivery:
        """A batch that is repeated before the main table has committed is written again."""
        return "at least once"

    def connection(self, target: "Target") -> "KafkaCluster":
        """Return the cluster; its password is the name of a variable, which is read where a batch is written."""
        return target.cluster(self.cluster)

    def check(self, context: SinkContext, output: "StructType") -> None:
        """Check that the output has the columns of a message, and that the topic exists.

        Raises:
            TerminalError: A column is missing or has another type; or the topic does not exist, and the cluster does
                not create it.
            TransientError: The cluster does not answer.
        """
        types = {column.name: column.dataType.simpleString() for column in output}
        for part, column in self._columns(types).items():
            if column not in types:
                raise columns_unsuitable(
                    f"its output has no column {column!r}, which the sink {self.name!r} writes to Kafka as the "
                    f"{part} of a message (it has {', '.join(types)}).",
                    fix="let the function return the column"
                    + (", or declare KafkaSink(value='json')." if part == "value" else "."),
                )
            if types[column] not in _TYPES[part]:
                raise columns_unsuitable(
                    f"its column {column!r} is {types[column]}, and as the {part} of a message to Kafka (sink "
                    f"{self.name!r}) it must be {' or '.join(_TYPES[part])}.",
                    fix=f"cast the column in the function, such as F.col({column!r}).cast('string')."
                    if part in ("key", "value")
                    else "let the function return that type, or leave the column out.",
                )
        if self.topic is not None:
            self._check_topic(self.topic, context.connection)

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Write the rows as messages."""
        identity = f"{batch.identity.query_id}/{batch.identity.batch_id}"
        messages = self._messages(rows, identity)
        messages.write.format("kafka").options(**self._options(batch.context.connection)).save()

    def stream_writer(self, rows: "DataFrame", connection: "KafkaCluster") -> "DataStreamWriter":
        """Return a writer of the rows as messages, without the header that names a batch."""
        return self._messages(rows, None).writeStream.format("kafka").options(**self._options(connection))

    def _options(self, cluster: "KafkaCluster") -> dict[str, str]:
        topic = {} if self.topic is None else {"topic": self.topic}
        return {**cluster.producer_options(), "kafka.acks": "all", **self.options, **topic}

    def _columns(self, output: Mapping[str, Any]) -> dict[str, str]:
        """Return the column of each part of a message: those that it must have, and those that the output has."""
        columns = {part: part for part in ("key", "headers", "partition") if part in output}
        if self.key is not None:
            columns["key"] = self.key
        if self.topic is None:
            columns["topic"] = "topic"
        if self.value is None:
            columns["value"] = "value"
        return columns

    def _messages(self, rows: "DataFrame", batch: str | None) -> "DataFrame":
        """Return the rows as Spark's Kafka sink takes them, with a header that names their batch."""
        from pyspark.sql import functions as F

        parts: dict[str, Column] = {
            part: F.col(sql_identifier(column))
            for part, column in self._columns(dict.fromkeys(rows.columns)).items()
        }
        if self.value is not None:
            ours = {"key", "headers", "partition", ORIGIN, BATCH, *(["topic"] if self.topic is None else [])}
            parts["value"] = F.to_json(
                F.struct(*[F.col(sql_identifier(column)) for column in rows.columns if column not in ours])
            )
        if batch is not None:
            header = F.array(
                F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(batch).cast("binary").alias("value"))
            )
            if "headers" in parts:
                header = F.concat(F.coalesce(parts["headers"], F.slice(header, 1, 0)), header)
            parts["headers"] = header
        return rows.select(*[column.alias(part) for part, column in parts.items()])

    def _check_topic(self, topic: str, cluster: "KafkaCluster") -> None:
        from tidemill.connectors.kafka.client import client_of

        client = client_of(cluster)
        if not client.topics([topic]) and not client.creates_topics():
            raise TerminalError(
                f"the topic {topic!r}, which its sink {self.name!r} writes, does not exist in the Kafka cluster "
                f"{cluster.bootstrap}, and the cluster does not create topics.",
                fix=f"kafka-topics.sh --bootstrap-server {cluster.bootstrap} --create --topic {topic}",
                code="sink-topic-missing",
            )


def _check_options(options: Mapping[str, str]) -> None:
    plain = {name: value for name, value in options.items() if not name.lower().startswith("kafka.")}
    known_options(plain, {name for name in _OPTIONS if not name.startswith("kafka.")}, field="KafkaSink")
    for option, value in options.items():
        lowered = option.lower()
        if lowered in _OPTIONS:
            raise DefinitionError(
                f"KafkaSink: options has {option!r}: {_OPTIONS[lowered]}.", code="option-is-argument"
            )
        if is_secret(option):
            raise DefinitionError(
                f"KafkaSink: {option} is a credential, which belongs to the target's cluster.",
                code="option-not-allowed",
            )
        if lowered == "kafka.acks" and value not in ("all", "-1"):
            raise DefinitionError(
                f"KafkaSink: kafka.acks is {value!r}, with which a broker that fails loses messages; leave it out.",
                code="option-not-allowed",
            )
        if not isinstance(value, str):
            raise DefinitionError(f"KafkaSink: option {option!r} is {value!r}: write it as a string.")
