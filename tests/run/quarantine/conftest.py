import shutil
from itertools import count

import pytest

from tidemill.storage.lake import Lake
from tidemill.testing import Scratch


@pytest.fixture
def refused(filled, engine, tmp_path):
    """A copy of the folder that a module's fixture `filled` has."""
    shutil.copytree(filled, tmp_path / "copy")
    lake, landing = tmp_path / "copy/lake", tmp_path / "copy/landing"
    return Scratch(lake=Lake.at(lake), landing=landing, engine=engine, _files=count(50), _runs=count(50))
