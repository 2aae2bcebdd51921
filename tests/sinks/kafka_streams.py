"""Streams into Kafka whose run is killed: `python -m tests.sinks.kafka_streams LAKE LANDING BOOTSTRAP TOPIC`."""

import sys

from tests.killed import scratch_at
from tidemill import DeltaAppend, Feed, Json, KafkaSink, Pipeline
from tidemill.target.target import KafkaCluster

SALE = "shop STRING, amount BIGINT"


def sales_stream(*sinks, function=lambda sales: sales, **declared):
    feed = Feed("sales", format=Json(SALE), max_files_per_batch=1)
    return Pipeline("shops").stream(source=feed, sink=list(sinks), name="sales", **declared)(function)


def killed_stream(topic):
    return sales_stream(KafkaSink(topic, key="shop", value="json"), DeltaAppend())


def main() -> None:
    lake, landing, bootstrap, topic = sys.argv[1:]
    scratch = scratch_at(lake, landing)
    scratch.clusters["default"] = KafkaCluster(bootstrap=bootstrap)
    scratch.run(killed_stream(topic))


if __name__ == "__main__":
    main()
