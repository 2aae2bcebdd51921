"""The definitions of a Dagster code location: assets, jobs, sensors and schedules of every pipeline of a target."""

import logging

from dagster import Definitions, MetadataValue, in_process_executor

from tidemill.orchestration.alerts.sensor import alert_sensors
from tidemill.orchestration.assets.assets import checks_job, pipeline_job, streaming_resources
from tidemill.orchestration.assets.translator import external_assets
from tidemill.orchestration.automation.schedules import schedules
from tidemill.orchestration.automation.sensors import backlog_sensor
from tidemill.orchestration.jobs.backfill_partitions import PartitionedBackfills
from tidemill.orchestration.jobs.operation_job import maintenance_schedule, operation_jobs
from tidemill.orchestration.location import CodeLocation
from tidemill.target.resolve import ResolvedTarget, resolve


def build_definitions(
    target: str | ResolvedTarget | None = None,
    *,
    defs: Definitions | None = None,
) -> Definitions:
    """Return the definitions of all pipelines of a target.

    Args:
        target: A target of tidemill.toml by name, or resolved; None: the one that the environment or the file names.
        defs: Definitions of your own, such as those of a folder `defs/`. They take precedence: what they define is
            not defined a second time.

    Raises:
        ConfigurationError: tidemill.toml is missing or has a fault.
        DefinitionError: Two pipelines are built with different translators, and one reads the other.
    """
    target = target if isinstance(target, ResolvedTarget) else resolve(target)
    loaded = target.pipelines()
    for failure in loaded.failures:  # the others load; the error is also in the metadata of the code location
        logging.getLogger("dagster.tidemill").error("%s", failure.error, exc_info=failure.error.__cause__)
    pipelines = loaded.pipelines.values()
    location = CodeLocation.of(pipelines, defs or Definitions(), target)
    partitioned = PartitionedBackfills.of(pipelines, location.keys, target=target)
    return location.merged(
        Definitions(
            assets=[
                *location.assets.values(),
                *partitioned.assets,
                *external_assets([p for p in pipelines if p.name in location.assets], target=target),
            ],
            jobs=[
                job(pipeline, location.keys_of(pipeline).values(), target=target)
                for pipeline in pipelines
                for job in (pipeline_job, checks_job)
            ]
            + [
                job
                for pipeline in pipelines
                for job in operation_jobs(pipeline, location.keys_of(pipeline), target=target)
            ]
            + list(partitioned.jobs),
            sensors=[
                backlog_sensor(pipeline, location.keys_of(pipeline), target=target, running=target.automation)
                for pipeline in pipelines
            ]
            + alert_sensors(pipelines, location.keys, target=target),
            schedules=[
                schedule
                for pipeline in pipelines
                for schedule in schedules(
                    pipeline, location.keys_of(pipeline), target=target, running=target.automation
                )
            ]
            + [maintenance_schedule(pipeline) for pipeline in pipelines],
            resources=streaming_resources(target, spark=location.spark, asset_keys=location.keys),
            # One process per run: streams and assets of your own share one JVM instead of starting one each.
            executor=in_process_executor,
            metadata={
                f"tidemill/not_loaded/{failure.entry}": MetadataValue.text(str(failure.error))
                for failure in loaded.failures
            },
        )
    )
