"""The outside world: targets, Spark, Kafka, Java and jars, each reached in one way."""
