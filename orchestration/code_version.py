"""The code version of a stream: changes when what it computes is declared or written differently.

It covers the function's own code and everything that is declared with it. What the function calls, and the
versions of libraries, are not covered: Dagster's code version is a hint for people, and whether a checkpoint
fits the code is judged by the run.
"""

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.streaming import Stream

LENGTH = 12


def code_version(stream: "Stream") -> str:
    """A short hash, the same in every process, host and version of Python.

    Comments, layout and docstrings do not count.
    """
    declared = {
        "function": function_text(stream.function),
        "sources": [[name, _plain(source)] for name, source in stream.sources.items()],
        "sinks": _plain(stream.sinks),
        "expect": _plain(stream.expect),
        "query": _plain(stream.query),
    }
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:LENGTH]


def function_text(function: "Callable[..., Any]") -> str:
    """A function's code without its decorators, comments and docstring; its name where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        # Typed at a prompt, or a lambda in the middle of a call: there is no text of its own.
        return f"{function.__module__}.{function.__qualname__}"
    definition = tree.body[0]
    if isinstance(definition, ast.FunctionDef):
        definition.decorator_list = []
        if ast.get_docstring(definition) is not None:
            definition.body = definition.body[1:] or [ast.Pass()]
    return ast.unparse(definition)


def _plain(value: Any) -> Any:
    """A definition as JSON values, with the names of its types: reprs may carry addresses and orders."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(str(each) for each in value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
