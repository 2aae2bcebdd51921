"""Streams into Kafka whose run is killed: `python -m tests.sinks.killed.kafka_streams LAKE LANDING BOOTSTRAP TOPIC`."""

from tests.support.killed import run_into_kafka
from tidemill import DeltaAppend, Feed, Json, KafkaSink, Pipeline

SALE = "shop STRING, amount BIGINT"


def sales_stream(*sinks, function=lambda sales: sales, **declared):
    feed = Feed("sales", format=Json(SALE), max_files_per_batch=1)
    return Pipeline("shops").stream(source=feed, sink=list(sinks), name="sales", **declared)(function)


def killed_stream(topic):
    return sales_stream(KafkaSink(topic, key="shop", value="json"), DeltaAppend())


if __name__ == "__main__":
    run_into_kafka(killed_stream)
