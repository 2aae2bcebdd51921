"""What the pipeline `ads` has in Dagster besides its streams."""
