"""Timers of the processing time: a run ends after its data, and a later one fires what is due."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from tests.support.checked import failed_checks
from tidemill import DeltaAppend, Feed, Json, Pipeline, QueryOptions, RunWhen
from tidemill.operations.generations.rewind import rewind
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide_run
from tidemill.run.decide.status import status_of
from tidemill.run.decide.tick import decision as tick
from tidemill.testing import multiset


def silent_for(orders, milliseconds):
    """A row for each customer without an order for as long as the function says, with one timer each."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def seen(key, batches, state):
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"customer": [key[0]]})
            return
        for _ in batches:
            pass
        state.update((1,))
        state.setTimeoutDuration(milliseconds(key[0]))

    timeout = GroupStateTimeout.ProcessingTimeTimeout
    by_customer = orders.groupBy("customer")
    return by_customer.applyInPandasWithState(seen, "customer STRING", "n INT", "append", timeout)


def processed_silent_for(orders, milliseconds):
    """The same with a stateful processor."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Silent(StatefulProcessor):
        def init(self, handle):
            self.handle = handle
            self.known = handle.getValueState("known", "n INT")

        def handleInputRows(self, key, rows, timerValues):
            for _ in rows:
                pass
            self.known.update((1,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + milliseconds(key[0]))
            return iter(())

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            self.known.clear()
            yield Row(customer=key[0])

        def close(self):
            pass

    by_customer = orders.groupBy("customer")
    return by_customer.transformWithState(Silent(), "customer STRING", "Append", "ProcessingTime")


def silent_customers(function=silent_for, **query):
    """A row for each customer who has been silent for a moment, and for an hour where the customer is slow."""
    shop = Pipeline("shop", run_when=RunWhen(timers_every="1 hour", at_most_every="0 seconds"))
    orders = shop.stream(
        source=Feed("orders", format=Json("customer STRING")), sink=DeltaAppend(), name="orders"
    )(lambda rows: rows)

    @shop.stream(
        source=orders,
        sink=DeltaAppend(),
        query=QueryOptions(output_mode="append", shuffle_partitions=1, **query),
    )
    def silent(orders):
        return function(orders, lambda customer: 3_600_000 if customer == "slow" else 1)

    return orders, silent


@pytest.mark.parametrize(
    ("function", "query"),
    [
        (silent_for, {}),
        pytest.param(processed_silent_for, {"state_store": "rocksdb"}, marks=pytest.mark.campaign),
    ],
    ids=["function", "processor"],
)
def test_timers_fire_after_the_data_and_when_they_are_due(scratch, function, query):
    orders, silent = silent_customers(function, **query)
    scratch.run(orders, [[{"customer": "a"}, {"customer": "b"}]])
    [result] = scratch.run(silent)
    assert [batch.rows_read for batch in result.batches] == [2, 0], "the data and one more batch"
    assert scratch.rows(silent) == multiset([("a",), ("b",)]), "whose timers are due by then"
    assert decide_run(silent, scratch.target).idle, "there is no state left"

    scratch.run(orders, [[{"customer": "slow"}]])
    scratch.run(silent)
    now, records = datetime.now(UTC), StreamRecords(scratch.lake, silent.name)
    assert tick(silent, scratch.target, now=now).state == "idle"
    [poll] = status_of(silent, scratch.target).polls
    assert "a run fires those that are due every 1 hour" in poll
    manifest = records.manifest()
    an_hour_ago = replace(manifest.last_run, ended_at=(now - timedelta(hours=1)).isoformat())
    records.write_manifest(replace(manifest, last_run=an_hour_ago))
    assert tick(silent, scratch.target, now=now).state == "due"
    version = scratch.lake.table(silent.name).log.latest_version()
    [result] = scratch.run(silent)
    [batch] = result.batches
    assert (batch.rows_read, batch.rows_written, batch.delta_version) == (0, 0, None), "nothing was due"
    assert scratch.lake.table(silent.name).log.latest_version() == version, "and nothing was committed"
    assert scratch.rows(silent) == multiset([("a",), ("b",)])
    assert decide_run(silent, scratch.target).idle
    assert failed_checks(scratch, silent) == []

    scratch.run(orders, [[{"customer": "c"}]])
    scratch.run(silent)
    assert scratch.rows(silent) == multiset([("a",), ("b",), ("c",)])
    assert failed_checks(scratch, silent) == []
    if function is processed_silent_for:  # whose state Spark cannot copy
        return
    rewind(silent, scratch.target, scratch.engine, to_batch=batch.batch_id)
    assert scratch.rows(silent) == multiset([("a",), ("b",)])
    scratch.run(silent)
    assert scratch.rows(silent) == multiset([("a",), ("b",), ("c",)])
    assert failed_checks(scratch, silent) == []
