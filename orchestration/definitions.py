"""The code location that Dagster loads: the assets and the job of each pipeline of the target."""

from dagster import Definitions, in_process_executor

from orchestration.assets import pipeline_job, streaming_assets
from orchestration.translator import external_assets
from resources.spark import SparkResource
from resources.target.resolve import resolve

target = resolve()
pipelines = target.pipelines()
assets = {name: streaming_assets(pipeline, target=target) for name, pipeline in pipelines.items()}

defs = Definitions(
    assets=[*assets.values(), *external_assets(pipelines.values(), target=target)],
    jobs=[pipeline_job(pipeline, assets[name]) for name, pipeline in pipelines.items()],
    resources={"spark": SparkResource()},
    # One process per run: streams and assets of your own share one JVM instead of starting one each.
    executor=in_process_executor,
)
