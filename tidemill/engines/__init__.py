"""Spark: the Java that runs it, its start, and the sessions of a run."""
