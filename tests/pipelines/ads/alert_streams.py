"""The alerts of `ads` into a topic, whose run is killed:
`python -m tests.pipelines.ads.alert_streams LAKE LANDING BOOTSTRAP TOPIC`.
"""

import sys
from dataclasses import replace

from pipelines.ads import ads
from pipelines.ads.frequency import alert_sinks
from tests.killed import scratch_at
from tidemill.target.target import KafkaCluster


def alerts_into(topic):
    """The stream as it is declared where the environment names the topic."""
    return replace(ads["frequency_alerts"], sinks=tuple(alert_sinks(topic)))


def main() -> None:
    lake, landing, bootstrap, topic = sys.argv[1:]
    scratch = scratch_at(lake, landing)
    scratch.clusters["default"] = KafkaCluster(bootstrap=bootstrap)
    scratch.run(alerts_into(topic))


if __name__ == "__main__":
    main()
