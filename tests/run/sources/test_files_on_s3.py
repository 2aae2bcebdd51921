"""File sources on S3 in a run: `make store-test`."""

import pytest
from pyspark.sql import functions as F

from tests.support import lakes
from tidemill import DeltaAppend, FileSource, Pipeline
from tidemill.testing import multiset

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.jvm,
    pytest.mark.skipif(not lakes.ON_S3, reason="needs TEST_LAKE=s3"),
]


def test_a_folder_without_files_is_read_once_it_has_some(scratch):
    """Spark refuses to stream a folder that is missing, and on S3 it is missing until it has a file."""
    feeds = scratch.target.default_binding
    pipeline = Pipeline("shop")
    sources = {
        name: FileSource(path=f"{feeds}/{name}", format="json", schema="n INT") for name in ("left", "right")
    }

    @pipeline.stream(source=sources, sink=DeltaAppend())
    def both(left, right):
        return left.withColumn("side", F.lit("l")).union(right.withColumn("side", F.lit("r")))

    feeds.create("left/1.json", b'{"n": 1}')
    scratch.run(both)
    feeds.create("right/a b%é.json", b'{"n": 2}')
    scratch.run(both)
    feeds.create("left/2.json", b'{"n": 3}')
    feeds.create("right/2.json", b'{"n": 4}')
    scratch.run(both)

    assert scratch.run(both)[0].outcome == "idle"
    assert scratch.rows(both, "n", "side") == multiset([(1, "l"), (2, "r"), (3, "l"), (4, "r")])
