"""A test that starts a JVM has the mark `jvm`, so `make quick` starts none."""

import subprocess

import pytest

from tidemill.engines.java import require_java


def run_java() -> subprocess.CompletedProcess:
    return subprocess.run([require_java().path, "-version"], capture_output=True, text=True, check=False)


def test_java_fails_in_a_test_without_the_mark():
    done = run_java()

    assert (done.returncode, done.stderr) == (97, "This test starts a JVM and lacks the mark 'jvm'.\n")


@pytest.mark.jvm
def test_java_works_in_a_test_with_the_mark():
    assert run_java().returncode == 0
