"""What `tidemill init` and `tidemill new` write, without Spark: tests/project/test_wheel.py runs it."""

import ast
import importlib
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import pipelines as ours
from tests.support.raising import raises
from tidemill.cli.project.scaffold import write_pipeline, write_project, write_stream
from tidemill.errors import ConfigurationError, DefinitionError
from tidemill.target.loading import load_pipelines
from tidemill.text.names import StreamName

ROOT = Path(__file__).parents[2]
CONFIG = "tidemill.toml"


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "platform"
    write_project(folder, name="platform", pipeline="shop_of_tests", example=False)
    return folder


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pipelines(project: Path) -> list[str]:
    return tomllib.loads((project / CONFIG).read_text())["pipelines"]


def test_a_project_has_the_shape_of_this_one_and_no_placeholder_is_left(project):
    assert {path.name for path in project.iterdir()} == {
        ".gitignore", ".tidemill", "README.md", "orchestration", "pipelines", "pyproject.toml", "resources",
        "tests", CONFIG, "workspace.yaml",
    }  # fmt: skip
    text = b"".join(content(project).values())
    assert not [word for word in (b"new_pipeline", b"new-project", b"0.0.0") if word in text]
    assert {path.name for path in ROOT.iterdir()} >= {
        "orchestration", "pipelines", "pyproject.toml", "resources", "tests", CONFIG, "workspace.yaml",
    }  # fmt: skip


def test_the_code_of_a_project_imports_what_tidemill_has(project):
    write_stream(project / CONFIG, StreamName("shop_of_tests", "refunds"))
    imports = [
        (node.module, alias.name)
        for path in project.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tidemill")
        for alias in node.names
    ]
    assert ("tidemill.orchestration", "build_definitions") in imports
    assert [name for name in imports if not hasattr(importlib.import_module(name[0]), name[1])] == []


def test_nothing_is_overwritten(project):
    before = content(project)
    for code, write in (
        ("files-exist", lambda: write_project(project, name="platform", pipeline="other", example=False)),
        ("pipeline-name-taken", lambda: write_pipeline(project / CONFIG, "shop_of_tests")),
        ("files-exist", lambda: write_stream(project / CONFIG, StreamName("shop_of_tests", "events"))),
    ):
        with raises(code, "Nothing was written"):
            write()
    assert content(project) == before


def test_a_new_pipeline_and_a_new_stream_are_loaded_with_the_others(project, monkeypatch):
    write_pipeline(project / CONFIG, "audit_of_tests")
    write_stream(project / CONFIG, StreamName("audit_of_tests", "refunds"))
    assert pipelines(project) == [
        "pipelines.shop_of_tests:shop_of_tests",
        "pipelines.audit_of_tests:audit_of_tests",
    ]
    monkeypatch.setattr(sys, "path", [*sys.path])  # loading a project puts its folder first
    monkeypatch.setattr(ours, "__path__", [str(project / "pipelines"), *ours.__path__])
    loaded = load_pipelines(pipelines(project), project)
    assert loaded.failures == ()
    names = [str(stream.name) for stream in loaded.streams()]
    assert names == ["shop_of_tests/events", "audit_of_tests/events", "audit_of_tests/refunds"]


@pytest.mark.parametrize(
    "before", ['["a.b:c"]', '[\n    "a.b:c",\n    "d:e",\n]', "[]", "[\n]", '["a.b:c",]'], ids=repr
)
def test_the_list_of_pipelines_is_edited_and_the_rest_stays(project, before):
    config = project / CONFIG
    config.write_text(f"# mine\npipelines = {before} # all\n[targets.dev]\n")
    known = pipelines(project)
    write_pipeline(config, "audit")
    assert pipelines(project) == [*known, "pipelines.audit:audit"]
    assert config.read_text().startswith("# mine\n")
    assert config.read_text().endswith(" # all\n[targets.dev]\n")


def test_a_list_in_another_form_is_left_to_the_user(project):
    (project / CONFIG).write_text('"pipelines" = []\n')
    before = content(project)
    with raises("pipeline-name-taken", "pipelines"):
        write_pipeline(project / CONFIG, "audit")
    assert content(project) == before


def test_a_stream_needs_its_pipeline(project):
    with raises("pipeline-missing", "tidemill new pipeline other"):
        write_stream(project / CONFIG, StreamName("other", "orders"))


@pytest.mark.parametrize(
    ("name", "error"), [("Shop", DefinitionError), ("a__b", DefinitionError), ("kafka", ConfigurationError)]
)
def test_a_name_that_is_not_allowed_is_refused_before_anything_is_written(tmp_path, name, error):
    with pytest.raises(error, match=name):
        write_project(tmp_path / "new", name="new", pipeline=name, example=False)
    assert not (tmp_path / "new").exists()


def test_the_example_is_the_pipeline_of_this_repository(tmp_path):
    write_project(tmp_path, name="demo", pipeline=None, example=True)
    assert pipelines(tmp_path) == ["pipelines.ads:ads"]
    files = [path.relative_to(ROOT) for path in (ROOT / "pipelines" / "ads").rglob("*.py")]
    assert [path for path in files if (tmp_path / path).read_bytes() != (ROOT / path).read_bytes()] == []


def test_a_project_has_the_settings_of_our_dagster_instance(project):
    path = Path("resources") / "dagster" / "dagster.yaml"
    assert yaml.safe_load((project / path).read_text()) == yaml.safe_load((ROOT / path).read_text())
