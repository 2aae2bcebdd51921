"""Streams as Dagster assets: specs, metadata, checks and events."""
