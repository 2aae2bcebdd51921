"""What all tests share: one Spark session, one broker and one Postgres per process, and no JVM without a mark."""

import os
import re
import signal
from inspect import getsource, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import settings as examples

from tests.servers.spark_of_tests import WHERE, settings, spark_of_tests
from tests.support import lakes
from tidemill.engines.engine import SparkEngine
from tidemill.storage.local_store import LocalStore
from tidemill.storage.memory_store import MemoryStore

LONGEST = (
    "tests/run/quarantine/test_quarantined_rows.py",
    "tests/run/test_runner.py",
    "tests/run/test_faults.py",
    "tests/run/batch/test_ingest.py",
    "tests/project/test_wheel.py",
    "tests/project/test_lake_on_s3.py",
    "tests/operations/test_rebuild.py",
    "tests/operations/test_backfill.py",
    "tests/operations/test_rewind.py",
    "tests/sinks/test_shared_append.py",
    "tests/run/state/test_watermarks.py",
    "tests/cli/run/test_interrupt.py",
    "tests/catalog/test_hive.py",
    "tests/orchestration/test_real_run.py",
    "tests/sinks/killed/test_killed_sinks.py",
    "tests/run/quarantine/test_quarantine.py",
    "tests/sinks/test_sinks.py",
    "tests/run/sources/test_new_readers.py",
    "tests/run/sources/test_kafka_streams.py",
    "tests/run/state/test_always_on.py",
    "tests/run/test_modes.py",
    "tests/orchestration/test_cancel.py",
    "tests/run/spark/test_warm_runs.py",
    "tests/sinks/test_merge_changes.py",
    "tests/checkpoint/test_against_spark.py",
    "tests/engines/test_quiet.py",
)
"""The files that take minutes. They start first, so that the processes end at about the same time."""
TOUCHES_FILES = re.compile(r"\.checkpoint\(|\.uri\b")
"""What a test calls that touches the files of a lake as files of this machine."""
WITH_JVM = {"engine", "broker"}
"""The fixtures that start a JVM: a test that uses one, directly or through another fixture, gets the mark `jvm`."""

# No test fails on a time: an example that is slow once, on a busy machine, is no defect.
examples.register_profile("tidemill", deadline=None)
examples.load_profile("tidemill")

# A shell starts a background job with SIGINT ignored, and every child inherits that. Tests interrupt for real.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the marks
def pytest_itemcollected(item):
    """Mark the tests whose fixtures start a JVM, or a server that takes seconds."""
    if WITH_JVM.intersection(item.fixturenames) or item.get_closest_marker("kafka"):
        item.add_marker("jvm")
    if "postgres" in item.fixturenames:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)  # after the shuffling of pytest-randomly
def pytest_collection_modifyitems(config, items):
    """Move the longest files to the front, and leave out what cannot run on the Spark of the tests.

    A warm server runs the functions of the batches in processes of its own, where nothing is patched. Where the lake is
    on S3, a test cannot touch the files of the lake as files of this machine.
    """
    impossible = [
        item
        for item in items
        if (WHERE == "warm" and "monkeypatch" in signature(item.function).parameters)
        or (lakes.ON_S3 and TOUCHES_FILES.search(getsource(item.function)))
    ]
    if impossible:
        config.hook.pytest_deselected(items=impossible)
        items[:] = [item for item in items if item not in impossible]
    position = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: position.get(item.nodeid.split("::")[0], len(LONGEST)))


@pytest.fixture(scope="session")
def engine(tmp_path_factory, request):
    """The engine of one small Spark, started by the first test that needs it."""
    if lakes.ON_S3:
        request.getfixturevalue("bucket")
    with spark_of_tests(tmp_path_factory.mktemp("spark")):
        engine = SparkEngine(settings())
        yield engine
        engine.stop()


@pytest.fixture(scope="session")
def broker():
    """A real Kafka broker, started by the first test that needs it."""
    from tidemill.engines.dev.broker import Broker

    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def postgres():
    """A real Postgres, started by the first test that needs it."""
    from tests.servers.postgres import postgres_server

    with postgres_server() as running:
        yield running


@pytest.fixture(scope="session")
def bucket():
    """A bucket of a server with the interface of S3, started by the first test that needs it."""
    from tests.servers.object_store import object_store

    with object_store() as server:
        lakes.serve(server)
        yield lakes.bucket()


@pytest.fixture
def scratch(tmp_path, engine):
    """A scratch lake whose runs share the tests' one Spark: in a folder, or in a bucket."""
    return lakes.scratch_in(tmp_path / "lake", tmp_path / "landing", engine)


@pytest.fixture(params=["local", "memory", pytest.param("object", marks=pytest.mark.slow)])
def store(request, tmp_path):
    """An empty store of each kind, one after another."""
    match request.param:
        case "local":
            return LocalStore(tmp_path / "root")
        case "memory":
            return MemoryStore()
        case _:
            return request.getfixturevalue("bucket").below(f"lake-{uuid4().hex}")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch):
    """Remove the settings of whoever runs the tests from the environment."""
    for name in [name for name in os.environ if name.startswith("TIDEMILL_") and name != "TIDEMILL_CACHE"]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _signals():
    """Fail a test that leaves a signal ignored: the processes of every later test would inherit that, and not end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    left = [number for number in before if signal.getsignal(number) == signal.SIG_IGN]
    for number in left:
        signal.signal(number, before[number])
    assert not left or signal.SIG_IGN in before.values()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Give a test without the mark `jvm`, its fixtures and its processes a Java that fails."""
    if item.get_closest_marker("jvm") is not None:
        return (yield)
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", home)
        (Path(home) / "release").write_text('JAVA_VERSION="17.0.15"\n')  # it looks suitable
        java = Path(home) / "bin" / "java"
        java.parent.mkdir()
        java.write_text("#!/bin/sh\necho \"This test starts a JVM and lacks the mark 'jvm'.\" >&2\nexit 97\n")
        java.chmod(0o755)
        return (yield)
