"""The pytest plugin: the fixture `scratch`. The fixture `sessions` is the project's (tests/conftest.py)."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.streaming.run.execution import Sessions
    from pipelines.streaming.testing.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: "Path", sessions: "Sessions") -> "Scratch":
    """A scratch lake whose runs share the tests' one Spark session."""
    from pipelines.streaming.lake import Lake
    from pipelines.streaming.testing.scratch import Scratch

    return Scratch(lake=Lake.at(tmp_path / "lake"), landing=tmp_path / "landing", sessions=sessions)
