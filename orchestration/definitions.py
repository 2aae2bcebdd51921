"""The code location that Dagster loads: the assets and the job of each pipeline of the target."""

import logging

from dagster import Definitions, MetadataValue, in_process_executor

from orchestration.alerts import alert_sensors
from orchestration.assets import pipeline_job, streaming_assets
from orchestration.schedules import schedules
from orchestration.sensors import backlog_sensor
from orchestration.translator import external_assets, stream_keys
from resources.spark import SparkResource
from resources.target.resolve import resolve

target = resolve()
loaded = target.pipelines()
for failure in loaded.failures:  # the others load; the error is also in the metadata of the code location
    logging.getLogger("dagster.tidemill").error("%s", failure.error, exc_info=failure.error.__cause__)
assets = {name: streaming_assets(pipeline, target=target) for name, pipeline in loaded.pipelines.items()}

keys = {name: stream_keys(pipeline) for name, pipeline in loaded.pipelines.items()}

defs = Definitions(
    assets=[*assets.values(), *external_assets(loaded.pipelines.values(), target=target)],
    jobs=[pipeline_job(pipeline, assets[name]) for name, pipeline in loaded.pipelines.items()],
    sensors=[
        backlog_sensor(pipeline, keys[name], target=target, running=target.automation)
        for name, pipeline in loaded.pipelines.items()
    ]
    + alert_sensors(loaded.pipelines, keys, assets, target=target),
    schedules=[
        schedule
        for name, pipeline in loaded.pipelines.items()
        for schedule in schedules(pipeline, keys[name], target=target, running=target.automation)
    ],
    resources={"spark": SparkResource()},
    # One process per run: streams and assets of your own share one JVM instead of starting one each.
    executor=in_process_executor,
    metadata={
        f"tidemill/not_loaded/{failure.entry}": MetadataValue.text(str(failure.error))
        for failure in loaded.failures
    },
)
