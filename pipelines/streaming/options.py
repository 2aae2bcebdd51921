"""Options of a stream's query, with defaults for small machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from pipelines.streaming.durations import duration
from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.sources.source import positive

OutputMode = Literal["append", "update", "complete"]
StateStore = Literal["rocksdb", "hdfs"]
WatermarkPolicy = Literal["min", "max"]

_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_OWN = {
    "spark.sql.shuffle.partitions": "shuffle_partitions=",
    "spark.sql.streaming.stateStore.providerClass": "state_store=",
    "spark.sql.streaming.multipleWatermarkPolicy": "watermark_policy=",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "nothing, because sources are always named",
    "spark.sql.streaming.offsetLog.formatVersion": "nothing, because sources are always named",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """Options of one stream's query.

    Attributes:
        output_mode: append, update or complete (Spark guide, "Output Modes").
        state_store: rocksdb (with changelog) or hdfs; pinned by the checkpoint at its first start.
        shuffle_partitions: Partitions of the state; pinned likewise. None: one per core, 2 to 8.
        max_run: How long a run may take before it stops after the batch in progress; the next run continues.
        watermark_policy: Whether the slowest (min) or the fastest (max) of several watermarks counts; pinned
            likewise.
        options: Further `spark.sql.*` confs of the stream's session.
    """

    output_mode: OutputMode = "append"
    state_store: StateStore = "rocksdb"
    shuffle_partitions: int | None = None
    max_run: timedelta | str | None = None
    watermark_policy: WatermarkPolicy = "min"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, value, allowed in (
            ("output_mode", self.output_mode, get_args(OutputMode)),
            ("state_store", self.state_store, get_args(StateStore)),
            ("watermark_policy", self.watermark_policy, get_args(WatermarkPolicy)),
        ):
            if value not in allowed:
                raise DefinitionError(f"QueryOptions: {what} is {value!r}; use one of {', '.join(allowed)}.")
        positive(self.shuffle_partitions, what="QueryOptions: shuffle_partitions")
        if self.max_run is not None:
            object.__setattr__(self, "max_run", duration(self.max_run, what="QueryOptions: max_run"))
        for option in self.options:
            if option in _OWN:
                raise DefinitionError(
                    f"QueryOptions: options has {option!r}, which Tidemill sets; use {_OWN[option]}."
                )
            if not option.startswith("spark.sql.") and not option.startswith("spark.databricks.delta."):
                raise DefinitionError(
                    f"QueryOptions: options has {option!r}, which is not a conf of a session; set it in the target's "
                    "[spark.conf] table."
                )

    def confs(self, default_partitions: int) -> dict[str, str]:
        """Return the confs of the stream's session, all of them, so that sessions cannot leak into each other."""
        return {
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions or default_partitions),
            "spark.sql.streaming.stateStore.providerClass": _PROVIDERS[self.state_store],
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.multipleWatermarkPolicy": self.watermark_policy,
            "spark.sql.session.timeZone": "UTC",
            # Sources have names in the checkpoint, so that inputs can be added, removed and reordered.
            "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
            "spark.sql.streaming.offsetLog.formatVersion": "2",
            **self.options,
        }
