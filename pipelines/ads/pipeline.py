"""The pipeline that the streams of this folder belong to."""

from pipelines.streaming import Pipeline

ads = Pipeline("ads", description="Impressions and clicks, from raw events to campaign reports.")
