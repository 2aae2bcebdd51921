"""The code location that Dagster loads: assets, job, sensor and schedules of each pipeline, and `defs/`."""

import logging
from pathlib import Path

from dagster import Definitions, MetadataValue, in_process_executor, load_from_defs_folder

from orchestration.alerts import alert_sensors
from orchestration.assets import checks_job, pipeline_job, streaming_resources
from orchestration.backfill_partitions import PartitionedBackfills
from orchestration.backfills import backfill_job
from orchestration.lifecycle_jobs import lifecycle_jobs
from orchestration.location import CodeLocation
from orchestration.maintenance import maintenance_job, maintenance_schedule
from orchestration.schedules import schedules
from orchestration.sensors import backlog_sensor
from orchestration.translator import external_assets
from resources.target.resolve import resolve

target = resolve()
loaded = target.pipelines()
for failure in loaded.failures:  # the others load; the error is also in the metadata of the code location
    logging.getLogger("dagster.tidemill").error("%s", failure.error, exc_info=failure.error.__cause__)
pipelines = loaded.pipelines.values()
location = CodeLocation.of(
    pipelines, load_from_defs_folder(path_within_project=Path(__file__).parent), target
)
partitioned = PartitionedBackfills.of(pipelines, location.keys, target=target)

defs = location.merged(
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
            job(pipeline, location.keys_of(pipeline), target=target)
            for pipeline in pipelines
            for job in (maintenance_job, backfill_job)
        ]
        + [
            job
            for pipeline in pipelines
            for job in lifecycle_jobs(pipeline, location.keys_of(pipeline), target=target)
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
