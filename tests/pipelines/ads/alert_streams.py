"""The alerts of `ads` into a topic, whose run is killed:
`python -m tests.pipelines.ads.alert_streams LAKE LANDING BOOTSTRAP TOPIC`.
"""

from dataclasses import replace

from pipelines.ads import ads
from pipelines.ads.frequency import alert_sinks
from tests.support.killed import run_into_kafka


def alerts_into(topic):
    """The stream as it is declared where the environment names the topic."""
    return replace(ads["frequency_alerts"], sinks=tuple(alert_sinks(topic)))


if __name__ == "__main__":
    run_into_kafka(alerts_into)
