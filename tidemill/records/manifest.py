"""The manifest of a stream: its generations, why each began, and the sources that each has had."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import CheckpointError, TerminalError, TidemillError
from tidemill.records.newest_events import NewestEvents, newest_events_from_json
from tidemill.storage.store import Store
from tidemill.text.durations import now_iso
from tidemill.text.names import StreamName


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulOperator:
    """A stateful operator of a query, as data that is the same in every process.

    Attributes:
        kind: What it is: `aggregate`, `session window`, `deduplicate`, `stream-stream join`, ...
        properties: What decides the meaning of its state, by name, in terms of the columns of the sources.
    """

    kind: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """A change of operators that a person has accepted.

    Attributes:
        accepted_at: ISO-8601 UTC.
        last_batch: The last batch of the operators before.
        differences: What has changed, a clause each.
        before: The operators before; None where they were not known.
    """

    accepted_at: str
    last_batch: int
    differences: tuple[str, ...]
    before: tuple[StatefulOperator, ...] | None = None


def operators_from_json(content: Sequence[Mapping[str, Any]] | None) -> tuple[StatefulOperator, ...] | None:
    """Return operators that were written as JSON; None where none were recorded."""
    return None if content is None else tuple(StatefulOperator(**operator) for operator in content)


def accepted_from_json(content: Mapping[str, Any]) -> AcceptedChange:
    """Return an accepted change that was written as JSON."""
    return AcceptedChange(
        accepted_at=content["accepted_at"],
        last_batch=content["last_batch"],
        differences=tuple(content["differences"]),
        before=operators_from_json(content["before"]),
    )


_KEY = "manifest.json"
SCHEMA_VERSION = 2
_OLDEST_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One life of a checkpoint.

    Attributes:
        number: Its number, from 1; also its folder.
        began_at: ISO-8601 UTC.
        why: The reason, in a few words.
        sources: Every source that it has ever had, by name.
        query_id: Spark's query id, once the checkpoint has one.
        fingerprint: The fingerprint of the plan that ran last.
        confs: The confs that the checkpoint pins, as they were at its first start.
        spark_version: The version that ran last.
        sinks: What each sink's table was written as, by sink name (`Sink.identity`).
        external_sinks: Where each sink that is no table wrote, likewise; None before the first run, and where an older
            Tidemill wrote the manifest: what is declared then is not new.
        sinks_begin: The first batch of each sink that was accepted after the first runs, by sink name.
        operators: The stateful operators of the plan that the state belongs to; None where an older Tidemill wrote
            the manifest, and where the plan could not be read.
        accepted_changes: The changes of operators that a person has accepted, oldest first.
        output_mode: The output mode of the plan that ran last; None where an older Tidemill wrote the manifest.
        table_id: The id of the main table, which shows when it was replaced by another one.
        ledger_batch: The last batch that has its line in the ledger; -1 before the first.
        watermarks: The sources whose watermarks make up that of the plan that ran last, by name; None where the
            function has watermarks of its own, and where an older Tidemill wrote the manifest.
        newest_events: The newest event of each source up to that batch.
        warnings: The warnings about the plan that ran last.
        continues: The generation whose batches and offsets it continues, as after a rewind; None where it began again.
        first_batch: The first batch of its own: those before it are of the generations that it continues.
    """

    number: int
    began_at: str = field(default_factory=now_iso)
    why: str
    sources: Mapping[str, SourceRecord] = field(default_factory=dict)
    query_id: str | None = None
    fingerprint: str | None = None
    confs: Mapping[str, str] = field(default_factory=dict)
    spark_version: str | None = None
    sinks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    external_sinks: Mapping[str, Mapping[str, object]] | None = None
    sinks_begin: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[StatefulOperator, ...] | None = None
    accepted_changes: tuple[AcceptedChange, ...] = ()
    output_mode: str | None = None
    table_id: str | None = None
    ledger_batch: int = -1
    watermarks: tuple[str, ...] | None = None
    newest_events: NewestEvents = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    continues: int | None = None
    first_batch: int = 0

    def at(self, batch: int) -> "Generation":
        """Return the generation with the operators that the state after one of its batches belongs to."""
        later = [change for change in self.accepted_changes if change.last_batch >= batch]
        if not later:
            return self
        earlier = tuple(change for change in self.accepted_changes if change.last_batch < batch)
        return replace(self, operators=later[0].before, accepted_changes=earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The last run of a stream that had something to do.

    Attributes:
        ended_at: Its end, ISO-8601 UTC.
        outcome: `updated`, `idle` or `failed`.
        error: The error of a failed run, for people.
        transient: Whether a retry can help.
        position: What the failure depends on (`run/decide/waiting.py`); None for other outcomes.
        rule: The expectation that stopped a failed run; None where none did.
        failures: How many runs in a row have failed.
    """

    run_id: str
    ended_at: str
    outcome: str
    error: str | None = None
    transient: bool = False
    position: str | None = None
    rule: str | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the control folder records about a stream.

    Attributes:
        generations: Oldest first; the last one is active.
        last_run: The last run that had something to do; None before the first has ended.
    """

    generations: tuple[Generation, ...]
    last_run: LastRun | None = None

    @property
    def active(self) -> Generation:
        """The generation whose checkpoint runs use."""
        return self.generations[-1]

    def with_active(self, **changes: object) -> "Manifest":
        """Return the manifest with fields of its active generation changed."""
        changed = replace(self.active, **changes)  # type: ignore[arg-type]
        return replace(self, generations=(*self.generations[:-1], changed))

    def with_generation(self, generation: Generation) -> "Manifest":
        """Return the manifest with another active generation; what its predecessor failed at does not hold for it."""
        return Manifest(generations=(*self.generations, generation))

    def with_success(self, run_id: str, outcome: str) -> "Manifest":
        """Return the manifest after a run that did not fail."""
        return replace(self, last_run=LastRun(run_id=run_id, ended_at=now_iso(), outcome=outcome))

    def with_failure(self, run_id: str, error: TidemillError, position: str) -> "Manifest":
        """Return the manifest after a run that failed.

        Args:
            error: Its failure.
            position: What the failure depends on.
        """
        failures = 0 if self.last_run is None else self.last_run.failures
        last_run = LastRun(
            run_id=run_id,
            ended_at=now_iso(),
            outcome="failed",
            error=str(error),
            transient=error.transient,
            position=position,
            rule=error.rule,
            failures=failures + 1,
        )
        return replace(self, last_run=last_run)


def first_manifest(sources: Mapping[str, SourceRecord]) -> Manifest:
    """Return the manifest of a stream that has never run."""
    return Manifest(generations=(Generation(number=1, why="first run", sources=sources),))


def read_manifest(files: Store, stream: StreamName) -> Manifest | None:
    """Return the manifest of a stream; None when the stream has never run.

    Raises:
        CheckpointError: The file cannot be parsed.
        TerminalError: A newer Tidemill wrote it.
    """
    path = files.uri(_KEY)
    try:
        content = json.loads(files.read(_KEY))
        version = content["schema_version"]
        if version not in range(_OLDEST_VERSION, SCHEMA_VERSION + 1):
            raise TerminalError(
                f"its manifest {path} has schema version {version!r}, and this Tidemill reads versions "
                f"{_OLDEST_VERSION} to {SCHEMA_VERSION}.",
                stream=stream,
                fix="use the Tidemill version that wrote it, or a newer one.",
                code="manifest-version-unknown",
            )
        return Manifest(
            generations=tuple(map(_generation, content["generations"])),
            last_run=LastRun(**last_run) if (last_run := content.get("last_run")) else None,
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"its manifest {path} cannot be read: {error}.",
            stream=stream,
            fix="restore the file from a backup.",
            code="records-not-readable",
        ) from error


def write_manifest(files: Store, manifest: Manifest) -> None:
    """Replace the manifest atomically."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    files.replace(_KEY, json.dumps(content, indent=2).encode())


def _generation(fields: dict[str, Any]) -> Generation:
    # Version 1 had the bindings of feeds as text. They cannot be compared; the next run binds the feeds.
    sources = {name: {} for name in fields.pop("bindings", {})} | fields.pop("sources", {})
    warnings = tuple(fields.pop("warnings", ()))
    operators, accepted = fields.pop("operators", None), fields.pop("accepted_changes", ())
    watermarks, newest_events = fields.pop("watermarks", None), fields.pop("newest_events", {})
    return Generation(
        **fields,
        warnings=warnings,
        sources={name: _source(record) for name, record in sources.items()},
        operators=operators_from_json(operators),
        accepted_changes=tuple(map(accepted_from_json, accepted)),
        watermarks=None if watermarks is None else tuple(watermarks),
        newest_events=newest_events_from_json(newest_events),
    )


def _source(fields: dict[str, Any]) -> SourceRecord:
    accepted = tuple(fields.pop("accepted_versions", ()))
    return SourceRecord(**fields, accepted_versions=accepted)
