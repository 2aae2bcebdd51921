"""Pipelines by `module:attribute`, as tidemill.toml names them. One that fails leaves the others alone."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.definitions.pipeline import Pipeline
from tidemill.definitions.stream import Stream
from tidemill.errors import ConfigurationError, DefinitionError


@dataclass(frozen=True, slots=True)
class PipelineFailure:
    """A pipeline that cannot be loaded.

    Attributes:
        entry: Its entry in tidemill.toml: `pipelines.ads:ads`.
        error: What went wrong, with the entry in it.
    """

    entry: str
    error: ConfigurationError | DefinitionError


@dataclass(frozen=True, slots=True)
class LoadedPipelines:
    """What the entries of tidemill.toml gave.

    Attributes:
        pipelines: The pipelines by name, in the order of the entries.
        failures: The pipelines that cannot be loaded.
    """

    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    failures: tuple[PipelineFailure, ...] = ()

    def streams(self) -> tuple[Stream, ...]:
        """Return the streams of all pipelines that are loaded, as declared.

        Raises:
            ConfigurationError: Not one pipeline can be loaded.
            DefinitionError: The same, because a stream is declared wrongly.
        """
        if self.failures and not self.pipelines:
            raise self.failures[0].error
        return tuple(stream for pipeline in self.pipelines.values() for stream in pipeline)

    def every_stream(self) -> tuple[Stream, ...]:
        """Return the streams of all pipelines, for what must know everything that reads a table.

        Raises:
            ConfigurationError: A pipeline cannot be loaded.
        """
        for failure in self.failures:
            raise ConfigurationError(
                f"The pipeline {failure.entry!r} cannot be loaded, so it is not known which tables its streams read: "
                f"{failure.error}",
                fix="Correct the pipeline, or remove it from tidemill.toml.",
                code="pipeline-not-loaded",
            )
        return self.streams()


def load_pipelines(entries: Iterable[str], root: Path) -> LoadedPipelines:
    """Import the pipelines; no JVM starts.

    Args:
        entries: `"pipelines.ads:ads"`.
        root: The folder of tidemill.toml, whose modules come before those of the environment.
    """
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    loaded: dict[str, Pipeline] = {}
    failures: dict[str, ConfigurationError | DefinitionError] = {}
    for entry in dict.fromkeys(entries):
        try:
            loaded[entry] = _load(entry)
        except (ConfigurationError, DefinitionError) as error:
            failures[entry] = error
    for entry, conflict in _conflicts(loaded).items():
        failures[entry] = conflict
        del loaded[entry]
    return LoadedPipelines(
        {pipeline.name: pipeline for pipeline in loaded.values()},
        tuple(PipelineFailure(entry, error) for entry, error in failures.items()),
    )


def _conflicts(loaded: Mapping[str, Pipeline]) -> dict[str, ConfigurationError]:
    """Return an error for each entry whose pipeline has the name of another one: both mean the same tables."""
    distinct = {id(pipeline): pipeline for pipeline in loaded.values()}
    counts = Counter(pipeline.name for pipeline in distinct.values())
    conflicts = {}
    for entry, pipeline in loaded.items():
        if counts[pipeline.name] > 1:
            others = [repr(other) for other, same in loaded.items() if same.name == pipeline.name]
            conflicts[entry] = _failed(
                entry,
                f"{' and '.join(others)} are both named {pipeline.name!r}.",
                fix="Give each Pipeline(...) a name of its own: it is the folder of its tables.",
            )
    return conflicts


def _load(entry: str) -> Pipeline:
    module_name, colon, attribute = entry.partition(":")
    if not (colon and attribute.isidentifier() and all(p.isidentifier() for p in module_name.split("."))):
        raise _failed(
            entry,
            "it is not of the form 'module:attribute'.",
            fix="Write it like 'pipelines.ads:ads' in pipelines of tidemill.toml.",
        )
    try:
        module = importlib.import_module(module_name)
    except DefinitionError as error:
        at = f"{error.stream}: " if error.stream else ""
        raise DefinitionError(
            f"Pipeline {entry!r} is not loaded: {at}{error.what}",
            lost=error.lost,
            fix=error.fix,
            code=error.code,
        ) from error
    except ModuleNotFoundError as error:
        # A module that imports something missing is there itself.
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _failed(
                entry,
                f"there is no module {error.name!r}.",
                fix="Correct the entry in tidemill.toml, or create the module.",
            ) from None
        raise _failed(
            entry,
            f"importing it failed: {error}.",
            fix="Install the package into the environment of tidemill.",
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(
            entry,
            f"importing it raised {type(error).__name__}: {error}.",
            fix=f"See the whole error with: python -c 'import {module_name}'",
        ) from error
    if not hasattr(module, attribute):
        names = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
        raise _failed(
            entry,
            f"the module has no {attribute!r}. Its pipelines: {', '.join(names) or 'none'}.",
            fix="Correct the entry in tidemill.toml.",
        )
    pipeline = getattr(module, attribute)
    if not isinstance(pipeline, Pipeline):
        raise _failed(
            entry,
            f"it is a {type(pipeline).__name__}, not a Pipeline.",
            fix="Name the Pipeline(...) of the module in tidemill.toml.",
        )
    return pipeline


def _failed(entry: str, reason: str, *, fix: str) -> ConfigurationError:
    return ConfigurationError(
        f"Pipeline {entry!r} is not loaded: {reason}", fix=fix, code="pipeline-not-loaded"
    )
