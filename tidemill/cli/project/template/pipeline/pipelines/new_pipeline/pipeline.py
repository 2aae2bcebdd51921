"""The pipeline of the streams in this folder."""

from tidemill import Pipeline

new_pipeline = Pipeline("new_pipeline", description="Events, from raw records to tables.")
