"""Feed: a logical input. The pipeline declares what its records look like; the target binds it to a location."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from tidemill.connectors.answers import ExternalData
from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.files.connector import limited, streamed
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.formats.format import CORRUPT, Format
from tidemill.connectors.kafka.source import MAX_RECORDS_PER_BATCH, KafkaSource
from tidemill.definitions.arguments import ADDED_LATER
from tidemill.definitions.columns import ORIGIN, ORIGIN_TYPE, RAW, VIOLATED
from tidemill.definitions.source import MAX_FILES_PER_BATCH, Source, positive
from tidemill.errors import ConfigurationError, DefinitionError
from tidemill.target.target import FolderBinding, KafkaCluster
from tidemill.text.names import valid_feed_name, valid_rule_name
from tidemill.text.sql_parsing import valid_condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target

UNPARSABLE = "unparsable"
# Columns that no schema has.
_PARSED = "_tidemill_parsed"
_BLANK = "_tidemill_blank"
_FAILED = "_tidemill_unparsable"


@dataclass(frozen=True)
class Feed(Source):
    """A logical input of text records, which the target binds to a folder or a Kafka topic.

    Records that cannot be parsed, and records that violate a rule, go to the table
    `<stream>__quarantine` with their raw text and origin; all others go through the function. A blank
    line is not a record, and neither is a header of `Csv(header=True)`. A Kafka message without a value
    (a tombstone) is data: its columns are NULL.

    The function of a feed sees one micro-batch of records at a time, so a stateful operation in it is refused.
    A function in `mapInPandas` or `mapInArrow` sees one Arrow batch at a time (10,000 rows by default), which the plan
    does not show: it must work row by row. Aggregate in a stream that reads the table of this one.

    Attributes:
        name: The feed's name: the folder below the landing folder, or the topic.
        format: How a record is parsed.
        rules: Conditions that a record must meet, by name, as SQL over the parsed columns. A record for which
            one is NULL, or raises an error, violates it.
        max_records_per_batch: The most messages per micro-batch, of a topic; None: no limit.
        max_files_per_batch: The most files per micro-batch, of a folder; None: no limit.
        max_bytes_per_batch: The most bytes of files per micro-batch, or one file that is larger; it
            replaces `max_files_per_batch`.
        recursive: Whether the files in the folders below the folder are read too, such as those of `2026/11/26/`.
        glob: Of a folder, only the files whose names match are read, such as `*.json`; None: all of them.
        is_ordered: Whether the address of each new file comes after those of all earlier ones, as with a time at its
            beginning. On S3, what waits is then known by a listing of the newest files only.
    """

    kind = "feed"
    name: str
    format: Format
    rules: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    max_records_per_batch: int | None = field(default=MAX_RECORDS_PER_BATCH, kw_only=True)
    max_files_per_batch: int | None = field(default=MAX_FILES_PER_BATCH, kw_only=True)
    max_bytes_per_batch: int | None = field(default=None, kw_only=True)
    recursive: bool = field(default=False, kw_only=True, metadata=ADDED_LATER)
    glob: str | None = field(default=None, kw_only=True, metadata=ADDED_LATER)
    is_ordered: bool = field(default=False, kw_only=True, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        valid_feed_name(self.name)
        if not isinstance(self.format, Format):
            raise DefinitionError(
                f"{self.describe()}: format is {self.format!r}; use Json(...), Csv(...) or Raw()."
            )
        for rule, condition in self.rules.items():
            valid_rule_name(rule, field=f"{self.describe()}: rules")
            valid_condition(condition, field=f"{self.describe()}: rule {rule!r}")
        if UNPARSABLE in self.rules:
            raise DefinitionError(
                f"{self.describe()}: the rule name {UNPARSABLE!r} is reserved; choose another.",
                code="name-reserved",
            )
        positive(self.max_records_per_batch, field=f"{self.describe()}: max_records_per_batch")
        positive(self.max_files_per_batch, field=f"{self.describe()}: max_files_per_batch")
        positive(self.max_bytes_per_batch, field=f"{self.describe()}: max_bytes_per_batch")
        if self.glob is not None and (not self.glob or "/" in self.glob):
            raise DefinitionError(
                f"{self.describe()}: glob is {self.glob!r}; write a pattern of the names of files, such as '*.json'; "
                "recursive=True reads the files in the folders below."
            )

    @property
    def file_options(self) -> dict[str, str]:
        """The options of Spark's file source."""
        options = {"recursiveFileLookup": "true"} if self.recursive else {}
        return options | ({} if self.glob is None else {"pathGlobFilter": self.glob})

    @property
    def feed_name(self) -> str:
        """The feed's name."""
        return self.name

    def with_watermark(self, column: str, delay: object, *, idle_after: object = None) -> NoReturn:
        """Refuse a watermark: a feed is ingested without state.

        Raises:
            DefinitionError: Always, with the alternative.
        """
        raise DefinitionError(
            f"{self.describe()}: a feed has no watermark on {column!r}, because its quarantine needs a "
            "stateless stream. Ingest the feed into one stream and put the watermark where another reads it.",
            code="feed-with-state",
        )

    def describe(self) -> str:
        """Return the feed's name."""
        return f"feed {self.name}"

    def validated_lines(self, lines: "DataFrame") -> "DataFrame":
        """Return lines as `FeedConnector.load` does: parsed columns, `_origin`, `_raw` and `_violated`.

        Args:
            lines: Lines with `_raw`, `_origin` and whether they are no records.
        """
        from pyspark.sql import functions as F

        validated = self.validated(lines, _BLANK)
        return validated.withColumn(VIOLATED, F.expr(f"CASE WHEN NOT {_BLANK} THEN {VIOLATED} END")).drop(
            _BLANK
        )

    def validated(self, records: "DataFrame", *kept: str) -> "DataFrame":
        """Return records with their parsed columns and `_violated`, the rules that each violates.

        A header is no record, so one among the records counts as unparsable.

        Args:
            records: Records with `_raw` and `_origin`.
            kept: Further columns of them to keep.
        """
        from pyspark.sql import functions as F

        from tidemill.connectors.violations import guard, names_of_violated

        is_header = self._is_header(records)
        records = records.withColumn(_PARSED, self.format.parsed(F.col(RAW)))
        unparsable = self.format.unparsable(RAW, _PARSED)
        if is_header is not None:
            unparsable |= is_header
        parsed = records.select(f"{_PARSED}.*", RAW, ORIGIN, *kept, unparsable.alias(_FAILED)).drop(CORRUPT)
        # An unparsable record has no columns that a rule could validate: it violates that one rule only.
        cases = [f"WHEN {_FAILED} THEN array('{UNPARSABLE}')"]
        if self.rules:
            cases.append(names_of_violated(self.rules, guard(parsed.select(RAW))))
        # One expression in SQL: each column of Python's API is a few calls to the JVM, and this is built per batch.
        violations = F.expr(f"CASE {' '.join(cases)} ELSE CAST(array() AS ARRAY<STRING>) END")
        return parsed.withColumn(VIOLATED, violations).drop(_FAILED)

    def _is_header(self, records: "DataFrame") -> "Column | None":
        """Return whether a line of the feed holds the names of its columns; None where no line does."""
        from pyspark.sql import functions as F

        if not self.format.has_header:
            return None
        parsed = records.select(self.format.parsed(F.col(RAW)).alias(_PARSED)).select(f"{_PARSED}.*")
        return self.format.is_header(F.col(RAW), parsed.drop(CORRUPT).columns)

    def lines(self, context: SourceContext, name: str) -> "DataFrame":
        """Return one row per line or message: `_raw`, the text or NULL, `_origin`, and whether it is no record."""
        from pyspark.sql import functions as F

        binding = context.target.binding(self.name)
        reader = context.spark.readStream.name(name)
        if isinstance(binding, FolderBinding):
            reader = limited(reader.format("text"), self.max_files_per_batch, self.max_bytes_per_batch)
            options = self.file_options | binding.options
            lines = reader.options(**options).load(streamed(str(binding.path), context.target))
            origin = F.struct(
                F.input_file_name().alias("file"),
                F.lit(None).cast("string").alias("topic"),
                F.lit(None).cast("int").alias("partition"),
                F.lit(None).cast("bigint").alias("offset"),
                F.lit(None).cast("timestamp").alias("timestamp"),
                F.lit(None).cast("string").alias("key"),
            )
            rows = lines.select(F.col("value").alias(RAW), origin.cast(ORIGIN_TYPE).alias(ORIGIN))
            return self._with_blank(rows, F.trim(F.col(RAW)) == "")
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
        rows = messages.select(
            F.col("value").cast("string").alias(RAW), origin.cast(ORIGIN_TYPE).alias(ORIGIN)
        )
        return self._with_blank(rows, F.lit(False))

    def _with_blank(self, lines: "DataFrame", is_blank: "Column") -> "DataFrame":
        """Return lines with a column that is true for those that are no records, such as headers."""
        if (is_header := self._is_header(lines)) is not None:
            is_blank |= is_header
        return lines.withColumn(_BLANK, is_blank)


