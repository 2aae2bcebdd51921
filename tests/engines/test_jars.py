"""The cache of jars is right or empty, whatever happens to a fetch; once right, nothing is needed any more.

Most tests run the real code against a stand-in for `java`: a script that does what Ivy would do, or fails to.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.raising import raises
from tidemill.cache import cache_root
from tidemill.cli.machine import jars as command
from tidemill.engines.jars import BROKER, S3, SPARK, cache, ivy, log_store, sets, spark_jars, store_jars
from tidemill.engines.jars.cache import fetch, inspect, jars_of
from tidemill.engines.jars.sets import JarSet

ROOT = Path(sets.__file__).parents[3]
CONTENTS = {"one-1.0.jar": "first jar", "two-2.0.jar": "second jar"}
SET = JarSet("spark", "the tests", "tidemill jars fetch")

DELIVER = "".join(
    f"printf '{text}' > jars/{name}; echo '[SUCCESSFUL ] org#x;1!{name} (1ms)'\n"
    for name, text in CONTENTS.items()
)
NO_NETWORK = "echo 'Host repo.example not found. url=x'; echo ':: UNRESOLVED DEPENDENCIES ::'; exit 1\n"


class World:
    """A cache, pins and a `java` of its own.

    Attributes:
        calls: One line for each time that `java` was started.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.calls = folder / "calls"
        (folder / "jdk/bin").mkdir(parents=True)
        (folder / "jdk/release").write_text('JAVA_VERSION="17.0.15"\n')
        (folder / "pins").mkdir()
        (folder / "pins/spark.ivy.xml").write_text("<ivy-module/>")
        lines = [f"{sha256(text.encode()).hexdigest()}  {name}\n" for name, text in CONTENTS.items()]
        (folder / "pins/spark.sha256").write_text("".join(lines))
        self.java(DELIVER)

    def java(self, script: str) -> None:
        program = self.folder / "jdk/bin/java"
        program.write_text(f"#!/bin/sh\necho $$ >> {self.calls}\n{script}")
        program.chmod(0o755)

    def starts(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def leftovers(self) -> list[Path]:
        return list((self.cache / "jars").glob(".fetch-*"))

    def fetch_in_a_process(self) -> subprocess.Popen:
        code = (
            "import pathlib, sys; from tidemill.engines.jars import sets, cache\n"
            "sets.HERE = pathlib.Path(sys.argv[1])\n"
            "cache.fetch(sets.JarSet('spark', 'the tests', ''))\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder / "pins")],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setenv("TIDEMILL_CACHE", str(made.cache))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.delenv("TIDEMILL_IVY_SETTINGS", raising=False)
    monkeypatch.setattr(sets, "HERE", tmp_path / "pins")
    return made


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def contents(jars: list[Path]) -> dict[str, str]:
    return {jar.name: jar.read_text() for jar in jars}


def test_fetched_once_with_a_line_on_stderr_then_offline(world, capsys, monkeypatch):
    assert contents(jars_of(SET)) == CONTENTS
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Fetching 2 jars for the tests, once, into" in captured.err
    monkeypatch.setenv("JAVA_HOME", "/gone")

    assert contents(jars_of(SET)) == CONTENTS
    assert capsys.readouterr().err == ""
    assert world.starts() == 1
    assert world.leftovers() == []


@pytest.mark.parametrize(
    ("script", "code", "value"),
    [
        pytest.param(
            DELIVER + "printf evil > jars/two-2.0.jar\n",
            "jars-not-pinned",
            "spark.sha256 pins: two-2.0.jar has sha256",
            id="wrong sum",
        ),
        pytest.param(
            "printf 'first jar' > jars/one-1.0.jar\n", "jars-not-pinned", "two-2.0.jar is missing", id="half"
        ),
        pytest.param(DELIVER + "kill -9 $$\n", "jars-not-fetched", "ivy.xml", id="killed at the end"),
        pytest.param(NO_NETWORK, "jars-not-fetched", "Host repo.example not found.", id="offline"),
        pytest.param("exit 1\n", "jars-not-fetched", "without any output", id="silent"),
    ],
)
def test_a_fetch_that_fails_names_the_reason_and_leaves_the_cache_unchanged(world, script, code, value):
    world.java(script)

    with raises(code, value):
        jars_of(SET)
    assert inspect(SET).state == "absent"
    assert world.leftovers() == []

    world.java(DELIVER)
    assert contents(jars_of(SET)) == CONTENTS


def test_a_fetch_that_is_killed_in_the_middle_leaves_nothing_that_counts(world):
    world.java("printf 'first jar' > jars/one-1.0.jar; kill -9 $PPID\n")

    with world.fetch_in_a_process() as process:
        process.communicate(timeout=60)
    assert process.returncode == -9
    assert inspect(SET).state == "absent"
    assert len(world.leftovers()) == 1

    world.java(DELIVER)
    assert contents(jars_of(SET)) == CONTENTS
    assert world.leftovers() == []


def test_two_processes_at_once_fetch_once(world):
    gate = world.folder / "gate"
    os.mkfifo(gate)
    world.java(f"read _ < {gate}\n{DELIVER}")

    with world.fetch_in_a_process() as first:
        wait_until(lambda: world.starts() == 1)
        with world.fetch_in_a_process() as second:
            assert "Another process is fetching" in second.stderr.readline()
            gate.write_text("go\n")
            first.communicate(timeout=60)
            second.communicate(timeout=60)

    assert (first.returncode, second.returncode, world.starts()) == (0, 0, 1)
    assert contents(jars_of(SET)) == CONTENTS


@pytest.mark.parametrize("damage", ["flip", "empty", "remove", "folder"])
def test_a_damaged_copy_is_named_and_not_used_until_a_fetch_replaces_it(world, damage):
    jar = jars_of(SET)[1]
    if damage == "flip":
        jar.write_text("second jaR")
    elif damage == "empty":
        jar.write_text("")
    else:
        jar.unlink()
    if damage == "folder":
        jar.mkdir()

    with raises("jars-not-pinned", "two-2.0.jar", "`tidemill jars fetch`"):
        jars_of(SET)
    assert world.starts() == 1

    assert fetch(SET).state == "ready"
    assert contents(jars_of(SET)) == CONTENTS
    assert world.leftovers() == []


def test_a_damaged_copy_stays_if_its_replacement_cannot_be_fetched(world):
    jars_of(SET)[1].write_text("second jaR")
    world.java(NO_NETWORK)

    with raises("jars-not-fetched"):
        fetch(SET)
    assert inspect(SET).faults[0].startswith("two-2.0.jar has sha256")


def test_other_pins_are_another_folder(world):
    before = jars_of(SET)
    sums = world.folder / "pins/spark.sha256"
    sums.write_text("".join(reversed(sums.read_text().splitlines(keepends=True))))

    after = jars_of(SET)

    assert world.starts() == 2
    assert {jar.parent for jar in before}.isdisjoint(jar.parent for jar in after)
    assert all(jar.exists() for jar in before)


def test_without_java_one_line_says_so(world, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/gone")

    with raises("java-missing", "JAVA_HOME is /gone"):
        jars_of(SET)
    assert world.leftovers() == []


def test_a_cache_that_cannot_be_written_is_an_error_with_the_way_out(world, monkeypatch):
    (world.folder / "file").write_text("")
    monkeypatch.setenv("TIDEMILL_CACHE", str(world.folder / "file"))

    with raises("cache-not-writable", "TIDEMILL_CACHE"):
        jars_of(SET)


def test_ivy_gets_the_users_settings_and_keeps_to_our_cache(world, monkeypatch):
    (world.folder / "mirror.xml").write_text("<ivysettings/>")
    monkeypatch.setenv("TIDEMILL_IVY_SETTINGS", str(world.folder / "mirror.xml"))
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    world.java(f'for word in "$@"; do echo "$word" >> {world.folder}/words; done\n{DELIVER}')

    jars_of(SET)

    words = (world.folder / "words").read_text().splitlines()
    assert words[words.index("-settings") + 1] == str(world.folder / "mirror.xml")
    assert words[words.index("-cache") + 1].startswith(str(world.cache))
    assert any(word.startswith(f"-Divy.default.ivy.user.dir={world.cache}") for word in words)
    assert "-Dhttps.proxyHost=proxy.example" in words


def test_settings_that_are_not_there_are_an_error(world, monkeypatch):
    monkeypatch.setenv("TIDEMILL_IVY_SETTINGS", "/gone.xml")

    with raises("ivy-settings-missing", "/gone.xml"):
        jars_of(SET)
    assert world.starts() == 0


@pytest.mark.parametrize(
    ("proxies", "options"),
    [
        ({}, []),
        ({"no": "localhost"}, []),
        ({"https": "http://p:3128"}, ["-Dhttps.proxyHost=p", "-Dhttps.proxyPort=3128"]),
        ({"https": "http://me:secret@p"}, ["-Dhttps.proxyHost=p"]),
        (
            {"http": "http://p:1", "no": "localhost, .corp.example"},
            ["-Dhttp.proxyHost=p", "-Dhttp.proxyPort=1", "-Dhttp.nonProxyHosts=localhost|*.corp.example"],
        ),
    ],
)
def test_proxies_become_javas_properties(proxies, options):
    assert ivy.proxy_options(proxies) == options


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", "~/.cache/tidemill"),
        ({}, "darwin", "~/Library/Caches/tidemill"),
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/tidemill"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "~/.cache/tidemill"),
        ({"XDG_CACHE_HOME": "/x", "TIDEMILL_CACHE": "/t"}, "linux", "/t"),
        ({"TIDEMILL_CACHE": "~/t"}, "linux", "~/t"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(environ, platform, expected):
    assert cache_root(environ, platform) == Path(expected).expanduser()


@pytest.mark.parametrize("jar_set", [SPARK, S3, BROKER], ids=lambda jar_set: jar_set.name)
def test_sums_and_ivy_file_name_the_same_versions(jar_set):
    text = jar_set.ivy_file.read_text()
    named = {f"{name}-{revision}.jar" for name, revision in re.findall(r'name="(\S+)" rev="(\S+)"', text)}

    assert named <= set(jar_set.checksums())
    assert jar_set is BROKER or named == set(jar_set.checksums())
    assert all(len(digest) == 64 for digest in jar_set.checksums().values())
    assert "://" not in text


def test_what_was_fetched_for_spark_is_what_is_pinned():
    assert [jar.name for jar in spark_jars()] == list(SPARK.checksums())
    assert inspect(SPARK).state == "ready"


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_the_jars_of_a_store_are_fetched_once_and_our_log_store_is_the_last(monkeypatch, scheme):
    monkeypatch.setitem(sets.STORES, scheme, SET)

    assert [jar.name for jar in store_jars(scheme)] == [*CONTENTS, "tidemill-log-store.jar"]
    assert store_jars(scheme)[-1] == log_store.JAR
    assert inspect(SET).state == "ready"


def test_both_schemes_of_s3_have_one_set_and_other_schemes_have_none():
    assert sets.STORES == {"s3": S3, "s3a": S3}
    assert store_jars("file") == []


def test_the_set_of_s3_has_the_hadoop_of_pyspark():
    (hadoop,) = (ivy.pyspark_folder() / "jars").glob("hadoop-client-api-*.jar")

    assert hadoop.name.replace("client-api", "aws") in S3.checksums()


def test_asking_for_jars_loads_neither_spark_nor_dagster():
    code = "import sys, tidemill.engines.dev.broker; print(sorted({'pyspark', 'dagster'} & set(sys.modules)))"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    assert subprocess.check_output([sys.executable, "-c", code], env=environ, text=True) == "[]\n"


def test_write_checksums_is_what_sums_reads(world):
    jars = jars_of(SET)
    pins = world.folder / "pins/spark.sha256"
    before = pins.read_text()

    cache.write_checksums(jars[0].parent, pins)

    assert pins.read_text() == before


def ask(*words: str) -> tuple[int, dict]:
    done = CliRunner().invoke(command.app, words)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.usefixtures("world")
def test_the_command_shows_and_fetches_and_ends_with_1_on_damage(monkeypatch):
    monkeypatch.setattr(command, "SPARK", SET)
    monkeypatch.setattr(command, "S3", replace(SET, purpose="a store"))
    monkeypatch.setattr(command, "BROKER", replace(SET, purpose="a broker"))

    status, shown = ask("--json")
    assert (status, shown["schema_version"], shown["sets"][0]["state"]) == (0, 1, "absent")

    status, shown = ask("fetch", "--json")
    assert (status, shown["sets"][0]["state"]) == (0, "ready")
    assert shown["sets"][0]["jars"] == list(CONTENTS)
    assert shown["sets"][0]["bytes"] == sum(map(len, CONTENTS.values()))

    (inspect(SET).folder / "one-1.0.jar").write_text("")
    status, shown = ask("--json")
    assert (status, shown["sets"][0]["state"]) == (1, "damaged")
    assert shown["sets"][0]["faults"][0].startswith("one-1.0.jar has sha256")

    status, shown = ask("fetch", "--broker", "--store", "s3", "--json")
    assert (status, [jar_set["state"] for jar_set in shown["sets"]]) == (0, ["ready", "ready", "ready"])


@pytest.mark.usefixtures("world")
def test_the_command_speaks_to_people(monkeypatch):
    monkeypatch.setattr(command, "SPARK", SET)
    monkeypatch.setattr(command, "S3", replace(SET, purpose="a store"))
    monkeypatch.setattr(command, "BROKER", replace(SET, purpose="a broker"))

    done = CliRunner().invoke(command.app, [])

    assert done.stdout.splitlines()[:3] == [
        "Jars for the tests: absent, 2 jars",
        f"  {inspect(SET).folder}",
        "  `tidemill jars fetch` fetches them",
    ]


def test_a_python_without_pyspark_or_without_its_jars_is_named(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "pyspark", None)  # as if it were not installed
        with raises("pyspark-missing", "pip install tidemill"):
            ivy.ivy_jar()
    monkeypatch.setattr(ivy, "pyspark_folder", lambda: tmp_path)
    with raises("pyspark-missing", "jars/ivy-*.jar"):
        ivy.ivy_jar()
