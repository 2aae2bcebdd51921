"""Pipelines by `module:attribute`, as tidemill.toml names them."""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from pipelines.streaming.errors import ConfigurationError, DefinitionError
from pipelines.streaming.pipeline import Pipeline


def load_pipelines(entries: Iterable[str], root: Path) -> dict[str, Pipeline]:
    """The pipelines by name, in the order of the entries.

    Args:
        entries: `"pipelines.ads:ads"`.
        root: The folder of tidemill.toml; modules beside it can be named, too.

    Raises:
        ConfigurationError: an entry has not that form, or there is no such module or attribute, the attribute
            is no Pipeline, the module raised, or two pipelines have one name.
        DefinitionError: a module declares a stream wrongly.
    """
    if str(root) not in sys.path:
        sys.path.append(str(root))
    loaded: dict[str, Pipeline] = {}
    origins: dict[str, str] = {}
    for entry in entries:
        pipeline = _load(entry)
        if pipeline.name in loaded and loaded[pipeline.name] is not pipeline:
            raise ConfigurationError(
                f"{origins[pipeline.name]!r} and {entry!r} are both named {pipeline.name!r}.",
                fix="Give each Pipeline(...) a name of its own: it is the folder of its tables.",
            )
        loaded[pipeline.name] = pipeline
        origins[pipeline.name] = entry
    return loaded


def _load(entry: str) -> Pipeline:
    module_name, colon, attribute = entry.partition(":")
    if not (colon and attribute.isidentifier() and all(p.isidentifier() for p in module_name.split("."))):
        raise ConfigurationError(
            f"pipelines: {entry!r} is not of the form 'module:attribute', such as 'pipelines.ads:ads'."
        )
    try:
        module = importlib.import_module(module_name)
    except DefinitionError:
        raise
    except ModuleNotFoundError as error:
        # A module that imports something missing is there itself.
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"pipelines: {entry!r}: there is no module {error.name!r}.",
                fix="Correct the entry in tidemill.toml, or create the module.",
            ) from None
        raise ConfigurationError(
            f"pipelines: {entry!r}: importing it failed: {error}.",
            fix="Install the package into the environment of tidemill.",
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"pipelines: {entry!r}: importing it raised {type(error).__name__}: {error}.",
            fix=f"See the whole error with: python -c 'import {module_name}'",
        ) from error
    if not hasattr(module, attribute):
        found = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
        raise ConfigurationError(
            f"pipelines: {entry!r}: the module has no {attribute!r}. "
            f"Its pipelines: {', '.join(found) or 'none'}."
        )
    pipeline = getattr(module, attribute)
    if not isinstance(pipeline, Pipeline):
        raise ConfigurationError(
            f"pipelines: {entry!r} is a {type(pipeline).__name__}, not a Pipeline.",
        )
    return pipeline
