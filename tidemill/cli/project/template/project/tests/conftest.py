"""What all tests share: one small local Spark, started by the first test that needs it."""

from collections.abc import Iterator

import pytest

from tidemill.engines.engine import SparkEngine
from tidemill.target.spark_settings import SparkSettings


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkEngine]:
    """Return the Spark that the runs of all tests share, each in a session of its own."""
    engine = SparkEngine(SparkSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2))
    yield engine
    engine.stop()
