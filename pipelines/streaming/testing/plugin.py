"""The pytest plugin: the fixture `scratch`. The fixture `engine` is the project's (tests/conftest.py)."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.streaming.run.engine import Engine
    from pipelines.streaming.testing.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: "Path", engine: "Engine") -> "Scratch":
    """Return a scratch lake whose runs share the tests' one Spark."""
    from pipelines.streaming.records.lake import Lake
    from pipelines.streaming.testing.scratch import Scratch

    return Scratch(lake=Lake.at(tmp_path / "lake"), landing=tmp_path / "landing", engine=engine)
