"""The ledger: one JSON line per micro-batch, kept forever, in a folder that any engine reads as a table.

It is a cache of the checkpoint and the Delta log: a run writes the lines that a killed run left out.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidemill.records.batch import BatchRecord, Late
from tidemill.text.names import StreamName


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one stream.

    Attributes:
        folder: Its folder, with one file per run.
        stream: The stream.
    """

    folder: Path
    stream: StreamName

    def append(self, records: Iterable[BatchRecord]) -> None:
        """Append lines to the files of their runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for record in records:
            line = json.dumps(
                {"pipeline": self.stream.pipeline, "stream": self.stream.stream, **asdict(record)}
            )
            with self._file(record.run_id).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def lines(self, run_id: str | None = None) -> Iterator[BatchRecord]:
        """Yield the lines of one run or of all, in no order of runs.

        A last line that a kill cut off is left out: the next run writes it again.
        """
        paths = sorted(self.folder.glob("*.jsonl")) if run_id is None else [self._file(run_id)]
        for path in paths:
            if not path.exists():
                continue
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    yield _record(json.loads(line))
                except ValueError:
                    continue

    def newest_line(self, run_id: str | None) -> BatchRecord | None:
        """Return the line of the newest batch of a run; of the latest run with lines where that one has none."""
        if run_id is None or not self._file(run_id).exists():
            paths = sorted(self.folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
            if not paths:
                return None
            run_id = paths[-1].stem
        return max(self.lines(run_id), key=lambda line: line.batch_id, default=None)

    def lines_of(self, generation: int, batches: Collection[int]) -> list[BatchRecord]:
        """Return the lines of some batches of a generation, oldest batch first.

        The files of the latest runs are read first, up to one that has only batches before these.

        Args:
            generation: The generation.
            batches: The batches.
        """
        wanted, lines = set(batches), []
        missing, oldest = set(wanted), min(wanted, default=0)
        paths = self.folder.glob("*.jsonl")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            if not wanted:
                break
            run = [line for line in self.lines(path.stem) if line.generation == generation]
            lines += [line for line in run if line.batch_id in wanted]
            missing -= {line.batch_id for line in run}
            if not missing and all(line.batch_id < oldest for line in run):
                break
        return sorted(lines, key=lambda line: line.batch_id)

    def missing(self, generation: int, *, after: int, last_commit: int) -> list[int]:
        """Return the committed batches of a generation that have no line.

        Args:
            generation: The generation.
            after: A batch up to which the manifest states that all lines are there.
            last_commit: The last committed batch.
        """
        if last_commit <= after:
            return []
        written = {line.batch_id for line in self.lines() if line.generation == generation}
        return [batch for batch in range(after + 1, last_commit + 1) if batch not in written]

    def _file(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.jsonl"


def _record(fields: dict[str, Any]) -> BatchRecord:
    fields.pop("pipeline", None)
    fields.pop("stream", None)
    late = fields["late"]
    return BatchRecord(**{**fields, "late": None if late is None else Late(**late)})
