"""The pipeline of the streams in this folder."""

from tidemill import Pipeline

ads = Pipeline("ads", description="Impressions and clicks, from raw events to campaign reports.")
