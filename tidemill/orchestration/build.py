"""The definitions of a Dagster code location: assets, jobs, sensors and schedules of the pipelines of a target."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dagster import Definitions, ExecutorDefinition, MetadataValue, in_process_executor

from tidemill.errors import ConfigurationError
from tidemill.operations.registry import OPERATIONS
from tidemill.orchestration.alerts.sensor import alert_sensors
from tidemill.orchestration.assets.assets import checks_job, pipeline_job, streaming_resources
from tidemill.orchestration.assets.translator import StreamTranslator, external_assets
from tidemill.orchestration.automation.sensors import backlog_sensor, schedules
from tidemill.orchestration.jobs.backfill_partitions import PartitionedBackfills
from tidemill.orchestration.jobs.operation_job import maintenance_schedule, operation_job
from tidemill.orchestration.location import CodeLocation
from tidemill.target.resolve import ResolvedTarget, resolve
from tidemill.target.target import did_you_mean
from tidemill.text.names import valid_name

if TYPE_CHECKING:
    from tidemill.definitions.pipeline import Pipeline
    from tidemill.target.loading import LoadedPipelines


def build_definitions(
    target: str | ResolvedTarget | None = None,
    *,
    pipelines: Sequence[str] | None = None,
    translator: StreamTranslator | None = None,
    key_prefix: str | Sequence[str] = (),
    defs: Definitions | None = None,
) -> Definitions:
    """Return the definitions of the pipelines of a target.

    A code location of its own gets them with `defs=`. An existing Dagster project merges them into its own with
    `Definitions.merge`, those of several targets with one `key_prefix` each.

    Args:
        target: A target of tidemill.toml by name, or resolved; None: the one that the environment or the file names.
        pipelines: The names of the pipelines; None: all that tidemill.toml names.
        translator: How streams and external data become assets.
        key_prefix: What all asset keys begin with, and the names of all jobs, sensors, schedules, ops and resources:
            with `prod`, the assets `prod/shop/orders`, the job `prod__shop` and the resource `prod__spark`.
        defs: Definitions of your own, such as those of a folder `defs/`. They take precedence: what they define is
            not defined a second time. With them, runs without a job of their own are one process, unless they have
            an executor; without them, the executor of what these definitions are merged into applies.

    Raises:
        ConfigurationError: tidemill.toml is missing or has a fault, or it has no such pipeline.
        DefinitionError: Two pipelines are built with different translators, and one reads the other; or the prefix is
            not allowed.
    """
    target = target if isinstance(target, ResolvedTarget) else resolve(target)
    parts = [key_prefix] if isinstance(key_prefix, str) else key_prefix
    key_prefix = [valid_name(part, field="key_prefix") for part in parts]
    loaded = target.pipelines()
    for failure in loaded.failures:  # the others load; the error is also in the metadata of the code location
        logging.getLogger("dagster.tidemill").error("%s", failure.error, exc_info=failure.error.__cause__)
    selected = _selected(loaded, pipelines)
    location = CodeLocation.of(
        selected, defs or Definitions(), target, translator=translator, key_prefix=key_prefix
    )
    return location.merged(
        _definitions(
            selected,
            location,
            target,
            metadata={
                f"tidemill/not_loaded/{failure.entry}": MetadataValue.text(str(failure.error))
                for failure in loaded.failures
            },
            # One process per run: streams and assets of your own share one JVM instead of starting one each.
            executor=None if defs is None else in_process_executor,
        )
    )


def _selected(loaded: "LoadedPipelines", names: Sequence[str] | None) -> "list[Pipeline]":
    """Return the pipelines of these names; one that cannot be loaded is left out."""
    if names is None:
        return list(loaded.pipelines.values())
    for name in names:
        if name not in loaded.pipelines and not loaded.failures:
            raise ConfigurationError(
                f"There is no pipeline {name!r} in tidemill.toml.{did_you_mean(name, loaded.pipelines)}",
                fix="Correct pipelines= of build_definitions, or add the pipeline to tidemill.toml.",
                code="pipeline-missing",
            )
    return [loaded.pipelines[name] for name in names if name in loaded.pipelines]


def _definitions(
    pipelines: "Sequence[Pipeline]",
    location: CodeLocation,
    target: ResolvedTarget,
    *,
    metadata: Mapping[str, MetadataValue],
    executor: ExecutorDefinition | None,
) -> Definitions:
    prefix, keys = location.prefix, location.keys
    keys_of = {pipeline.name: location.keys_of(pipeline) for pipeline in pipelines}
    partitioned = PartitionedBackfills.of(pipelines, keys, target=target, prefix=prefix)
    built = [pipeline for pipeline in pipelines if pipeline.name in location.assets]
    return Definitions(
        assets=[
            *location.assets.values(),
            *partitioned.assets,
            *external_assets(built, location.translator, target=target),
        ],
        jobs=[
            job(pipeline, keys_of[pipeline.name].values(), target=target, prefix=prefix)
            for pipeline in pipelines
            for job in (pipeline_job, checks_job)
        ]
        + [
            job
            for pipeline in pipelines
            for job in (
                operation_job(spec, pipeline, keys_of[pipeline.name], target=target, prefix=prefix)
                for spec in OPERATIONS.values()
            )
        ]
        + list(partitioned.jobs),
        sensors=[
            backlog_sensor(
                pipeline,
                keys_of[pipeline.name],
                target=target,
                translator=location.translator,
                running=target.automation,
                prefix=prefix,
            )
            for pipeline in pipelines
        ]
        + alert_sensors(pipelines, keys, target=target, prefix=prefix),
        schedules=[
            schedule
            for pipeline in pipelines
            for schedule in schedules(
                pipeline, keys_of[pipeline.name], target=target, running=target.automation, prefix=prefix
            )
        ]
        + [maintenance_schedule(pipeline, prefix=prefix) for pipeline in pipelines],
        resources=streaming_resources(target, spark=location.spark, asset_keys=keys, prefix=prefix),
        executor=executor,
        metadata=metadata,
    )
