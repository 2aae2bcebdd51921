"""Feed: a logical input. What its records look like is the pipeline's; where they are is the target's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn

from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.names import valid_feed_name, valid_rule_name
from pipelines.streaming.sources.files import MAX_FILES_PER_BATCH, limited
from pipelines.streaming.sources.source import Source, SourceContext, positive
from pipelines.streaming.target import FolderBinding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RAW = "_raw"
ORIGIN = "_origin"
VIOLATED = "_violated"
UNPARSABLE = "unparsable"
_PARSED = "_parsed"
_CORRUPT = "_corrupt_record"
# One shape for files and topics, so that a table outlives a change of the binding.
_ORIGIN_TYPE = (
    "struct<file:string, topic:string, partition:int, offset:bigint, timestamp:timestamp, key:string>"
)


@dataclass(frozen=True, slots=True)
class Parser:
    """How a record's text becomes columns: made by `from_json`, `from_csv` or `raw`."""

    format: Literal["json", "csv", "raw"]
    schema: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def parsed(self, text: "Column") -> "Column":
        """The text as a struct with the schema's columns and `_corrupt_record`."""
        from pyspark.sql import functions as F

        schema = f"{self.schema}, {_CORRUPT} STRING"
        options = {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        if self.format == "json":
            return F.from_json(text, schema, options)
        return F.from_csv(text, F.lit(schema), options)


def from_json(schema: str, options: Mapping[str, str] | None = None) -> Parser:
    """One JSON object a record.

    Args:
        schema: The columns as DDL: `"ad_id STRING, cost_micros BIGINT"`.
        options: Options of Spark's `from_json`.

    Raises:
        DefinitionError: the schema is empty.
    """
    return Parser("json", _ddl(schema, "from_json"), dict(options or {}))


def from_csv(schema: str, options: Mapping[str, str] | None = None) -> Parser:
    """One CSV line a record; arguments as for `from_json`."""
    return Parser("csv", _ddl(schema, "from_csv"), dict(options or {}))


def raw() -> Parser:
    """The record's text as it is, in the column `value`."""
    return Parser("raw")


def _ddl(schema: object, what: str) -> str:
    if not isinstance(schema, str) or not schema.strip():
        raise DefinitionError(f"{what}: schema is {schema!r}; write the columns as DDL, such as 'id STRING'.")
    return " ".join(schema.split()).rstrip(",")


@dataclass(frozen=True)
class Feed(Source):
    """A logical input of text records, read from a folder or a Kafka topic as the target says.

    Records that cannot be parsed, and records that violate a quarantine rule, go to the table
    `<stream>__quarantine` with their raw text and origin; the others go through the function. A blank
    line holds no record. A Kafka message without a value (a tombstone) is data: its columns are NULL.

    Attributes:
        name: The feed's name: the folder below a landing place, or the topic.
        value: How a record is parsed.
        quarantine: Conditions that a record must meet, by name, as SQL over the parsed columns.
        max_records_per_batch: Kafka messages that a micro-batch takes at the most.
        max_files_per_batch: Files that a micro-batch takes at the most.
    """

    name: str
    value: Parser
    quarantine: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    max_records_per_batch: int | None = field(default=None, kw_only=True)
    max_files_per_batch: int = field(default=MAX_FILES_PER_BATCH, kw_only=True)

    def __post_init__(self) -> None:
        valid_feed_name(self.name)
        if not isinstance(self.value, Parser):
            raise DefinitionError(
                f"{self.describe()}: value is {self.value!r}; use from_json(...), from_csv(...) or raw()."
            )
        for rule, condition in self.quarantine.items():
            valid_rule_name(rule, what=f"{self.describe()}: quarantine")
            if not isinstance(condition, str) or not condition.strip():
                raise DefinitionError(f"{self.describe()}: quarantine rule {rule!r} has no condition.")
        if UNPARSABLE in self.quarantine:
            raise DefinitionError(f"{self.describe()}: the rule name {UNPARSABLE!r} is ours; choose another.")
        positive(self.max_records_per_batch, what=f"{self.describe()}: max_records_per_batch")
        positive(self.max_files_per_batch, what=f"{self.describe()}: max_files_per_batch")

    def with_watermark(self, column: str, delay: object) -> NoReturn:
        """Refused: a feed is ingested without state.

        Raises:
            DefinitionError: always, with the way around.
        """
        del delay
        raise DefinitionError(
            f"{self.describe()}: a feed has no watermark on {column!r}, because its quarantine needs a "
            "stateless stream. Ingest the feed into one stream and put the watermark where another reads it."
        )

    def describe(self) -> str:
        """The feed's name."""
        return f"feed {self.name}"

    def load(self, context: SourceContext, name: str) -> "DataFrame":
        """Parsed columns, `_origin`, `_raw` and `_violated` (the names of the rules that the record breaks)."""
        from pyspark.sql import functions as F

        from pipelines.streaming.expectations import violated

        records = self._records(context, name)
        if self.value.format == "raw":
            columns, unparsable = [F.col(RAW).alias("value")], F.lit(False)
        else:
            records = records.withColumn(_PARSED, self.value.parsed(F.col(RAW)))
            corrupt = F.col(f"{_PARSED}.{_CORRUPT}")
            unparsable = F.col(RAW).isNotNull() & (F.col(_PARSED).isNull() | corrupt.isNotNull())
            columns = [F.col(f"{_PARSED}.*")]
        parsed = records.select(*columns, RAW, ORIGIN, unparsable.alias(UNPARSABLE)).drop(_CORRUPT)
        # An unparsable record has no columns that a rule could judge: it breaks that one rule only.
        broken = [F.when(F.col(UNPARSABLE), F.lit(UNPARSABLE))] + [
            F.when(~F.col(UNPARSABLE) & violated(sql), F.lit(rule)) for rule, sql in self.quarantine.items()
        ]
        return parsed.withColumn(VIOLATED, F.array_compact(F.array(*broken))).drop(UNPARSABLE)

    def _records(self, context: SourceContext, name: str) -> "DataFrame":
        """One row a record: `_raw`, the text or NULL, and `_origin`."""
        from pyspark.sql import functions as F

        binding = context.target.binding(self.name)
        reader = context.spark.readStream.name(name)
        if isinstance(binding, FolderBinding):
            lines = limited(reader.format("text"), self.max_files_per_batch).load(str(binding.path))
            origin = F.struct(
                F.input_file_name().alias("file"),
                F.lit(None).cast("string").alias("topic"),
                F.lit(None).cast("int").alias("partition"),
                F.lit(None).cast("bigint").alias("offset"),
                F.lit(None).cast("timestamp").alias("timestamp"),
                F.lit(None).cast("string").alias("key"),
            )
            return lines.where(F.trim("value") != "").select(
                F.col("value").alias(RAW), origin.cast(_ORIGIN_TYPE).alias(ORIGIN)
            )
        reader = reader.format("kafka").options(**binding.cluster.spark_options())
        if self.max_records_per_batch:
            reader = reader.option("maxOffsetsPerTrigger", str(self.max_records_per_batch))
        messages = reader.option("subscribe", binding.topic).option("startingOffsets", "earliest").load()
        origin = F.struct(
            F.lit(None).cast("string").alias("file"),
            "topic",
            "partition",
            "offset",
            "timestamp",
            F.col("key").cast("string").alias("key"),
        )
        return messages.select(
            F.col("value").cast("string").alias(RAW), origin.cast(_ORIGIN_TYPE).alias(ORIGIN)
        )
