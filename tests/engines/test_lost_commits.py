"""Two drivers that commit to one Delta table on S3 at the same moments: each version has one winner."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from deltalake import DeltaTable

from tests.servers.log_stores import OF_DELTA, OURS, driver
from tests.servers.object_store import object_store
from tidemill.engines.jars import spark_jars, store_jars

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
SECONDS = 60

APPENDS = """
import sys
from pyspark.sql import SparkSession

writer, table, appends, *confs = sys.argv[1:]
builder = SparkSession.builder.master("local[1]")
for conf in confs:
    builder = builder.config(*conf.split("=", 1))
spark = builder.getOrCreate()
print("ready", flush=True)
for number in range(int(appends)):
    if number == 0:
        sys.stdin.readline()
    rows = spark.sql(f"SELECT '{writer}' AS writer, {number} AS number")
    rows.write.format("delta").mode("append").save(table)
spark.stop()
"""


@pytest.fixture(scope="module")
def server():
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def drivers(server):
    with driver(server) as first, driver(server) as second:
        yield first, second


def race(drivers, name, versions):
    """Let each driver write the same versions, and return those that each reports as done."""
    barrier = Barrier(len(drivers))
    log = f"{name}-{versions}/_delta_log"

    def write(number, store):
        done = set()
        for version in range(versions):
            barrier.wait(SECONDS)
            if store.write(f"{log}/{version:020}.json", f"driver {number}", "more" * 100):
                done.add(version)
        return done

    stores = [jvm.log_store(name) for jvm in drivers]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(write, range(len(stores)), stores))
    read = [stores[0].read(f"{log}/{version:020}.json")[0] for version in range(versions)]
    kept = [
        {version for version, line in enumerate(read) if line == f"driver {n}"} for n in range(len(stores))
    ]
    return done, kept


@pytest.mark.parametrize("versions", [20, 200])
def test_every_commit_that_is_reported_as_done_exists(drivers, versions):
    done, kept = race(drivers, OURS, versions)

    assert done == kept
    assert set.union(*done) == set(range(versions))


def test_the_log_store_of_delta_loses_commits_and_the_race_shows_it(drivers):
    done, kept = race(drivers, OF_DELTA, 100)

    assert set.intersection(*done)
    assert done != kept


def test_two_sparks_that_append_to_one_table_lose_no_row(server):
    appends, table = 15, "s3a://lake/appended"
    confs = {
        "spark.jars": ",".join(str(jar) for jar in (*spark_jars(), *store_jars("s3"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.delta.logStore.s3.impl": OURS,
        "spark.delta.logStore.s3a.impl": OURS,
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": server.region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": server.access_key,
        "spark.hadoop.fs.s3a.secret.key": server.secret_key,
    }

    def start(writer, number):
        settings = [f"{key}={value}" for key, value in confs.items()]
        return subprocess.Popen(
            [sys.executable, "-c", APPENDS, writer, table, str(number), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def finish(*processes):
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate()
        assert {process.returncode for process in processes} == {0}

    with start("creator", 1) as creator:
        finish(creator)
    with start("a", appends) as first, start("b", appends) as second:
        finish(first, second)

    options = {
        "aws_endpoint": server.endpoint,
        "aws_region": server.region,
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "aws_allow_http": "true",
    }
    appended = DeltaTable(table, storage_options=options)
    rows = appended.to_pyarrow_table().to_pylist()
    assert sorted((row["writer"], row["number"]) for row in rows) == [
        *((writer, number) for writer in "ab" for number in range(appends)),
        ("creator", 0),
    ]
    assert appended.version() == 2 * appends
