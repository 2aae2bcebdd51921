"""Java is judged before anything needs it, from its files and without a JVM."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.raising import raises
from tidemill.engines import java as java_module
from tidemill.engines.java import Java, complaint, find_java, require_java

MODULES = "java.base jdk.incubator.vector java.sql"


def home(tmp_path: Path, *, release: str | None = None, prints: str | None = None) -> Path:
    """A JAVA_HOME whose program leaves a mark when it is started."""
    (tmp_path / "bin").mkdir(parents=True)
    program = tmp_path / "bin" / "java"
    script = f"#!/bin/sh\ntouch {tmp_path}/started\n"
    script += f"echo '{prints}' >&2\n" if prints else "echo 'Unable to locate a Java Runtime.' >&2\nexit 1\n"
    program.write_text(script)
    program.chmod(0o755)
    if release is not None:
        (tmp_path / "release").write_text(release)
    return tmp_path


def judged(java_home: Path) -> str | None:
    environ = {"JAVA_HOME": str(java_home), "PATH": "/nowhere"}
    return complaint(find_java(environ), environ)


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.4", "25.0.3", "25.0.3.1", "26"])
def test_a_java_that_spark_runs_on_is_accepted_without_starting_it(tmp_path: Path, version: str):
    java_home = home(tmp_path, release=f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nMODULES="{MODULES}"\n')

    assert judged(java_home) is None
    assert not (java_home / "started").exists()


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.8.0_402", "too old"),
        ("11.0.22", "too old"),
        ("16.0.2", "too old"),
        ("22.0.2", "corrupt data"),
        ("25", "corrupt data"),
        ("25.0.2", "corrupt data"),
    ],
)
def test_a_java_that_spark_does_not_run_on_is_named_with_the_way_to_another(tmp_path, version, why):
    java_home = home(tmp_path, release=f'JAVA_VERSION="{version}"\n')

    message = judged(java_home)

    assert message is not None
    assert "\n" not in message
    for part in (
        version,
        str(java_home / "bin/java"),
        why,
        "17, 21 or 25",
        "apt install",
        "brew",
        "sdk install",
    ):
        assert part in message


def test_a_runtime_without_the_vector_module_is_refused(tmp_path):
    message = judged(home(tmp_path, release='JAVA_VERSION="17.0.15"\nMODULES="java.base java.sql"\n'))

    assert message is not None
    assert "jdk.incubator.vector" in message


@pytest.mark.parametrize("release", [None, "", 'JAVA_VERSION="unknown"\n'])
def test_without_a_release_file_that_tells_java_itself_is_asked(tmp_path, release):
    java_home = home(tmp_path, release=release, prints='openjdk version "21.0.4" 2024-07-16')

    assert find_java({"JAVA_HOME": str(java_home)}) == Java(java_home / "bin/java", "21.0.4")
    assert (java_home / "started").exists()


def test_a_stand_in_that_only_says_how_to_install_java_is_no_java(tmp_path):
    message = judged(home(tmp_path))

    assert message is not None
    assert f"JAVA_HOME is {tmp_path}" in message


def test_java_home_wins_over_path_as_in_sparks_launcher_even_when_it_is_wrong(tmp_path):
    good = home(tmp_path / "good", release='JAVA_VERSION="17.0.15"\n')
    on_path = {"PATH": f"/nowhere:{good}/bin"}

    assert find_java(on_path) == Java(good / "bin/java", "17.0.15")
    assert find_java({**on_path, "JAVA_HOME": ""}) == Java(good / "bin/java", "17.0.15")
    assert find_java({**on_path, "JAVA_HOME": str(tmp_path / "gone")}) is None


def test_links_are_followed_to_the_home_that_has_the_release_file(tmp_path):
    good = home(tmp_path / "jdk", release='JAVA_VERSION="17.0.15"\n')
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/java").symlink_to(good / "bin/java")

    assert find_java({"PATH": f"{tmp_path}/usr"}) == Java(tmp_path / "usr/java", "17.0.15")
    assert not (good / "started").exists()


def test_no_java_at_all():
    message = complaint(find_java({"PATH": "/nowhere"}), {"PATH": "/nowhere"})

    assert message is not None
    assert message.startswith("No working Java: JAVA_HOME is not set")


def test_require_java_raises_the_same_line_as_an_error_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path, release='JAVA_VERSION="11.0.22"\n')))

    with raises("java-missing", "Java 11.0.22", "Java 17"):
        require_java()


def test_it_runs_by_path_on_a_bare_python_as_make_does(tmp_path):
    java_home = home(tmp_path, release='JAVA_VERSION="11.0.22"\n')

    done = subprocess.run(
        [sys.executable, "-I", "-S", java_module.__file__],
        env={"JAVA_HOME": str(java_home)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Found Java 11.0.22" in done.stderr
