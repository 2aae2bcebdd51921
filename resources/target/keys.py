"""A table of a TOML file, read key by key: every fault is noted, and what nobody asked for is unknown.

Plain Python instead of a validation library: building its models would cost a tenth of the second in which
an idle run has to be over.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.streaming.target import did_you_mean

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Keys:
    """One table.

    Args:
        table: What the file has in its place.
        where: Its place in the file, for messages: `targets.prod`.
        faults: Takes a sentence for each fault; none of them repeats a value that could be a secret.
    """

    def __init__(self, table: object, where: str, faults: list[str]) -> None:
        self._where = where
        self._faults = faults
        self._asked: set[str] = set()
        self._table: dict[str, Any] = table if isinstance(table, dict) else {}
        if not isinstance(table, dict):
            self.fault("", "must be a table")

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def fault(self, key: str, reason: str) -> None:
        """Notes that a key is wrong; an empty key means the table itself."""
        self._faults.append(f"{self._path(key)} {reason}")

    def text(self, key: str, *, choices: Sequence[str] = (), pattern: str = "", like: str = "") -> str | None:
        """A text, or None where the key is not there or is wrong.

        Args:
            key: The key.
            choices: What it may be.
            pattern: What it must match.
            like: An example of what matches.
        """
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            self.fault(key, "must be a text that is not empty")
        elif choices and value not in choices:
            self.fault(key, f"is {value!r}; it is one of {', '.join(choices)}.{did_you_mean(value, choices)}")
        elif pattern and not re.fullmatch(pattern, value):
            self.fault(key, f"is {value!r}; write it like {like!r}")
        else:
            return value
        return None

    def secret(self, key: str) -> str | None:
        """`${VAR}` as it stands there, or None; a secret itself is refused without a word of it."""
        value = self._value(key)
        if value is None or (isinstance(value, str) and VARIABLE.fullmatch(value)):
            return value
        self.fault(
            key, f"takes only a variable of the environment, such as ${{{key.upper()}}}, never the secret"
        )
        return None

    def whole(self, key: str) -> int | None:
        """A whole number of at least 1, or None."""
        value = self._value(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        self.fault(key, "must be a whole number of at least 1")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where it is missing or wrong."""
        value = self._value(key)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(each, str) for each in value)
        ):
            self.fault(key, "must be a list of texts")
            return ()
        return tuple(value or ())

    def table(self, key: str) -> "Keys":
        """A table in this table; an empty one where there is none."""
        value = self._value(key)
        return Keys({} if value is None else value, self._path(key), self._faults)

    def tables(self, key: str) -> dict[str, "Keys"]:
        """Tables by name; none where the key is not there."""
        inner = self.table(key)
        return {name: inner.table(name) for name in inner}

    def scalars(self) -> dict[str, str]:
        """Everything in this table as Spark writes confs: texts, with `true` and `false` for booleans."""
        scalars = {}
        for key in self._table:
            value = self._value(key)
            if isinstance(value, bool):
                scalars[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                scalars[key] = str(value)
            else:
                self.fault(key, "must be a text, a number or a boolean (quote a name with dots)")
        return scalars

    def end(self) -> None:
        """Notes every key that nobody asked for."""
        for key in self._table:
            if key not in self._asked:
                hint = did_you_mean(key, self._asked) or f" Known: {', '.join(sorted(self._asked))}."
                self.fault(key, f"is an unknown key.{hint}")

    def _value(self, key: str) -> Any:
        self._asked.add(key)
        return self._table.get(key)

    def _path(self, key: str) -> str:
        return ".".join(part for part in (self._where, key) if part)
