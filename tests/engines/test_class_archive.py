"""The archive of Spark's classes is used where it fits and ignored where it does not, without a message."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.cache import cache_root
from tidemill.engines import class_archive
from tidemill.engines.java import find_java
from tidemill.engines.launch import application_confs
from tidemill.target.spark_settings import SparkSettings

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    (tmp_path / "jars").symlink_to(cache_root() / "jars")
    monkeypatch.setenv("TIDEMILL_CACHE", str(tmp_path))
    return tmp_path / "classes"


def put(content=b"no archive") -> Path:
    path = class_archive.archive()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_jvm_of_this_process_uses_the_archive_once_it_is_made():
    options = application_confs(SparkSettings())[JAVA_OPTIONS]
    assert "SharedArchiveFile" not in options
    path = put()
    assert f"-XX:SharedArchiveFile={path} " in application_confs(SparkSettings())[JAVA_OPTIONS]
    for settings in (SparkSettings(mode="warm"), SparkSettings(mode="cluster", master="yarn")):
        assert "SharedArchiveFile" not in application_confs(settings)[JAVA_OPTIONS]


def test_a_cache_whose_path_has_a_space_is_one_option(tmp_path, monkeypatch):
    folder = tmp_path / "my cache"
    folder.mkdir()
    (folder / "jars").symlink_to(tmp_path / "jars")
    monkeypatch.setenv("TIDEMILL_CACHE", str(folder))
    path = put()
    options = shlex.split(application_confs(SparkSettings())[JAVA_OPTIONS])
    assert f"-XX:SharedArchiveFile={path}" in options


@pytest.mark.jvm
@pytest.mark.parametrize("content", [b"", b"no archive", b"\xf0\x0b\xab\xa2" * 4096])
def test_an_archive_that_does_not_fit_is_ignored_without_a_message(content):
    put(content)
    java = find_java().path
    plain, with_archive = (
        subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
        for options in ((), class_archive.options())
    )
    assert (with_archive.stdout, with_archive.stderr.replace(", sharing", "")) == (
        "",
        plain.stderr.replace(", sharing", ""),
    )


def test_another_java_has_another_archive(tmp_path, monkeypatch):
    ours = class_archive.archive()
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert class_archive.archive() != ours


def test_without_a_working_training_spark_starts_as_before(cache, monkeypatch, capsys):
    monkeypatch.setattr(class_archive, "_TRAINING", "no.such.module")
    assert class_archive.make() is None
    assert "Spark starts without an archive" in capsys.readouterr().err
    assert class_archive.options() == ()
    assert not list(cache.glob("*.jsa"))


def test_archives_of_environments_that_are_gone_are_removed(cache, tmp_path, monkeypatch):
    cache.mkdir()
    for name, home in (("gone", tmp_path / "gone"), ("there", tmp_path)):
        (cache / f"{name}.jsa").touch()
        (cache / f"{name}.home").write_text(f"{home}\n")
    monkeypatch.setattr(class_archive, "_train", lambda into: into.write_bytes(b"made"))
    assert class_archive.make() == class_archive.archive()
    names = {"there.jsa", "there.home", class_archive.archive().name}
    assert names <= {path.name for path in cache.iterdir()}
    assert not list(cache.glob("gone.*"))


@pytest.mark.campaign
@pytest.mark.jvm
@pytest.mark.parametrize("store", ["None", "S3Settings()"])
def test_the_classes_of_spark_and_delta_come_from_the_archive(tmp_path, store):
    class_archive.make()
    log = tmp_path / "classes.log"
    start = (
        "from tidemill.engines.engine import SparkEngine\n"
        "from tidemill.storage.s3_settings import S3Settings\n"
        "from tidemill.target.spark_settings import SparkSettings\n"
        f"conf = {{{JAVA_OPTIONS!r}: '-Xlog:class+load:file={log}'}}\n"
        f"engine = SparkEngine(SparkSettings(conf=conf, store={store}))\n"
        "engine.new()\n"
        "engine.stop()\n"
    )
    subprocess.run([sys.executable, "-c", start], check=True)
    loaded = log.read_text().splitlines()
    archived = [line for line in loaded if "shared objects file (top)" in line]
    assert len(archived) > len(loaded) / 2
    assert any("org.apache.spark.sql.delta" in line for line in archived)
