"""Streams with a quarantine whose rules change: `python -m tests.run.quarantine.record_streams LAKE LANDING LEAST`."""

import sys
from pathlib import Path

from tidemill import DeltaAppend, Expect, Feed, Json, Pipeline


def shop(least: int, *, noted: bool = False) -> Pipeline:
    """The streams, with the least amount that the rule accepts, and with a rule more where `noted`."""
    pipeline = Pipeline("shop")
    rules = {"amount_large": f"amount >= {least}"} | ({"noted": "note <> ''"} if noted else {})
    schema = "order_id STRING, amount BIGINT, note STRING"

    @pipeline.stream(
        source=Feed("orders", format=Json(schema), rules=rules),
        sink=[DeltaAppend(name="archive"), DeltaAppend()],
        expect=[Expect("known", "order_id <> ''", on_violation="drop")],
    )
    def orders(events):
        return events.drop("_origin")

    @pipeline.stream(source=orders, sink=DeltaAppend())
    def copied(orders):
        return orders.select("order_id")

    return pipeline


def main() -> None:
    """Replay the quarantine of `orders`, in a process and a JVM of its own."""
    from tests.servers.spark_of_tests import settings
    from tidemill.engines.engine import SparkEngine
    from tidemill.operations.quarantine.quarantine_replay import replay_quarantine
    from tidemill.storage.lake import Lake
    from tidemill.testing import Scratch

    lake, landing, least = sys.argv[1:]
    engine = SparkEngine(settings())
    target = Scratch(lake=Lake.at(lake), landing=Path(landing), engine=engine).target
    replay_quarantine(shop(int(least))["orders"], target, engine)


if __name__ == "__main__":
    main()
