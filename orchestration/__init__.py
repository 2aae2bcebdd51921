"""Dagster definitions of the pipelines, and the `tidemill` command. Imports nothing itself."""