@dataclass(frozen=True, kw_only=True)
class FeedFolder(FileSource):
    """A feed that a target binds to a folder."""

    feed: str

    def describe(self) -> str:
        """Return the feed's name."""
        return f"feed {self.feed}"


@dataclass(frozen=True, kw_only=True)
class FeedTopic(KafkaSource):
    """A feed that a target binds to a topic."""

    feed: str
    of_cluster: KafkaCluster

    def cluster_in(self, target: "Target") -> KafkaCluster:
        """Return the cluster of the binding."""
        return self.of_cluster

    def describe(self) -> str:
        """Return the feed's name."""
        return f"feed {self.feed}"


class FeedConnector(Connector[Feed]):
    """Feeds: text records of a folder or a topic, whichever the target binds."""

    kind = "feed"

    def bound(self, source: Feed, target: "Target") -> Source:
        """Return the folder or the topic."""
        binding = target.binding(source.name)
        if isinstance(binding, FolderBinding):
            return FeedFolder(
                path=str(binding.path),
                format="text",
                options=source.file_options | binding.options,
                is_ordered=source.is_ordered,
                feed=source.name,
            )
        return FeedTopic(subscribe=(binding.topic,), feed=source.name, of_cluster=binding.cluster)

    def external(self, source: Feed, target: "Target | None") -> Iterator[ExternalData]:
        """Yield the feed, whatever it is bound to."""
        kind, metadata = None, {}
        if target is not None:
            try:
                binding = target.binding(source.name)
            except ConfigurationError:
                # A target may bind the feeds of some pipelines only; a run of this stream reports what is missing.
                pass
            else:
                kind = self.bound(source, target).kind
                metadata = {"tidemill/binding": str(binding)}
        yield ExternalData(
            path=("feed", source.name), kind=kind, description=f"Feed {source.name}.", metadata=metadata
        )

    def load(self, source: Feed, context: SourceContext, name: str) -> "DataFrame":
        """Return parsed columns, `_origin`, `_raw` and `_violated` (the rules that the record violates).

        Lines that are no records are among the rows, so that whoever reads them can count them: `_violated` is NULL.
        """
        return source.validated_lines(source.lines(context, name))


def feed_of(stream: "Stream") -> Feed | None:
    """Return the feed that a stream ingests; None for other streams."""
    return next((source for source in stream.sources.values() if isinstance(source, Feed)), None)
