"""Decisions before a run, without Spark: what is waiting, and whether a stream may run."""
