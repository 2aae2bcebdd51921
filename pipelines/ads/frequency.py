"""Alert on users who see one ad too often."""

import os
from collections import defaultdict
from typing import TYPE_CHECKING

from pipelines.ads.deduplicate import unique_impressions
from pipelines.ads.pipeline import ads
from tidemill import BackfillBy, DeltaAppend, KafkaSink
from tidemill import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from tidemill.definitions.sink import Sink

ALLOWED = 5
MINUTES = 10
ALERT = """
    user_id STRING,
    window_ms BIGINT,
    ad_id STRING,
    impressions BIGINT,
    first_micros BIGINT,
    last_micros BIGINT
"""


def alert_sinks(topic: str | None) -> "list[Sink]":
    """Return the sinks of the alerts: a table and, where it is given, a topic of the target's Kafka cluster."""
    messages = [KafkaSink(topic, key="user_id", value="json")] if topic else []
    return [*messages, DeltaAppend()]


def alerts_of_a_window() -> "StatefulProcessor":
    """Return the processor that keeps the impressions of a user in a window, and counts them at its end.

    It fires after all rows that are not late, so the alerts do not depend on how runs cut the input.
    """
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    # Spark sends a class of a function to its Python workers as code, so they need not import this module.
    class Alerts(StatefulProcessor):
        def init(self, handle: "Any") -> None:
            self.handle = handle
            self.impressions = handle.getListState("impressions", "ad_id STRING, micros BIGINT")

        def handleInputRows(self, key: "Any", rows: "Any", timerValues: "Any") -> "Iterator[Row]":
            self.impressions.appendList([(row["ad_id"], row["micros"]) for row in rows])
            self.handle.registerTimer(key[1] + MINUTES * 60_000)
            return iter(())

        def handleExpiredTimer(
            self, key: "Any", timerValues: "Any", expiredTimerInfo: "Any"
        ) -> "Iterator[Row]":
            times: dict[str, list[int]] = defaultdict(list)
            for ad_id, micros in self.impressions.get():
                times[ad_id].append(micros)
            self.impressions.clear()
            for ad_id, of_ad in times.items():
                if len(of_ad) > ALLOWED:
                    yield Row(
                        user_id=key[0],
                        window_ms=key[1],
                        ad_id=ad_id,
                        impressions=len(of_ad),
                        first_micros=min(of_ad),
                        last_micros=max(of_ad),
                    )

        def close(self) -> None:
            pass

    return Alerts()


@ads.stream(
    source=unique_impressions.with_watermark("event_time", "2 hours"),
    sink=alert_sinks(os.environ.get("ADS_ALERTS_TOPIC")),
    backfill_by=BackfillBy("window_start", every="day", since="2025-12-01"),
)
def frequency_alerts(impressions: "DataFrame") -> "DataFrame":
    """Each user who saw an ad more than 5 times in a window of 10 minutes, once the window is over.

    Windows begin at each full ten minutes. One is over when the watermark, two hours behind the newest impression,
    has reached its end. `first_seen` and `last_seen` are the times of the first and the last impression in it.
    """
    windowed = impressions.select(
        "user_id",
        F.unix_millis(F.window("event_time", f"{MINUTES} minutes")["start"]).alias("window_ms"),
        "ad_id",
        "event_time",  # its watermark decides which rows are late
        F.unix_micros("event_time").alias("micros"),
    )
    alerts = windowed.groupBy("user_id", "window_ms").transformWithState(
        alerts_of_a_window(), ALERT, "Append", "EventTime"
    )
    return alerts.select(
        "user_id",
        "ad_id",
        F.timestamp_millis("window_ms").alias("window_start"),
        "impressions",
        F.timestamp_micros("first_micros").alias("first_seen"),
        F.timestamp_micros("last_micros").alias("last_seen"),
    )
