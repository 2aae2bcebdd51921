"""Errors by their code: a message may be reworded, its code may not."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidemill.errors import TidemillError


@contextmanager
def raises(code: str, *values: object) -> Iterator[pytest.ExceptionInfo[TidemillError]]:
    """Expect an error of Tidemill.

    Args:
        code: Its code; docs/errors.md lists all.
        *values: What its message names, such as the stream, a column or a command.
    """
    with pytest.raises(TidemillError) as raised:
        yield raised
    error = raised.value
    assert error.code == code, f"{error.code}: {error}"
    assert not [value for value in map(str, values) if value not in str(error)], str(error)
