"""The check that a lake's files are reached by its store."""

import runpy
from pathlib import Path

import pytest

local_calls = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "local_files.py"))["local_calls"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import shutil", "shutil"),
        ("from tempfile import NamedTemporaryFile", "tempfile"),
        ("open(path)", "open"),
        ("os.replace(one, other)", "os.replace"),
        ("os.path.exists(path)", "os.path.exists"),
        ("(folder / 'a').write_text('')", "write_text"),
        ("folder.mkdir()", "mkdir"),
        ("from os import replace", "os.replace"),
        ("import glob", "glob"),
        ("Path(name).expanduser().exists()", "exists"),
        ("(Path(name).parent / 'a').open()", "open"),
        ("(lambda: (folder := Path(name)).resolve())()", "resolve"),
        ("def move(folder: Path): folder.replace(other)", "replace"),
        ("def move(folder: 'Path | None'): folder.walk()", "walk"),
        ("class Move: folder: Path; has = lambda self: self.folder.exists()", "exists"),
    ],
)
def test_a_call_that_only_a_file_system_has_is_a_fault(tmp_path, code, name):
    module = tmp_path / "module.py"
    module.write_text(code)

    assert list(local_calls(module)) == [(1, name)]


@pytest.mark.parametrize(
    "code",
    [
        "store.read(key)",
        "store.walk(key)",
        "table.open()",
        "table.exists()",
        "flags.resolve()",
        "text.replace(a, b)",
        "Path(name).name.replace(a, b)",
        "Path('/proc/self/stat').read_text()",
    ],
)
def test_a_verb_of_a_store_is_none(tmp_path, code):
    module = tmp_path / "module.py"
    module.write_text(code)

    assert list(local_calls(module)) == []
