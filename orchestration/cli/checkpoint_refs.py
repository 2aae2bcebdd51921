"""Which checkpoints `PATH|SELECTION` means, and what is known of them beside their own files."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.cli.output import print_note
from orchestration.cli.target_flags import TargetFlags, selected
from pipelines.streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.streaming.records import BatchRecord
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A checkpoint that a command means.

    Attributes:
        path: Its folder.
        target: The target in which a selection found it; None when it was named by its folder.
        stream: The stream it belongs to; None likewise.
        generation: That stream's active generation; None likewise.
    """

    path: str
    target: "ResolvedTarget | None" = None
    stream: "Stream | None" = None
    generation: int | None = None

    @property
    def identity(self) -> dict[str, str | None]:
        """Whose checkpoint it is, for `--json`."""
        return {
            "target": None if self.target is None else self.target.name,
            "stream": None if self.stream is None else str(self.stream.name),
        }

    @property
    def sink_batch(self) -> int | None:
        """The newest batch of this query in the stream's table; None where no table says."""
        if self.target is None or self.stream is None:
            return None
        from pipelines.streaming.checkpoint import CheckpointFormatError, read_tail
        from pipelines.streaming.records import StreamRecords

        try:
            query_id = read_tail(self.path).query_id
        except CheckpointFormatError:
            return None
        table = StreamRecords(self.target.lake, self.stream.name).sink_table(query_id)
        return None if table is None else table.newest_batch

    def ledger(self) -> "Mapping[int, BatchRecord]":
        """The ledger's line of each batch of this generation."""
        if self.target is None or self.stream is None:
            return {}
        from pipelines.streaming.records import StreamRecords

        return {
            line.batch_id: line
            for line in StreamRecords(self.target.lake, self.stream.name).ledger.lines()
            if line.generation == self.generation
        }


def subjects(which: str, flags: TargetFlags) -> list[CheckpointRef]:
    """The checkpoints that an argument means: a folder that is there, else those of a selection.

    Selected streams that have none yet are named on stderr and left out.

    Raises:
        ConfigurationError: there is no such checkpoint.
    """
    from pipelines.streaming.checkpoint import NotACheckpointError
    from pipelines.streaming.checkpoint.tail import opened

    path = which.removeprefix("file://") if which.startswith("file:///") else which.removeprefix("file:")
    # A selection has one slash at the most.
    is_path = which.startswith(("/", ".", "~", "file:")) or which.count("/") > 1
    is_path = is_path or Path(path).expanduser().exists()
    found = [CheckpointRef(which)] if is_path else _selected(which, flags)
    for subject in found:
        try:
            opened(subject.path)
        except NotACheckpointError as error:
            fix, stream = error.fix, subject.stream
            if stream is not None:
                fix = f"`tidemill status {stream.name}` says what fixes it."
            raise ConfigurationError(
                error.what, stream=stream and stream.name, lost=error.lost, fix=fix
            ) from None
    return found


def one_subject(which: str, flags: TargetFlags) -> CheckpointRef:
    """The one checkpoint that an argument means.

    Raises:
        ConfigurationError: it means none, or several.
    """
    found = subjects(which, flags)
    if len(found) > 1:
        streams = ", ".join(str(subject.stream.name) for subject in found if subject.stream)
        raise ConfigurationError(f"{which} means {len(found)} checkpoints ({streams}).", fix="Name one.")
    return found[0]


def _selected(which: str, flags: TargetFlags) -> list[CheckpointRef]:
    """The active checkpoints of the selected streams."""
    from pipelines.streaming.records import StreamRecords

    resolved = flags.resolve()
    found, absent = [], []
    for stream in selected(resolved, [which]):
        records = StreamRecords(resolved.lake, stream.name)
        manifest = records.manifest()
        number = 1 if manifest is None else manifest.active.number
        folder = records.checkpoint(number)
        # A run that ended before its first query began leaves a manifest and no checkpoint.
        if manifest is None or (manifest.active.query_id is None and not folder.exists()):
            absent.append(str(stream.name))
        else:
            found.append(CheckpointRef(str(folder), resolved, stream, number))
    if absent:
        said = f"{', '.join(absent)}: no checkpoint yet in {resolved.lake.root}, as no query has run there."
        if not found:
            raise ConfigurationError(said, fix=f"Run it: tidemill run {shlex.quote(which)}{flags}")
        print_note(said)
    return found
