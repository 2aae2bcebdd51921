"""What all tests share: one Spark session a process, and one broker a process."""

import os
import signal

import pytest

from resources.engine.engine import SparkEngine
from resources.engine.settings import SparkSettings
from tests.small import SMALL

LONGEST = (
    "tests/pipelines/ads/test_pipeline.py",
    "tests/streaming/test_faults.py",
    "tests/streaming/test_runner.py",
    "tests/streaming/checkpoint/test_against_spark.py",
    "tests/streaming/test_connect.py",
    "tests/orchestration/test_real_run.py",
)
"""The files that take minutes: they begin first, so that two processes end at about the same time."""

# A shell starts a background job with SIGINT ignored, and every child inherits that. Tests interrupt for real.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after the shuffling of pytest-randomly
def pytest_collection_modifyitems(items):
    """The longest files first, the rest as it is."""
    target = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: target.get(item.nodeid.split("::")[0], len(LONGEST)))


@pytest.fixture(scope="session")
def engine():
    """Engine of one small local Spark, started by the first test that needs it."""
    engine = SparkEngine(
        SparkSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2, conf=SMALL)
    )
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def broker():
    """A real Kafka broker, started by the first test that needs it."""
    from resources.dev.broker import Broker

    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch):
    """Tests mean what they say, whatever the environment of whoever runs them says."""
    for name in [name for name in os.environ if name.startswith("TIDEMILL_") and name != "TIDEMILL_CACHE"]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
