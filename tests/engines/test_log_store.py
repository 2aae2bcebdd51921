"""The LogStore for S3: a file of the log is created once, by one request, and its writer knows whether it was."""

import shutil
from itertools import count
from zipfile import ZipFile

import pytest
from py4j.protocol import Py4JJavaError

from tests.servers.faulty_proxy import faulty_proxy
from tests.servers.log_stores import driver
from tests.servers.object_store import object_store
from tidemill.engines.jars import log_store
from tidemill.engines.jars.log_store.compile import MANIFEST, compile_jar, compiler_version
from tidemill.engines.java import require_java

SIZES = {"small": ({}, 10), "large": ({"fs_s3a_multipart_size": "5M"}, 6_000_000)}
"""Confs and the length of an action: a large file is an upload of three parts, the smallest that there are."""
NUMBERS = count()


@pytest.fixture(scope="module")
def proxy():
    with object_store() as server, faulty_proxy(server) as running:
        yield running


@pytest.fixture(scope="module")
def jvm(proxy):
    with driver(proxy.server) as running:
        yield running


@pytest.fixture
def name(proxy):
    yield f"table/_delta_log/{next(NUMBERS):020}.json"
    assert proxy.faults == []
    proxy.requests.clear()


def test_the_jar_has_the_class_that_spark_is_given():
    with ZipFile(log_store.JAR) as jar:
        assert jar.namelist() == [MANIFEST, f"{log_store.CLASS.replace('.', '/')}.class"]


@pytest.mark.jvm
def test_the_jar_is_what_its_source_compiles_to():
    javac = shutil.which("javac", path=require_java().path.resolve().parent)
    if javac is None:
        pytest.skip("this Java has no compiler")
    with ZipFile(log_store.JAR) as jar:
        manifest = jar.read(MANIFEST).decode()
    if (version := compiler_version(javac)) != int(manifest.split("Build-Jdk-Spec: ")[1]):
        pytest.skip(f"the compiler of Java {version} writes other bytes than that of the jar")

    assert compile_jar(javac) == log_store.JAR.read_bytes()


@pytest.mark.jvm
def test_a_commit_is_one_request(jvm, proxy, name):
    store = jvm.log_store()
    store.write(name, "the first one resolves the region and more")
    proxy.requests.clear()

    assert store.write(f"{name}.next", '{"add":"ä"}', "{}")

    assert proxy.requests == [f"PUT /lake/{name}.next"]
    assert store.read(f"{name}.next") == ['{"add":"ä"}', "{}"]
    assert store.names(name) == [name.rpartition("/")[2], f"{name.rpartition('/')[2]}.next"]


@pytest.mark.jvm
@pytest.mark.parametrize("size", SIZES)
def test_the_second_writer_of_a_version_is_refused_and_the_first_stays(jvm, name, size):
    confs, length = SIZES[size]
    store, mine = jvm.log_store(**confs), ["a" * length, "b" * length]
    assert store.write(name, *mine)

    assert not store.write(name, "a" * length, "c" * length)

    assert store.read(name) == mine


@pytest.mark.jvm
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("faults", [["lose"], ["refuse"], ["refuse", "refuse", "lose"]], ids="-".join)
def test_a_commit_that_is_sent_twice_is_done_once(jvm, proxy, name, size, faults):
    confs, length = SIZES[size]
    proxy.faults[:] = faults

    assert jvm.log_store(**confs).write(name, "a" * length, "b" * length)

    assert jvm.log_store().read(name) == ["a" * length, "b" * length]


@pytest.mark.jvm
def test_a_conflict_that_stays_is_an_error_and_nothing_is_written(jvm, proxy, name):
    proxy.faults[:] = ["refuse"] * 5

    with pytest.raises(Py4JJavaError, match="ConditionalRequestConflict"):
        jvm.log_store().write(name, "mine")

    assert jvm.log_store().write(name, "theirs")


@pytest.mark.jvm
def test_without_conditional_writes_nothing_is_written(jvm, proxy, name):
    store = jvm.log_store(fs_s3a_create_conditional_enabled="false")

    with pytest.raises(Py4JJavaError, match="Conditional Writes Unavailable"):
        store.write(name, "mine")

    assert proxy.requests == []


@pytest.mark.jvm
def test_a_file_that_may_be_overwritten_is_and_no_reader_sees_a_part(jvm, name):
    store = jvm.log_store()
    store.write(name, "before")

    assert store.write(name, "after", overwrite=True)

    assert store.read(name) == ["after"]
    assert store.java.isPartialWriteVisible(store.path(name), store.configuration) is False
