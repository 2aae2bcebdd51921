"""The checkpoints that `PATH|SELECTION` selects, and what the lake knows about them."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.cli.shared.output import print_note
from tidemill.cli.shared.target_flags import TargetFlags, selected
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.checkpoint.format.folder import Checkpoint
    from tidemill.checkpoint.positions import Recognizer
    from tidemill.definitions.stream import Stream
    from tidemill.records.batch import BatchRecord
    from tidemill.target.resolve import ResolvedTarget


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A checkpoint that a command line selects.

    Attributes:
        checkpoint: Its store, or its path if the command line names a folder.
        target: The target of the selection; None if the command line names a folder.
        stream: Its stream; None if the command line names a folder.
        generation: The stream's active generation; None if the command line names a folder.
    """

    checkpoint: "Checkpoint"
    target: "ResolvedTarget | None" = None
    stream: "Stream | None" = None
    generation: int | None = None

    @property
    def identity(self) -> dict[str, str | None]:
        """The target and the stream, for `--json`."""
        return {
            "target": None if self.target is None else self.target.name,
            "stream": None if self.stream is None else str(self.stream.name),
        }

    @property
    def recognize(self) -> "Recognizer":
        """What returns the position in an offset: the kinds that the lake records, or else whichever knows it."""
        from tidemill.connectors.registry import recognizer
        from tidemill.records.stream_records import StreamRecords

        if self.target is None or self.stream is None:
            return recognizer({})
        manifest = StreamRecords(self.target.lake, self.stream.name).manifest()
        return recognizer({} if manifest is None else manifest.active.sources)

    @property
    def sink_batch(self) -> int | None:
        """The newest batch of this query in the stream's table, -1 if it has none; None if unknown."""
        if self.target is None or self.stream is None or self.generation is None:
            return None
        from tidemill.checkpoint import CheckpointFormatError, read_tail
        from tidemill.records.stream_records import StreamRecords

        try:
            tail = read_tail(self.checkpoint)
        except CheckpointFormatError:
            return None
        records = StreamRecords(self.target.lake, self.stream.name)
        table = records.sink_table(tail.query_id)
        return None if table is None else records.newest_batch(table, tail, self.generation)

    def ledger(self) -> "Mapping[int, BatchRecord]":
        """Return the ledger's line for each batch of this generation."""
        if self.target is None or self.stream is None:
            return {}
        from tidemill.records.stream_records import StreamRecords

        return {
            line.batch_id: line
            for line in StreamRecords(self.target.lake, self.stream.name).ledger.lines()
            if line.generation == self.generation
        }


def checkpoint_refs(which: str, flags: TargetFlags) -> list[CheckpointRef]:
    """Return the checkpoints that an argument selects: an existing folder, else those of a selection.

    Selected streams without a checkpoint are named on stderr and left out.

    Raises:
        ConfigurationError: There is no such checkpoint.
    """
    from tidemill.checkpoint import NotACheckpointError
    from tidemill.checkpoint.format.logs import open_checkpoint

    path = which.removeprefix("file://") if which.startswith("file:///") else which.removeprefix("file:")
    # A selection has at most one slash.
    is_path = which.startswith(("/", ".", "~", "file:")) or which.count("/") > 1
    is_path = is_path or Path(path).expanduser().exists()
    refs = [CheckpointRef(which)] if is_path else _selected(which, flags)
    for ref in refs:
        try:
            open_checkpoint(ref.checkpoint)
        except NotACheckpointError as error:
            fix, stream = error.fix, ref.stream
            if stream is not None:
                fix = f"Run `tidemill status {stream.name}`, which shows how to fix it."
            raise ConfigurationError(
                error.what, stream=stream and stream.name, lost=error.lost, fix=fix, code=error.code
            ) from None
    return refs


def one_checkpoint_ref(which: str, flags: TargetFlags) -> CheckpointRef:
    """Return the one checkpoint that an argument selects.

    Raises:
        ConfigurationError: The argument selects none, or several.
    """
    refs = checkpoint_refs(which, flags)
    if len(refs) > 1:
        streams = ", ".join(str(ref.stream.name) for ref in refs if ref.stream)
        raise ConfigurationError(
            f"{which} selects {len(refs)} checkpoints ({streams}).",
            fix="name one stream.",
            code="selection-ambiguous",
        )
    return refs[0]


def _selected(which: str, flags: TargetFlags) -> list[CheckpointRef]:
    """Return the active checkpoints of the selected streams."""
    from tidemill.checkpoint import has_checkpoint
    from tidemill.records.stream_records import StreamRecords

    resolved = flags.resolve()
    refs, absent = [], []
    for stream in selected(resolved, [which]):
        records = StreamRecords(resolved.lake, stream.name)
        manifest = records.manifest()
        number = 1 if manifest is None else manifest.active.number
        checkpoint = records.checkpoint(number)
        # A run that ended before its first query leaves a manifest and no checkpoint.
        if manifest is None or (manifest.active.query_id is None and not has_checkpoint(checkpoint)):
            absent.append(str(stream.name))
        else:
            refs.append(CheckpointRef(checkpoint, resolved, stream, number))
    if absent:
        message = f"{', '.join(absent)}: no checkpoint yet in {resolved.lake.uri}, because no query has run."
        if not refs:
            raise ConfigurationError(
                message, fix=f"tidemill run {shlex.quote(which)}{flags}", code="stream-never-run"
            )
        print_note(message)
    return refs
