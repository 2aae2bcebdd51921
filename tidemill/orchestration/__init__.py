"""Dagster definitions of pipelines; the only room that imports Dagster."""
