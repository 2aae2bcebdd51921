"""Dagster definitions of pipelines; the only room that imports Dagster."""

from tidemill.orchestration.build import build_definitions

__all__ = ["build_definitions"]
