"""Recorder: the bookkeeping of one run of one stream, once per batch: ledger lines and the manifest."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.checkpoint import read_tail_or_empty
from tidemill.records.batch import BatchRecord
from tidemill.records.lease import Lease
from tidemill.records.ledger_line import BatchOrigin, batch_record
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.newest_events import with_batches
from tidemill.records.stream_records import Snapshot
from tidemill.run.pause_points import pause_point

# As many as Spark keeps offsets: the check `exactly_once` compares the ledger with them.
_KEPT_COUNTS = 100


class Recorder:
    """Writes what a run does to a stream.

    Args:
        snapshot: The stream's records when the run began.
        manifest: The manifest to continue.
        lease: The held lease, checked before each write.
        newest_events: Returns the newest event time of each source in a batch whose run was killed before it was
            recorded, as far as it is known without Spark.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        manifest: Manifest,
        *,
        run_id: str,
        lease: Lease,
        newest_events: Callable[[int], Mapping[str, int]],
    ) -> None:
        self._records = snapshot.records
        self._checkpoint = snapshot.checkpoint
        self._manifest = manifest
        self._run_id = run_id
        self._lease = lease
        self._newest_events = newest_events
        self._progress: dict[int, Mapping[str, Any]] = {}

    @property
    def manifest(self) -> Manifest:
        """The manifest as it is now."""
        return self._manifest

    @property
    def generation(self) -> Generation:
        """The active generation as the manifest has it."""
        return self._manifest.active

    def update(self, **fields: object) -> None:
        """Change fields of the active generation, and write the manifest where one has changed."""
        changed = self._manifest.with_active(**fields)
        if changed != self._manifest or self._records.manifest() is None:
            self._lease.check()
            self._manifest = changed
            self._records.write_manifest(changed)

    def take(self, progress: Iterable[Mapping[str, Any]]) -> list[BatchRecord]:
        """Record batches that have ended, and return their lines.

        Args:
            progress: Spark's progress of batches that are new.
        """
        self._progress |= {entry["batchId"]: entry for entry in progress}
        pause_point("before-ledger", self._records.stream)
        return self.complete()

    def complete(self, newest_events: Callable[[int], Mapping[str, int]] | None = None) -> list[BatchRecord]:
        """Write the lines of all committed batches that have none yet, and return them.

        Args:
            newest_events: Returns the newest event times, where there is a Spark that can read them again.
        """
        tail = read_tail_or_empty(self._checkpoint)
        if tail.latest_commit is None or tail.query_id is None:
            return []
        last, done = tail.latest_commit.batch_id, self.generation.ledger_batch
        if last <= done:
            return []
        missing = [batch for batch in range(done + 1, last + 1) if batch in self._progress]
        if (
            len(missing) < last - done
        ):  # some were committed by a run that was killed, or by an earlier attempt
            missing = self._records.ledger.missing(self.generation.number, after=done, last_commit=last)
        self._lease.check()
        lines = self._lines(tail.query_id, missing, newest_events or self._newest_events)
        self._records.ledger.append(lines)
        self.update(
            ledger_batch=last,
            query_id=tail.query_id,
            newest_events=with_batches(self.generation.newest_events, lines),
        )
        self._records.remove_counts(self.generation.number, last=last - _KEPT_COUNTS)
        return lines

    def finish(self, outcome: str) -> None:
        """Record the outcome of a run that did not fail in the manifest."""
        self._manifest = self._manifest.with_success(self._run_id, outcome)
        self._records.write_manifest(self._manifest)

    def batches(self, *, first: int) -> tuple[BatchRecord, ...]:
        """Return the run's batches from a batch id on, oldest first, those of earlier attempts included."""
        lines = (
            line
            for line in self._records.ledger.lines(self._run_id)
            if line.generation == self.generation.number and line.batch_id >= first
        )
        return tuple(sorted(lines, key=lambda line: line.batch_id))

    def _lines(
        self, query_id: str, batches: list[int], newest_events: Callable[[int], Mapping[str, int]]
    ) -> list[BatchRecord]:
        if not batches:
            return []
        origin = BatchOrigin(run_id=self._run_id, generation=self.generation.number, query_id=query_id)
        commits = self._records.table().log.commits_of_batches(query_id, batches[0])
        lines = (
            batch_record(
                origin,
                self._checkpoint,
                batch,
                commit=commits.get(batch),
                progress=self._progress.get(batch),
                counts=self._records.counts(origin.generation, batch, query_id),
            )
            for batch in batches
        )
        return [
            replace(line, newest_event_ms_by_source=newest_events(line.batch_id))
            if line.reconstructed
            else line
            for line in lines
            if line is not None
        ]
