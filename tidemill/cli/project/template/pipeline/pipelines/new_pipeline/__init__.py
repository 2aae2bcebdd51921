"""The pipeline `new_pipeline`."""

from pipelines.new_pipeline.pipeline import new_pipeline as new_pipeline
from pipelines.new_pipeline.events import events as events
