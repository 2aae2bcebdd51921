"""Spark: which Java runs it, and sessions for runs."""
