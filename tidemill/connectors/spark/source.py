"""A streaming source that Tidemill knows nothing about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.definitions.source import Source
from tidemill.errors import DefinitionError
from tidemill.text.secret import is_secret, literal_fault
from tidemill.text.sql_parsing import valid_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

_KNOWN = {
    "kafka": "KafkaSource",
    "delta": "DeltaSource",
    "rate-micro-batch": "RateSource",
    **dict.fromkeys(("avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml"), "FileSource"),
}
_STATIC = {"jdbc": "use JdbcSource next to a source that streams"}
_ENDLESS = {
    "rate": "it makes rows as time passes. Use RateSource",
    "socket": "it keeps nothing that a repeated batch could read again. Write what arrives into files or a topic",
}


@dataclass(frozen=True, kw_only=True)
class SparkSource(Source):
    """Any other streaming source of Spark, by its format or as a Python data source.

    ```python
    from tidemill import SparkSource

    readings = SparkSource(format="pubsub", options={"subscription": "readings", "token": "${PUBSUB_TOKEN}"})
    ```

    Its backlog cannot be counted without Spark, so a run polls it every `RunWhen(poll_every=)`. Backfills with a
    lookback and comparisons of its offsets are not possible. Rows arrive exactly once if the source reads the same
    rows between the same offsets whenever it is asked. One that does not support the trigger `availableNow` (a Python
    data source does with `SupportsTriggerAvailableNow`) is read in a single batch per run (Spark guide, "Triggers").

    Attributes:
        format: The name of the format, or a Python data source: a class that every process of Spark can import.
        options: Its options. `${VAR}` is read from the environment when a run starts; a secret must be given so.
        schema: A DDL schema or a `StructType`, for a source that needs one.
    """

    kind = "spark"
    format: "str | type[DataSource]"
    options: Mapping[str, str] = field(default_factory=dict)
    schema: "str | StructType | None" = None

    def __post_init__(self) -> None:
        name = self.format_name
        if not isinstance(name, str) or not name:
            raise DefinitionError(
                f"SparkSource: format is {self.format!r}; name a format of Spark, or give a Python data source."
            )
        if (known := _KNOWN.get(name)) is not None:
            raise DefinitionError(
                f"SparkSource: format is {name!r}, whose backlog and offsets {known} knows; use {known}.",
                code="source-known",
            )
        if (instead := _STATIC.get(name)) is not None:
            raise DefinitionError(
                f"SparkSource: format is {name!r}, which Spark reads as a snapshot only: {instead}.",
                code="snapshot-not-streamed",
            )
        if (reason := _ENDLESS.get(name)) is not None:
            raise DefinitionError(
                f"SparkSource: format is {name!r}, and a run ends when it has read what is there: {reason}.",
                code="source-endless",
            )
        for option, value in self.options.items():
            if not isinstance(value, str):
                raise DefinitionError(
                    f"SparkSource {name!r}: option {option!r} is {value!r}: write it as a string."
                )
            if is_secret(option) and (fault := literal_fault(option, value)):
                raise DefinitionError(
                    f"SparkSource {name!r}: option {option!r} {fault}.", code="secret-literal"
                )
        if self.schema is not None:
            object.__setattr__(
                self, "schema", valid_schema(self.schema, field=f"SparkSource {name!r}: schema")
            )

    @property
    def format_name(self) -> str:
        """The name of the format."""
        return self.format if isinstance(self.format, str) else self.format.name()

    def describe(self) -> str:
        """Return the format."""
        return f"Spark source {self.format_name}"
