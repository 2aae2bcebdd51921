"""Every other streaming source of Spark, Python data sources included, with Spark's own options."""
