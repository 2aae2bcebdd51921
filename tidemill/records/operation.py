"""The record of a change of a stream that takes several steps, so that a killed one can be finished.

`<control>/operation.json` is there while the operation is unfinished. A finished one is kept as
`<control>/operations/<id>.json`: who replayed what, and with which result.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tidemill.errors import CheckpointError, TerminalError
from tidemill.storage.store import Store
from tidemill.text.durations import now_iso
from tidemill.text.names import StreamName

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change of a stream that takes several steps.

    Attributes:
        id: Its id, which its commits have in their `userMetadata`.
        kind: The command: `rewind`, `rebuild`, `backfill`, `reset`.
        arguments: What the command was asked for, as JSON; the same command with the same arguments finishes it.
        command: The command line that finishes it.
        began_at: ISO-8601 UTC.
        decided: What was decided at its beginning, as JSON: a resumed operation must not decide again.
        publishing: Whether tables or the manifest may have changed already: no run may come in between.
        done: The names of the steps that are done.
        ended_at: ISO-8601 UTC; None while it is unfinished.
        result: What it has done, as JSON.
    """

    id: str
    kind: str
    arguments: Mapping[str, Any]
    command: str
    began_at: str
    decided: Mapping[str, Any] = field(default_factory=dict)
    publishing: bool = False
    done: tuple[str, ...] = ()
    ended_at: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    def continues(self, current: Mapping[str, Any]) -> bool:
        """Return whether it continues with what it has decided, or starts over.

        Args:
            current: What would be decided now, such as the version of the code. Once the operation publishes, it
                must not decide again.
        """
        return self.publishing or current.items() <= self.decided.items()

    def with_step(self, name: str) -> "Operation":
        """Return the operation after a step."""
        return replace(self, done=(*self.done, name))

    def ended(self) -> "Operation":
        """Return the operation after its last step."""
        return replace(self, ended_at=now_iso())


def new_operation(
    kind: str, arguments: Mapping[str, Any], *, command: str, decided: Mapping[str, Any]
) -> Operation:
    """Return an operation that has done nothing so far.

    Args:
        arguments: What it was asked for.
        command: The command line that finishes it.
        decided: What it has decided.
    """
    name = f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    return Operation(
        id=name, kind=kind, arguments=arguments, command=command, began_at=now_iso(), decided=decided
    )


def read_operation(files: Store, key: str, stream: StreamName) -> Operation | None:
    """Return the operation of a file; None where there is none.

    Raises:
        CheckpointError: The file cannot be parsed.
    """
    try:
        fields = json.loads(files.read(key))
        fields.pop("schema_version")
        return Operation(**fields | {"done": tuple(fields["done"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"the record of its last operation, {files.uri(key)}, cannot be read: {error}.",
            stream=stream,
            fix="restore the file from a backup.",
            code="records-not-readable",
        ) from error


def write_operation(files: Store, key: str, operation: Operation) -> None:
    """Replace the record of an operation atomically."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(operation)}
    files.replace(key, json.dumps(content, indent=2).encode())


def unfinished_error(operation: Operation, stream: StreamName) -> TerminalError:
    """Return the error that an operation must be finished first."""
    done = ", ".join(operation.done) or "none"
    return TerminalError(
        f"its {operation.kind} that began at {operation.began_at} is not finished (steps that are done: {done}).",
        stream=stream,
        fix=f"finish it: {operation.command}",
        code="operation-not-finished",
    )
