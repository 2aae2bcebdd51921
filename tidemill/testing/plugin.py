"""The pytest plugin: the fixture `scratch`. The fixture `engine` is the project's (tests/conftest.py)."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.run.spark.engine import Engine
    from tidemill.testing.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: "Path", engine: "Engine") -> "Scratch":
    """Return a scratch lake whose runs share the tests' one Spark."""
    from tidemill.storage.lake import Lake
    from tidemill.testing.scratch import Scratch

    return Scratch(lake=Lake.at(tmp_path / "lake"), landing=tmp_path / "landing", engine=engine)
