"""Partitioned assets that replay days or hours of streams, for Dagster's backfills and for `--partition-range`.

The streams' own assets have no partitions. A stream whose `backfill_by` has days or hours gets a second asset, with
a key of its own that no other asset depends on. A run replays its whole range at once, as `tidemill backfill` does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    BackfillPolicy,
    DailyPartitionsDefinition,
    HourlyPartitionsDefinition,
    MaterializeResult,
    TimeWindow,
    define_asset_job,
    in_process_executor,
    multi_asset,
)

from tidemill.definitions.code_version import code_version
from tidemill.operations.replay.backfill import BACKFILL
from tidemill.orchestration.automation.run_tags import job_tags, tag_run
from tidemill.orchestration.jobs.operation_job import argument_fields, carried_out, failing, observe

if TYPE_CHECKING:
    from dagster import UnresolvedAssetJobDefinition

    from tidemill.definitions.backfill_by import Every
    from tidemill.definitions.pipeline import Pipeline
    from tidemill.definitions.stream import Stream
    from tidemill.orchestration.jobs.operation_job import Done, Keys
    from tidemill.orchestration.spark_resource import SparkResource
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

    Partitions = DailyPartitionsDefinition | HourlyPartitionsDefinition

PREFIX = "backfill"
REPLAYS = "tidemill/replays"
"""The metadata entry with the name of the stream that an asset replays."""
_FORMATS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H:%M"}


@dataclass(frozen=True, slots=True)
class PartitionedBackfills:
    """The assets that replay partitions, and their jobs.

    Attributes:
        assets: One op per pipeline and length of a partition.
        jobs: The job of each, such as `<pipeline>__backfill_days`.
    """

    assets: "tuple[AssetsDefinition, ...]"
    jobs: "tuple[UnresolvedAssetJobDefinition, ...]"

    @classmethod
    def of(
        cls,
        pipelines: "Iterable[Pipeline]",
        keys: "Keys",
        *,
        target: "Target | None" = None,
        prefix: str = "",
    ) -> "PartitionedBackfills":
        """Return the assets and jobs of all streams that declare days or hours.

        All pipelines share one definition of days and one of hours, which begin with the earliest day that a stream
        declares: Dagster does not select assets with different ones for the same job.
        """
        assets, jobs = [], []
        streams = [stream for pipeline in pipelines for stream in pipeline if stream.name in keys]
        for every, partitions in _partitions(streams).items():
            with_days = {
                stream.name: stream
                for stream in streams
                if stream.backfill_by and stream.backfill_by.every == every
            }
            replays = {name: keys[name].with_prefix(PREFIX) for name in with_days}
            for pipeline in pipelines:
                own = [stream for stream in with_days.values() if stream.name.pipeline == pipeline.name]
                if own:
                    specs = [_spec(stream, replays, partitions) for stream in own]
                    assets.append(_assets(pipeline, every, specs, keys=keys, replays=replays, prefix=prefix))
                    jobs.append(_job(pipeline, every, [spec.key for spec in specs], target, prefix))
        return cls(tuple(assets), tuple(jobs))


def _partitions(streams: "Iterable[Stream]") -> "dict[Every, Partitions]":
    since: dict[Every, str] = {}
    for stream in streams:
        by = stream.backfill_by
        if by is not None and by.every is not None and by.since is not None:
            since[by.every] = min(by.since, since.get(by.every, by.since))
    # The partition of the current day or hour is there as well: what it has so far can be replayed.
    return {
        every: DailyPartitionsDefinition(day, end_offset=1)
        if every == "day"
        else HourlyPartitionsDefinition(f"{day}-00:00", end_offset=1)
        for every, day in since.items()
    }


def _spec(stream: "Stream", replays: "Mapping[StreamName, AssetKey]", partitions: "Partitions") -> AssetSpec:
    return AssetSpec(
        replays[stream.name],
        deps=[replays[name] for name in stream.upstreams if name in replays],
        description=f"Ranges of {stream.name} that are computed again and replaced, as tidemill backfill does.",
        # A group of its own: the pipeline's assets can still be materialized together without a partition.
        group_name=f"{stream.name.pipeline}__{PREFIX}",
        kinds={"spark", "deltalake"},
        owners=stream.owners,
        tags=stream.tags,
        code_version=code_version(stream),
        metadata={REPLAYS: str(stream.name)},
        partitions_def=partitions,
        skippable=True,
    )


def _assets(
    pipeline: "Pipeline",
    every: "Every",
    specs: list[AssetSpec],
    *,
    keys: "Keys",
    replays: "Mapping[StreamName, AssetKey]",
    prefix: str,
) -> AssetsDefinition:
    """Return one op that replays any subset of a pipeline's streams, in dependency order.

    Args:
        every: The length of its partitions.
        keys: The keys of all streams' own assets.
        replays: The keys of all assets that replay partitions of this length.
    """
    resource = f"{prefix}spark"

    @multi_asset(
        # Two underscores: no pipeline, and so no job, can have this name.
        name=f"{prefix}{pipeline.name}__replay_{every}s",
        description=f"Replays {every}s of {pipeline.name}.",
        specs=specs,
        can_subset=True,
        required_resource_keys={resource},
        backfill_policy=BackfillPolicy.single_run(),
        config_schema=argument_fields(BACKFILL, without=("begin", "end", "keep_staging")),
    )
    def replay_partitions(
        context: AssetExecutionContext,
    ) -> Iterator[MaterializeResult[None] | AssetMaterialization]:
        if not (context.has_partition_key or context.has_partition_key_range):
            # A job over all assets has no partition.
            context.log.info("The run has no partition, so nothing is replayed.")
            return
        spark: SparkResource = getattr(context.resources, resource)
        tag_run(context.instance, context.run.run_id, spark.resolved_target.name, [pipeline.name])
        selected = {name: key for name, key in replays.items() if key in context.selected_asset_keys}
        begin, end = span_of(context.partition_time_window, every)
        asked = {"selection": [str(name) for name in selected], "begin": begin, "end": end, "dry_run": False}
        with failing():
            for done in carried_out(
                BACKFILL, pipeline, context.op_execution_context.op_config | asked, spark
            ):
                observe(context, keys, done)
                if (key := replays.get(done.stream)) is not None:
                    yield from _materialized(context, key, done)

    return replay_partitions


def span_of(window: TimeWindow, every: "Every") -> tuple[str, str]:
    """Return the first value of `backfill_by` in a time window, and the first after it."""
    return window.start.strftime(_FORMATS[every]), window.end.strftime(_FORMATS[every])


def _materialized(
    context: AssetExecutionContext, key: AssetKey, done: "Done"
) -> Iterator[MaterializeResult[None] | AssetMaterialization]:
    """Yield a materialization of each partition: as an output, or as an event where the asset was not selected."""
    if key in context.selected_asset_keys:
        yield MaterializeResult(asset_key=key, metadata=done.metadata)
        return
    for partition in context.partition_keys:
        yield AssetMaterialization(key, partition=partition, metadata=done.metadata)


def _job(
    pipeline: "Pipeline", every: "Every", assets: list[AssetKey], target: "Target | None", prefix: str
) -> "UnresolvedAssetJobDefinition":
    return define_asset_job(
        # Two underscores: no pipeline, and so no other job, can have this name.
        f"{prefix}{pipeline.name}__backfill_{every}s",
        selection=AssetSelection.assets(*assets),
        description=f"Replays {every}s of {pipeline.name}, a range of them in one run.",
        executor_def=in_process_executor,
        run_tags=job_tags(None if target is None else target.name, pipeline.name),
    )
