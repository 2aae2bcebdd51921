"""The version of a stream's code: what a new release adds does not change it."""

import pytest

from tidemill import DeltaAppend, Feed, FileSource, Json, Pipeline
from tidemill.definitions.code_version import code_version


@pytest.mark.parametrize(
    ("source", "version"),
    [(Feed("views", Json("n INT")), "6d2017baa013"), (FileSource(path="/a", format="text"), "2899437a1fc5")],
)
def test_arguments_that_a_release_adds_change_no_version(source, version):
    """A stream that is declared as before has the version that an earlier release recorded."""
    stream = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="v")(as_it_is)
    assert code_version(stream) == version


def as_it_is(rows):
    return rows
