"""The manifest of a stream: its generations, why each began, and what each is bound to."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pipelines.streaming.errors import CheckpointError, TerminalError
from pipelines.streaming.names import StreamName
from pipelines.streaming.records.atomic import replace_file

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One life of a checkpoint.

    Attributes:
        number: Its number, from 1; also its folder.
        began_at: ISO-8601 UTC.
        why: The reason, in a few words.
        bindings: What each feed was bound to, by source name.
        query_id: Spark's query id, once the checkpoint has one.
        fingerprint: The fingerprint of the plan that ran last.
        confs: The confs that the checkpoint pins, as they were at its first start.
        spark_version: The version that ran last.
        sinks: What each sink's table was written as, by sink name (`Sink.identity`).
        table_id: The id of the main table, which shows when it was replaced by another one.
        ledger_batch: The last batch that has its line in the ledger; -1 before the first.
    """

    number: int
    began_at: str
    why: str
    bindings: Mapping[str, str] = field(default_factory=dict)
    query_id: str | None = None
    fingerprint: str | None = None
    confs: Mapping[str, str] = field(default_factory=dict)
    spark_version: str | None = None
    sinks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    table_id: str | None = None
    ledger_batch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the control folder records about a stream.

    Attributes:
        generations: Oldest first; the last one is active.
        last_run: Run id, end (ISO-8601 UTC), outcome and error of the last run that had something to do.
    """

    generations: tuple[Generation, ...]
    last_run: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def active(self) -> Generation:
        """The generation whose checkpoint runs use."""
        return self.generations[-1]

    def with_active(self, **changes: object) -> "Manifest":
        """Return the manifest with fields of its active generation changed."""
        changed = replace(self.active, **changes)  # type: ignore[arg-type]
        return replace(self, generations=(*self.generations[:-1], changed))

    def with_last_run(self, run_id: str, outcome: str, error: str | None) -> "Manifest":
        """Return the manifest with the result of the last run."""
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        return replace(
            self, last_run={"run_id": run_id, "ended_at": ended, "outcome": outcome, "error": error}
        )


def first_manifest(bindings: Mapping[str, str]) -> Manifest:
    """Return the manifest of a stream that has never run."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(
        generations=(Generation(number=1, began_at=began, why="first run", bindings=dict(bindings)),)
    )


def read_manifest(path: Path, stream: StreamName) -> Manifest | None:
    """Return the manifest of a stream; None when the stream has never run.

    Raises:
        CheckpointError: The file cannot be parsed.
        TerminalError: A newer Tidemill wrote it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"its manifest {path} cannot be read: {error}.",
            stream=stream,
            fix="restore the file from a backup.",
        ) from error
    if content.get("schema_version") != SCHEMA_VERSION:
        raise TerminalError(
            f"its manifest {path} has schema version {content.get('schema_version')!r}, and this Tidemill "
            f"reads version {SCHEMA_VERSION}.",
            stream=stream,
            fix="use the Tidemill version that wrote it, or a newer one.",
        )
    return Manifest(
        generations=tuple(Generation(**fields) for fields in content["generations"]),
        last_run=content.get("last_run", {}),
    )


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically."""
    replace_file(path, json.dumps({"schema_version": SCHEMA_VERSION, **asdict(manifest)}, indent=2))
