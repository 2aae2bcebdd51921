"""The code location that Dagster loads: the assets and the job of each pipeline of the target, and `defs/`."""

import logging
from pathlib import Path

from dagster import Definitions, MetadataValue, in_process_executor, load_from_defs_folder

from orchestration.assets import pipeline_job, streaming_resources
from orchestration.location import CodeLocation, stream_keys
from orchestration.translator import external_assets
from resources.target.resolve import resolve

target = resolve()
loaded = target.pipelines()
for failure in loaded.failures:  # the others load; the error is also in the metadata of the code location
    logging.getLogger("dagster.tidemill").error("%s", failure.error, exc_info=failure.error.__cause__)
location = CodeLocation.of(
    loaded.pipelines.values(), load_from_defs_folder(path_within_project=Path(__file__).parent), target
)
assets = location.assets
pipelines = [loaded.pipelines[name] for name in assets]

defs = location.merged(
    Definitions(
        assets=[*assets.values(), *external_assets(pipelines, target=target)],
        jobs=[pipeline_job(pipeline, assets[pipeline.name], target=target) for pipeline in pipelines],
        resources=streaming_resources(target, spark=location.spark, asset_keys=stream_keys(location.specs)),
        # One process per run: streams and assets of your own share one JVM instead of starting one each.
        executor=in_process_executor,
        metadata={
            f"tidemill/not_loaded/{failure.entry}": MetadataValue.text(str(failure.error))
            for failure in loaded.failures
        },
    )
)
