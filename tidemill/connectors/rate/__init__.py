"""Rows that Spark generates, as a source: for tests, and the smallest example of a connector."""
