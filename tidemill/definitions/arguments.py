"""Arguments that a declaration does not have: an error that says where they belong, and not a bare TypeError."""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from types import MappingProxyType
from typing import ParamSpec, Self, TypeVar

from tidemill.errors import DefinitionError

_Arguments = ParamSpec("_Arguments")
_Declared = TypeVar("_Declared")
ADDED_LATER = MappingProxyType({"added_later": True})
"""The metadata of a field that earlier releases did not have: without a value it is no part of a code version."""
_ELSEWHERE = {
    "table": "a table sink and a DeltaSource have it, and name a table of a catalog with it.",
    "trigger": "each run reads what is there and ends; run_when= of the stream says when a run starts.",
}


class Declared:
    """Base of the dataclasses that a user declares."""

    __slots__ = ()

    def __new__(cls, *_arguments: object, **named: object) -> Self:
        """Refuse arguments that the dataclass does not have; `__init__` takes the others."""
        known = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
        _refuse_unknown(named, known, field=cls.__name__)
        return super().__new__(cls)


def with_known_arguments(function: Callable[_Arguments, _Declared]) -> Callable[_Arguments, _Declared]:
    """Return a function of named arguments that refuses those that it does not have."""
    _, *known = inspect.signature(function).parameters

    @functools.wraps(function)
    def called(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Declared:
        _refuse_unknown(named, known, field=f"{function.__name__}()")
        return function(*arguments, **named)

    return called


def _refuse_unknown(named: Collection[str], known: Collection[str], *, field: str) -> None:
    unknown = next((name for name in named if name not in known), None)
    if unknown is not None:
        fix = _ELSEWHERE.get(unknown, f"it has {', '.join(known)}.")
        raise DefinitionError(f"{field} has no argument {unknown!r}: {fix}", code="argument-not-known")
