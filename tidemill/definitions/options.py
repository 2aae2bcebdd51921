"""Options of a stream's query, with defaults for small machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from tidemill.definitions.arguments import Declared
from tidemill.definitions.source import positive
from tidemill.errors import DefinitionError
from tidemill.text.durations import parse_duration
from tidemill.text.names import valid_choice

OutputMode = Literal["append", "update", "complete"]
StateStore = Literal["rocksdb", "hdfs"]
WatermarkPolicy = Literal["min", "max"]
Mode = Literal["micro-batch", "async", "real-time", "continuous"]
"""How Spark runs a query that follows its sources: in micro-batches; with asynchronous progress tracking; in real-time
mode; or by continuous processing (Spark guides of these names)."""

_PARTITIONS = "spark.sql.shuffle.partitions"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_OWN = {
    _PARTITIONS: "shuffle_partitions=",
    _STATE_STORE: "state_store=",
    WATERMARK_POLICY: "watermark_policy=",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "nothing, because sources are always named",
    "spark.sql.streaming.offsetLog.formatVersion": "nothing, because sources are always named",
}
_AT_START = {
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.queryExecutionListeners",
    "spark.sql.extensions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions(Declared):
    """Options of one stream's query.

    Attributes:
        output_mode: append, update or complete (Spark guide, "Output Modes").
        state_store: rocksdb (with changelog) or hdfs; pinned by the checkpoint at its first start.
        shuffle_partitions: Partitions of the state; pinned likewise. None: the default of the target.
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
        valid_choice(self.output_mode, get_args(OutputMode), field="QueryOptions: output_mode")
        valid_choice(self.state_store, get_args(StateStore), field="QueryOptions: state_store")
        valid_choice(self.watermark_policy, get_args(WatermarkPolicy), field="QueryOptions: watermark_policy")
        positive(self.shuffle_partitions, field="QueryOptions: shuffle_partitions")
        if self.max_run is not None:
            object.__setattr__(self, "max_run", parse_duration(self.max_run, field="QueryOptions: max_run"))
        for option in self.options:
            if "asyncprogresstracking" in option.lower():
                raise DefinitionError(
                    f"QueryOptions: options has {option!r}: Spark tracks progress asynchronously only in queries that "
                    "run on, from Kafka to Kafka; leave it out, and use tidemill run --follow --mode async.",
                    code="option-not-allowed",
                )
            if option in _AT_START:
                raise DefinitionError(
                    f"QueryOptions: options has {option!r}, which Spark reads once, when it starts; set it in the "
                    "target's [spark.conf] table.",
                    code="option-not-allowed",
                )
            if option in _OWN:
                raise DefinitionError(
                    f"QueryOptions: options has {option!r}, which Tidemill sets; use {_OWN[option]}.",
                    code="option-is-argument",
                )
            if not option.startswith("spark.sql.") and not option.startswith("spark.databricks.delta."):
                raise DefinitionError(
                    f"QueryOptions: options has {option!r}, which is not a conf of a session; set it in the target's "
                    "[spark.conf] table.",
                    code="option-not-allowed",
                )

    @property
    def declared_confs(self) -> Mapping[str, str]:
        """The confs that the declaration decides, to be compared with what a checkpoint keeps."""
        declared = {
            _STATE_STORE: _PROVIDERS[self.state_store],
            WATERMARK_POLICY: self.watermark_policy,
            **self.options,
        }
        if self.shuffle_partitions is not None:
            declared[_PARTITIONS] = str(self.shuffle_partitions)
        return declared

    def confs(self, default_partitions: int) -> dict[str, str]:
        """Return the confs of the stream's session, all of them, so that sessions cannot leak into each other."""
        return {
            _PARTITIONS: str(self.shuffle_partitions or default_partitions),
            _STATE_STORE: _PROVIDERS[self.state_store],
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            # How often Spark writes snapshots of the state and removes old files, while a query runs. Most runs are
            # shorter than its minute, so that each start would read the changes of all batches since the first one.
            "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
            WATERMARK_POLICY: self.watermark_policy,
            "spark.sql.session.timeZone": "UTC",
            # Sources have names in the checkpoint, so that inputs can be added, removed and reordered.
            "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
            "spark.sql.streaming.offsetLog.formatVersion": "2",
            **self.options,
        }


def pinned_differences(pinned: Mapping[str, str], declared: Mapping[str, str]) -> list[str]:
    """Return what is declared and has no effect, because the checkpoint keeps another value: a sentence each.

    A checkpoint keeps some confs of its first start, and every later start takes them from there.

    Args:
        pinned: The confs of the checkpoint's newest offsets entry. The entry of the first batch lacks the shuffle
            partitions, which the manifest has.
        declared: The confs of the declaration: see `QueryOptions.declared_confs`.
    """
    stores = {provider: name for name, provider in _PROVIDERS.items()}
    sentences = []
    for conf, value in sorted(declared.items()):
        kept = pinned.get(conf)
        if kept is None or kept.lower() == value.lower():
            continue
        name = _OWN.get(conf, conf).removesuffix("=")
        now, before = stores.get(value, value), stores.get(kept, kept)
        sentences.append(
            f"{name} is declared as {now} and the checkpoint keeps {before}: it was set at the first start, and the "
            f"declaration has no effect. Fix: declare {before}, or rebuild the stream."
        )
    return sentences
