"""The ledger: one JSON line per micro-batch, kept forever, in a folder that any engine reads as a table.

It is a cache of the checkpoint and the Delta log: a run writes the lines that a killed run left out.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tidemill.records.batch import BatchRecord, Late
from tidemill.storage.store import Store
from tidemill.text.names import StreamName

_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one stream.

    Attributes:
        files: Its files, one per run.
    """

    files: Store
    stream: StreamName

    def append(self, records: Iterable[BatchRecord]) -> None:
        """Add lines to the files of their runs, each of which is replaced as a whole."""
        by_run: dict[str, list[str]] = {}
        for record in records:
            fields = {"pipeline": self.stream.pipeline, "stream": self.stream.stream, **asdict(record)}
            by_run.setdefault(record.run_id, []).append(json.dumps(fields))
        for run_id, lines in by_run.items():
            before = self._read(run_id).decode().splitlines()
            self.files.replace(_key(run_id), "".join(f"{line}\n" for line in (*before, *lines)).encode())

    def copy_from(self, other: "Ledger") -> None:
        """Copy the files of another ledger, oldest first."""
        for run_id in other.runs():
            self.files.replace(_key(run_id), other.files.read(_key(run_id)))

    def runs(self) -> dict[str, float]:
        """Return when the file of each run was last written, seconds since the epoch, oldest first."""
        entries = sorted(self.files.list(), key=lambda entry: entry.modified)
        return {
            entry.name.removesuffix(_SUFFIX): entry.modified
            for entry in entries
            if entry.name.endswith(_SUFFIX)
        }

    def lines(self, run_id: str | None = None) -> Iterator[BatchRecord]:
        """Yield the lines of one run or of all, in no order of runs.

        A line that a power failure has cut off is left out: the next run writes it again.
        """
        for run in sorted(self.runs()) if run_id is None else (run_id,):
            for line in self._read(run).decode().splitlines():
                try:
                    yield _record(json.loads(line))
                except ValueError:
                    continue

    def newest_line(self, run_id: str | None) -> BatchRecord | None:
        """Return the line of the newest batch of a run; of the latest run with lines where that one has none."""
        lines = [] if run_id is None else list(self.lines(run_id))
        if not lines and (runs := self.runs()):
            latest = max(runs.values())
            # Object stores have times of whole seconds.
            lines = [line for run, at in runs.items() if latest - at <= 1 for line in self.lines(run)]
        return max(lines, key=lambda line: (line.started_at, line.batch_id), default=None)

    def lines_of(self, generation: int, batches: Collection[int]) -> list[BatchRecord]:
        """Return the lines of some batches of a generation, oldest batch first.

        The files of the latest runs are read first, up to one that has only batches before these.
        """
        wanted, lines = set(batches), []
        missing, oldest = set(wanted), min(wanted, default=0)
        for run_id in reversed(self.runs()) if wanted else ():
            run = [line for line in self.lines(run_id) if line.generation == generation]
            lines += [line for line in run if line.batch_id in wanted]
            missing -= {line.batch_id for line in run}
            if not missing and all(line.batch_id < oldest for line in run):
                break
        return sorted(lines, key=lambda line: line.batch_id)

    def missing(self, generation: int, *, after: int, last_commit: int) -> list[int]:
        """Return the committed batches of a generation that have no line.

        Args:
            after: A batch up to which the manifest states that all lines are there.
            last_commit: The last committed batch.
        """
        if last_commit <= after:
            return []
        written = {line.batch_id for line in self.lines() if line.generation == generation}
        return [batch for batch in range(after + 1, last_commit + 1) if batch not in written]

    def _read(self, run_id: str) -> bytes:
        try:
            return self.files.read(_key(run_id))
        except FileNotFoundError:
            return b""


def _key(run_id: str) -> str:
    return run_id + _SUFFIX


def _record(fields: dict[str, Any]) -> BatchRecord:
    fields.pop("pipeline", None)
    fields.pop("stream", None)
    late = fields["late"]
    return BatchRecord(**{**fields, "late": None if late is None else Late(**late)})
