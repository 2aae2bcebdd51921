"""The code version of a stream, which changes when its declaration or its function changes.

It covers the function's own code and everything that is declared with it. Functions that it calls, and the
versions of libraries, are not covered: Dagster's code version is a hint for people, and the run decides
whether a checkpoint fits the code.
"""

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from tidemill.definitions.arguments import ADDED_LATER
from tidemill.definitions.sql import SqlFunction
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream

LENGTH = 12
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=4096)  # the source of a module does not change within a process
def code_version(stream: "Stream") -> str:
    """Return a short hash, the same in every process, on every host and in every version of Python.

    Comments, layout and docstrings do not change it, and neither do those of a SQL text.
    """
    declared = {
        "function": _plain(stream.function),
        "sources": [[name, _plain(source)] for name, source in stream.sources.items()],
        "sinks": _plain(stream.sinks),
        "expect": _plain(stream.expect),
        "query": _plain(stream.query),
    }
    return digest(declared, length=LENGTH)


def _plain(value: Any) -> Any:
    """Return a value as JSON values, with the names of types: a repr may contain addresses or random orders."""
    match value:
        case str() | int() | float() | None:
            plain: Any = value
        case Mapping():
            plain = {str(key): _plain(member) for key, member in value.items()}
        case list() | tuple():
            plain = [_plain(member) for member in value]
        case SqlFunction():
            plain = value.code
        case set() | frozenset():
            plain = sorted(str(member) for member in value)
        case partial():
            plain = [_plain(value.func), _plain(value.args), _plain(value.keywords)]
        case _ if callable(value) or (is_dataclass(value) and not isinstance(value, type)):
            plain = {"type": type(value).__name__, **_fields(value), **_code(value)}
        case _ if str(value) == object.__repr__(value):
            plain = _qualified(type(value))
        case _:
            plain = str(value)
    return plain


def _fields(value: object) -> dict[str, Any]:
    """Return the fields of a dataclass instance that make it equal to another; nothing for other objects."""
    if not is_dataclass(value) or isinstance(value, type):
        return {}
    given = {field.name: getattr(value, field.name) for field in fields(value) if field.compare}
    absent = {
        field.name for field in fields(value) if field.metadata == ADDED_LATER and not given[field.name]
    }
    return {name: _plain(member) for name, member in given.items() if name not in absent}


def _code(value: object) -> dict[str, str]:
    """Return the code of a function, a method, a class or a callable object; nothing for other objects."""
    if inspect.isroutine(value) or isinstance(value, type):
        return {"code": function_code(value)}
    return {"code": function_code(type(value))} if callable(value) else {}


def function_code(function: Callable[..., Any]) -> str:
    """Return a function's code without its decorators, comments and docstring.

    A lambda within a call has only the lines around it; a function without source code has only its name.
    """
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return _qualified(function)
    is_indented = not source[:1].strip()
    try:
        # A body may have text that is less indented than its definition, so the source is not dedented.
        statements = ast.parse(f"if True:\n{source}" if is_indented else source).body
    except (SyntaxError, ValueError):
        return " ".join(source.split())
    if is_indented and isinstance(block := statements[0], ast.If):
        statements = block.body
    for statement in statements:  # more than one where a lambda shares its line
        if isinstance(statement, _DEFINITIONS):
            statement.decorator_list = []
        for part in ast.walk(statement):
            if isinstance(part, _DEFINITIONS) and ast.get_docstring(part) is not None:
                part.body = part.body[1:] or [ast.Pass()]
    return "\n".join(map(ast.unparse, statements))


def _qualified(value: Any) -> str:
    """Return the full name of a function or class; of anything else, the name of its type."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', None)}.{named.__qualname__}"
