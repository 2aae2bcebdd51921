"""What all tests share: one Spark session a process, and one broker a process."""

import os
import signal

import pytest

from resources.engine import Engine, SparkSettings

# A shell starts a background job with SIGINT ignored, and every child inherits that. Tests interrupt for real.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def sessions():
    """Sessions of one small local Spark, started by the first test that needs it."""
    # Tests are many small queries: code that is compiled fast beats code that runs fast.
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    engine = Engine(SparkSettings(master="local[2]", driver_memory="1500m", shuffle_partitions=2, conf=conf))
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def broker():
    """A real Kafka broker, started by the first test that needs it."""
    from resources.broker import Broker

    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch):
    """Tests mean what they say, whatever the environment of whoever runs them says."""
    for name in [name for name in os.environ if name.startswith("TIDEMILL_") and name != "TIDEMILL_CACHE"]:
        monkeypatch.delenv(name)
