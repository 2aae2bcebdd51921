"""Checks of a stream: what is wrong with it, in numbers and a sentence, read without a JVM and without Dagster.

A run evaluates all of them for each of its streams. `tidemill check` and a schedule evaluate the same functions.
"""

from pipelines.streaming.checks.bounds import Checks, StateBounds
from pipelines.streaming.checks.result import CheckResult, Severity

__all__ = ["CheckResult", "Checks", "Severity", "StateBounds"]
