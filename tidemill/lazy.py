"""An attribute that is computed when it is first read."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy(Generic[Owner, Value]):  # noqa: N801 - a decorator
    """`functools.cached_property` without its lock.

    In Python 3.11 one lock serves all instances of a class, so the threads of a tick would wait for each other.
    Two threads that read the same instance may both compute the value.
    """

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Keep the name under which an instance stores the value."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy[Owner, Value]": ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Value: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Return the value, and store it in the instance, where Python finds it before it asks again."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
