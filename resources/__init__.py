"""The outside world as Dagster resources and plain values: targets, Spark, Kafka, Java and jars."""
