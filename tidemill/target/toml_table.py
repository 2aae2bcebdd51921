"""A table of tidemill.toml, read key by key: every fault is noted, and a key that nothing reads is unknown.

Plain Python instead of a validation library: building its models would cost a tenth of the second in which
an idle run has to end.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.errors import ConfigurationError
from tidemill.storage.local_store import scheme_of
from tidemill.target.target import did_you_mean
from tidemill.text.secret import VARIABLE, Secret, literal_fault, substitute


@dataclass(frozen=True, slots=True)
class Notes:
    """What reading a file brings up.

    Attributes:
        environ: The values of `${VAR}`.
        faults: A sentence for each fault; none of them repeats a value that could be a secret.
        variables: The variables in each setting that the file has, by the path of the setting.
        unset: The error about a variable that is not set, by the path of the setting that needs it.
    """

    environ: Mapping[str, str]
    faults: list[str] = field(default_factory=list)
    variables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unset: dict[str, ConfigurationError] = field(default_factory=dict)


class Table:
    """One table.

    Args:
        content: What the file has there.
        path: Its path in the file, for messages: `targets.prod`.
        notes: Takes what reading brings up.
    """

    def __init__(self, content: object, path: str, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._read: set[str] = set()
        self._content: dict[str, Any] = content if isinstance(content, dict) else {}
        if not isinstance(content, dict):
            self.fault("", "must be a table")

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def fault(self, key: str, reason: str) -> None:
        """Note that a key is wrong; an empty key means the table itself."""
        self._notes.faults.append(f"{self.path_of(key)} {reason}")

    def path_of(self, key: str) -> str:
        """Return the path of a key in the file; that of the table for an empty key."""
        return ".".join(part for part in (self._path, key) if part)

    def raw(self, key: str) -> str | None:
        """Return a string as the file has it, or None if the key is missing or wrong."""
        value = self._value(key)
        if value is None or (isinstance(value, str) and value):
            return value
        self.fault(key, "must be a string that is not empty")
        return None

    def string(
        self, key: str, *, choices: Sequence[str] = (), pattern: str = "", example: str = ""
    ) -> str | None:
        """Return a string with its variables replaced, or None if the key is missing or wrong.

        Args:
            choices: The strings that are allowed.
            pattern: What it must match.
            example: A string that matches.
        """
        value = self.raw(key)
        if value is None:
            return None
        if choices and value not in choices:
            self.fault(key, f"is {value!r}; it is one of {', '.join(choices)}.{did_you_mean(value, choices)}")
        elif pattern and not re.fullmatch(pattern, value):
            self.fault(key, f"is {value!r}; write it like {example!r}")
        else:
            return self.substituted(key, value)
        return None

    def substituted(self, key: str, value: str) -> str:
        """Return a value with each `${VAR}` replaced; note a variable that is not set, and keep the value."""
        path = self.path_of(key)
        self._notes.variables[path] = tuple(VARIABLE.findall(value))
        try:
            return substitute(value, self._notes.environ, self._setting(key))
        except ConfigurationError as error:
            self._notes.unset[path] = error
            return value

    def file(self, key: str, root: Path) -> Path | None:
        """Return a path, or None if the key is missing or wrong; a relative path starts at `root`."""
        value = self.string(key)
        if value is not None and (scheme := scheme_of(value)):
            self.fault(key, f"is on {scheme}://; use a folder of a local or mounted file system")
            return None
        return None if value is None else root / Path(value.removeprefix("file://")).expanduser()

    def secret(self, key: str) -> Secret | None:
        """Return the reference `${VAR}`, or None; a secret itself is refused, and the fault does not repeat it."""
        value = self._value(key)
        if value is None:
            return None
        if reason := literal_fault(key, value):
            self.fault(key, reason)
            return None
        return self.reference(key, value)

    def reference(self, key: str, template: str) -> Secret:
        """Return a string whose variables are read when a connection is made."""
        secret = Secret(template, self._setting(key))
        self._notes.variables[self.path_of(key)] += secret.variables
        return secret

    def string_or_secret(self, key: str) -> str | Secret | None:
        """Return a reference for `${VAR}`, else a string as `string` does."""
        value = self._content.get(key)
        return self.secret(key) if isinstance(value, str) and VARIABLE.fullmatch(value) else self.string(key)

    def integer(self, key: str) -> int | None:
        """Return an integer of at least 1, or None if the key is missing or wrong."""
        value = self._value(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        self.fault(key, "must be an integer of at least 1")
        return None

    def flag(self, key: str) -> bool:
        """Return a boolean; False if the key is missing or wrong."""
        value = self._value(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.fault(key, "must be true or false")
        return False

    def scalar(self, key: str) -> str:
        """Return a value as Spark writes confs: a string, with `true` and `false` for booleans."""
        value = self._value(key)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            return self.substituted(key, str(value))
        self.fault(key, "must be a string, a number or a boolean (quote a name with dots)")
        return ""

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; empty if the key is missing or wrong."""
        value = self._value(key)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(item, str) for item in value)
        ):
            self.fault(key, "must be a list of strings")
            return ()
        return tuple(value or ())

    def table(self, key: str) -> "Table":
        """Return a table in this table; an empty one if the key is missing."""
        value = self._value(key)
        return Table({} if value is None else value, self.path_of(key), self._notes)

    def tables(self, key: str) -> dict[str, "Table"]:
        """Return tables by name; none if the key is missing."""
        inner = self.table(key)
        return {name: inner.table(name) for name in inner}

    def end(self) -> None:
        """Note every key that nothing has read."""
        for key in self._content:
            if key not in self._read:
                hint = did_you_mean(key, self._read) or f" Known: {', '.join(sorted(self._read))}."
                self.fault(key, f"is an unknown key.{hint}")

    def _value(self, key: str) -> Any:
        self._read.add(key)
        if key in self._content:
            self._notes.variables.setdefault(self.path_of(key), ())
        return self._content.get(key)

    def _setting(self, key: str) -> str:
        """Return a setting as errors name it: `spark.mode of target 'prod'`."""
        _, target, setting = self.path_of(key).split(".", 2)
        return f"{setting} of target {target!r}"
