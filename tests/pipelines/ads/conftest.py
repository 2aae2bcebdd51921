"""The Spark session of the tests of `ads`."""

from typing import TYPE_CHECKING

import pytest

from tidemill import QueryOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.run.spark.engine import Engine


@pytest.fixture
def spark(engine: "Engine") -> "SparkSession":
    """A separate session with the confs of a run."""
    session = engine.new()
    for key, value in QueryOptions(state_store="hdfs").confs(default_partitions=2).items():
        session.conf.set(key, value)
    return session
