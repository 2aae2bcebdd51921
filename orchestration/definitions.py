"""The code location that Dagster loads: the assets and the job of each pipeline of the target."""

import logging

from dagster import Definitions, MetadataValue, in_process_executor

from orchestration.assets import checks_job, pipeline_job, streaming_assets
from orchestration.translator import external_assets
from resources.spark import SparkResource
from resources.target.resolve import resolve

target = resolve()
loaded = target.pipelines()
for failure in loaded.failures:  # the others load; the error is also in the metadata of the code location
    logging.getLogger("dagster.tidemill").error("%s", failure.error, exc_info=failure.error.__cause__)
assets = {name: streaming_assets(pipeline, target=target) for name, pipeline in loaded.pipelines.items()}

defs = Definitions(
    assets=[*assets.values(), *external_assets(loaded.pipelines.values(), target=target)],
    jobs=[
        job(pipeline, assets[name])
        for name, pipeline in loaded.pipelines.items()
        for job in (pipeline_job, checks_job)
    ],
    resources={"spark": SparkResource()},
    # One process per run: streams and assets of your own share one JVM instead of starting one each.
    executor=in_process_executor,
    metadata={
        f"tidemill/not_loaded/{failure.entry}": MetadataValue.text(str(failure.error))
        for failure in loaded.failures
    },
)
