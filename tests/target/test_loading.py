"""Pipelines of tidemill.toml: one that cannot be loaded leaves the others alone, and its error names it."""

import sys
from pathlib import Path

import pytest

from tests.support.raising import raises
from tidemill.target.loading import load_pipelines

GOOD = "from tidemill import Pipeline\nshop = Pipeline('shop')\n"
OTHER = "from tidemill import Pipeline\nother = Pipeline('other')\n"
WRONG = (
    "from tidemill import DeltaAppend, Feed, Pipeline, Raw\n"
    "wrong = Pipeline('wrong')\n"
    "wrong.stream(source=Feed('lines', Raw()), sink=DeltaAppend(), name='a b')(lambda lines: lines)\n"
)


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """Modules in a folder, importable for one test and forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = {
        "tm_good": GOOD,
        "tm_same_name": GOOD,
        "tm_other": OTHER,
        "tm_wrong": WRONG,
        "tm_raises": "1 / 0",
        "tm_exits": "raise SystemExit(3)",
        "tm_needs": "import tm_not_installed",
    }
    for name, source in modules.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_pipelines_are_imported_from_the_folder_of_the_file(root):
    loaded = load_pipelines(["tm_good:shop", "tm_other:other"], root)

    assert {name: pipeline.name for name, pipeline in loaded.pipelines.items()} == {
        "shop": "shop",
        "other": "other",
    }
    assert loaded.failures == ()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("tm_good", "it is not of the form 'module:attribute'"),
        ("tm_gone:shop", "there is no module 'tm_gone'"),
        ("tm_good:shops", "the module has no 'shops'. Its pipelines: shop."),
        ("tm_good:Pipeline", "it is a type, not a Pipeline"),
        ("tm_raises:shop", "importing it raised ZeroDivisionError"),
        ("tm_exits:shop", "importing it raised SystemExit"),
        ("tm_needs:shop", "No module named 'tm_not_installed'"),
        ("tm_wrong:wrong", "'a b'"),
    ],
)
def test_a_pipeline_that_cannot_be_loaded_leaves_the_others_alone(root, entry, message):
    loaded = load_pipelines([entry, "tm_other:other"], root)

    (failure,) = loaded.failures
    assert failure.entry == entry
    assert f"Pipeline {entry!r} is not loaded: " in str(failure.error)
    assert message in str(failure.error)
    assert list(loaded.pipelines) == ["other"]
    assert loaded.streams() == ()


def test_two_pipelines_of_one_name_are_both_refused_because_they_mean_the_same_tables(root):
    loaded = load_pipelines(["tm_good:shop", "tm_same_name:shop", "tm_other:other"], root)

    assert list(loaded.pipelines) == ["other"]
    assert [failure.entry for failure in loaded.failures] == ["tm_good:shop", "tm_same_name:shop"]
    assert "'tm_good:shop' and 'tm_same_name:shop' are both named 'shop'" in str(loaded.failures[0].error)


def test_an_entry_that_is_listed_twice_is_loaded_once(root):
    loaded = load_pipelines(["tm_good:shop", "tm_good:shop"], root)

    assert list(loaded.pipelines) == ["shop"]
    assert loaded.failures == ()


@pytest.mark.parametrize(
    ("entry", "code"), [("tm_gone:x", "pipeline-not-loaded"), ("tm_wrong:wrong", "name-invalid")]
)
def test_where_nothing_can_be_loaded_streams_raise_the_first_error(root, entry, code):
    loaded = load_pipelines([entry], root)

    with raises(code, entry):
        loaded.streams()


def test_no_entries_give_no_streams(root):
    assert load_pipelines([], root).streams() == ()
