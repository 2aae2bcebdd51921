"""Spark as a run sees it: sessions, the internals of classic Spark, and its errors translated."""
