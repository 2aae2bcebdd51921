"""Write the files of a project from the templates: a project, a pipeline, a stream, an example.

The templates are real files. Their placeholders are names such as `new_pipeline`, so that they are valid code.
"""

import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.target.config import FILE_NAME
from tidemill.text.names import RESERVED_PIPELINES, StreamName, valid_name
from tidemill.text.plurals import first_few

_PACKAGE = Path(__file__).parents[2]
_TEMPLATES = Path(__file__).parent / "template"
# Under its own name, .gitignore would be in force for this folder, and .tidemill would be ignored.
_DOT = re.compile(r"\bdot_")
_PIPELINES = re.compile(r"^pipelines *= *\[(?P<entries>[^\]]*)\]", re.MULTILINE)
EXAMPLE = "ads"


def example_root() -> Path:
    """Return the folder with the example `pipelines/ads`: in the installed package, or the repository itself."""
    packaged = _PACKAGE / "examples" / EXAMPLE
    return packaged if packaged.is_dir() else _PACKAGE.parent


def write_project(folder: Path, *, name: str, pipeline: str | None, example: bool) -> list[Path]:
    """Write a new project, and return its files.

    Args:
        folder: The folder; created if it is missing.
        name: The name of the project.
        pipeline: The name of its first pipeline; None for none.
        example: Whether it has the example `ads`.

    Raises:
        ConfigurationError: One of the files exists; nothing was written.
        DefinitionError: The name of the pipeline is not allowed.
    """
    release = version("tidemill")
    files = _rendered("project", {"new-project": name, "0.0.0": release})
    entries = [EXAMPLE] if example else []
    if example:
        source = example_root()
        files |= {
            path.relative_to(source): path.read_text(encoding="utf-8")
            for path in _files(source / "pipelines" / EXAMPLE)
        }
    if pipeline is not None:
        entries.append(pipeline)
        files |= _rendered("pipeline", {"new_pipeline": valid_pipeline(pipeline)})
    config = Path(FILE_NAME)
    for entry in entries:
        files[config] = _with_pipeline(files[config], entry)
    return _write(folder, files)


def write_pipeline(config: Path, name: str) -> list[Path]:
    """Add a pipeline with a stream and its test to a project, and to its tidemill.toml; return the new files.

    Args:
        config: The tidemill.toml of the project.

    Raises:
        ConfigurationError: One of the files exists, or tidemill.toml cannot be edited; nothing was written.
        DefinitionError: The name is not allowed.
    """
    content = _with_pipeline(config.read_text(encoding="utf-8"), valid_pipeline(name))
    written = _write(config.parent, _rendered("pipeline", {"new_pipeline": name}))
    config.write_text(content, encoding="utf-8")
    return written


def write_stream(config: Path, name: StreamName) -> list[Path]:
    """Add a stream and its test to a pipeline of a project, and return the new files.

    Args:
        config: The tidemill.toml of the project.

    Raises:
        ConfigurationError: There is no such pipeline, or one of the files exists; nothing was written.
    """
    package = config.parent / "pipelines" / name.pipeline
    exports = package / "__init__.py"
    if not (exports.is_file() and (package / "pipeline.py").is_file()):
        raise ConfigurationError(
            f"There is no pipeline in {package} with the files __init__.py and pipeline.py.",
            fix=f"Create it with: tidemill new pipeline {name.pipeline}",
            code="pipeline-missing",
        )
    written = _write(
        config.parent,
        _rendered("stream", {"new_pipeline": name.pipeline, "new_stream": name.stream}),
    )
    export = f"from pipelines.{name.pipeline}.{name.stream} import {name.stream} as {name.stream}\n"
    exports.write_text(exports.read_text(encoding="utf-8").rstrip("\n") + f"\n{export}", encoding="utf-8")
    return written


def valid_pipeline(name: str) -> str:
    """Return the name of a new pipeline, which is also a module.

    Raises:
        DefinitionError: It is not allowed.
        ConfigurationError: It is reserved.
    """
    if name in RESERVED_PIPELINES:
        raise ConfigurationError(
            f"The pipeline name {name!r} is reserved.", fix="Choose another name.", code="name-reserved"
        )
    return valid_name(name, field="pipeline")


def _with_pipeline(config: str, name: str) -> str:
    """Return the text of a tidemill.toml with one more pipeline."""
    entry = f"pipelines.{name}:{name}"
    known = tomllib.loads(config).get("pipelines", [])
    match = _PIPELINES.search(config)
    if match is not None and entry not in known:
        entries = match["entries"].rstrip().removesuffix(",")
        separator = "" if not entries.strip() else ",\n   " if "\n" in entries else ","
        listed = f'{entries}{separator} "{entry}"'.strip(" ")
        edited = f"{config[: match.start('entries')]}{listed}{config[match.end('entries') :]}"
        if tomllib.loads(edited)["pipelines"] == [*known, entry]:
            return edited
    raise ConfigurationError(
        f"{entry!r} cannot be added to pipelines of {FILE_NAME}"
        + (": the file has it already." if entry in known else "."),
        lost="Nothing was written.",
        fix=f"Choose another name, or edit {FILE_NAME} and the files under pipelines/ by hand.",
        code="pipeline-name-taken",
    )


def _rendered(template: str, names: Mapping[str, str]) -> dict[Path, str]:
    """Return the files of a template by path, with the names in place of the placeholders."""
    root = _TEMPLATES / template
    return {
        Path(_DOT.sub(".", _replaced(str(path.relative_to(root)), names))): _replaced(
            path.read_text(encoding="utf-8"), names
        )
        for path in _files(root)
    }


def _replaced(content: str, names: Mapping[str, str]) -> str:
    for placeholder, name in names.items():
        content = content.replace(placeholder, name)
    return content


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder; an installation adds compiled modules, which are none of them."""
    return [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent.name != "__pycache__"
    ]


def _write(folder: Path, files: Mapping[Path, str]) -> list[Path]:
    """Write files that do not exist yet."""
    existing = [str(path) for path in files if (folder / path).exists()]
    if existing:
        raise ConfigurationError(
            f"{folder} already has {first_few(existing)}.",
            lost="Nothing was written.",
            fix="Choose another folder or name, or move these files away.",
            code="files-exist",
        )
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")
    return [folder / path for path in files]
