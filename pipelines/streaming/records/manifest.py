"""The manifest of a stream: which checkpoint is alive, why it began, and what it is bound to."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pipelines.streaming.errors import CheckpointError, TerminalError
from pipelines.streaming.names import StreamName
from pipelines.streaming.records.lake import Lake

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One life of a checkpoint.

    Attributes:
        number: Its number, from 1; also its folder.
        began_at: ISO-8601 UTC.
        why: In a few words.
        bindings: Where each feed was bound to, by source name.
        query_id: Spark's query id, once the checkpoint has one.
        fingerprint: The fingerprint of the plan that ran last.
        confs: The confs that the checkpoint pins, as they were at its first start.
        spark_version: The version that ran last.
        table_id: The id of the main table, so that another table in its place is noticed.
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
    table_id: str | None = None
    ledger_batch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the control folder says about a stream.

    Attributes:
        generations: Oldest first; the last one is active.
        last_run: The id, the end (ISO-8601 UTC), the outcome and the error of the last run that did anything.
    """

    generations: tuple[Generation, ...]
    last_run: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def active(self) -> Generation:
        """The generation whose checkpoint runs use."""
        return self.generations[-1]

    def with_active(self, **changes: object) -> "Manifest":
        """The manifest with fields of its active generation changed."""
        changed = replace(self.active, **changes)  # type: ignore[arg-type]
        return replace(self, generations=(*self.generations[:-1], changed))

    def with_last_run(self, run_id: str, outcome: str, error: str | None) -> "Manifest":
        """The manifest with what the last run did."""
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        return replace(
            self, last_run={"run_id": run_id, "ended_at": ended, "outcome": outcome, "error": error}
        )


def first_manifest(bindings: Mapping[str, str]) -> Manifest:
    """The manifest of a stream that has never run."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(
        generations=(Generation(number=1, began_at=began, why="first run", bindings=dict(bindings)),)
    )


def read_manifest(lake: Lake, stream: StreamName) -> Manifest | None:
    """The manifest of a stream; None when it has never run.

    Raises:
        CheckpointError: the file cannot be understood.
    """
    place = _place(lake, stream)
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{place.name} of its control folder cannot be read: {error}.",
            stream=stream,
            fix=f"Restore {place} from a backup.",
        ) from error
    if content.get("schema_version") != SCHEMA_VERSION:
        raise TerminalError(
            f"{place} has schema version {content.get('schema_version')!r}, and this Tidemill knows "
            f"{SCHEMA_VERSION}.",
            stream=stream,
            fix="Use the Tidemill version that wrote it, or a newer one.",
        )
    return Manifest(
        generations=tuple(Generation(**fields) for fields in content["generations"]),
        last_run=content.get("last_run", {}),
    )


def write_manifest(lake: Lake, stream: StreamName, manifest: Manifest) -> None:
    """Replaces the manifest atomically."""
    place = _place(lake, stream)
    place.parent.mkdir(parents=True, exist_ok=True)
    content = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    temporary = place.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=2), encoding="utf-8")
    temporary.replace(place)


def _place(lake: Lake, stream: StreamName) -> Path:
    return lake.control(stream) / "manifest.json"
