"""Spark's plans as text: operators, lineage, bounds of joins, and whether state stays compatible."""
