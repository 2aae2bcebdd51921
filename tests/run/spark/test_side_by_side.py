"""Streams side by side share the cores of one Spark."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as F

from tests.support.waiting import wait_for
from tidemill import DeltaAppend, FileSource, Pipeline, QueryOptions
from tidemill.testing import multiset

TASKS, TASK_MILLIS = 60, 500
ONE_FILE_PER_TASK = QueryOptions(
    options={
        "spark.sql.files.maxPartitionBytes": "16",
        # Otherwise the files are looked up by a stage of as many tasks.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    }
)


@pytest.mark.campaign
def test_a_long_catch_up_does_not_hold_back_the_others(scratch, tmp_path):
    pipeline = Pipeline("shop")
    ids = FileSource(path=str(tmp_path / "ids"), format="json", schema="id BIGINT")

    @pipeline.stream(source=ids, sink=DeltaAppend(), query=ONE_FILE_PER_TASK)
    def catch_up(ids):
        slow = F.expr(f"reflect('java.lang.Thread', 'sleep', {TASK_MILLIS}L)")
        return ids.withColumn("slept", slow)

    @pipeline.stream(source=ids, sink=DeltaAppend())
    def small(ids):
        return ids.where("id < 0")

    (tmp_path / "ids").mkdir()
    for number in range(TASKS):
        (tmp_path / "ids" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    tracker = scratch.engine.new().sparkContext.statusTracker()

    def is_catching_up():
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numTasks == TASKS for stage in stages)

    with ThreadPoolExecutor() as pool:
        catching_up = pool.submit(scratch.run, catch_up)
        wait_for(is_catching_up, 60)
        scratch.run(small)
        assert is_catching_up()
        catching_up.result()
    assert scratch.rows(catch_up, "id") == multiset((number,) for number in range(TASKS))
    assert scratch.rows(small) == multiset([])
