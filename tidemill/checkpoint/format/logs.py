"""The folder of a checkpoint and single entries of its logs: `metadata`, `offsets/N`, `commits/N`."""

import re
from collections.abc import Iterable

from tidemill.checkpoint.format.commits import CommitEntry, parse_commit
from tidemill.checkpoint.format.errors import CheckpointFormatError, FileAbsentError, NotACheckpointError
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.logfile import decode, excerpt, parse_object
from tidemill.checkpoint.format.offsets import OffsetEntry, parse_offsets

_QUERY_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def has_checkpoint(checkpoint: Checkpoint) -> bool:
    """Return whether there is anything at the path of a checkpoint."""
    return Folder.at(checkpoint).exists()


def open_checkpoint(checkpoint: Checkpoint) -> Folder:
    """Return the folder of the checkpoint at a path.

    Raises:
        NotACheckpointError: The path does not exist, or has no `metadata`, no `offsets` and no `commits`.
    """
    folder = Folder.at(checkpoint)
    if not folder.exists():
        raise NotACheckpointError(folder.address, "the folder does not exist or is empty")
    if not {"metadata", "offsets", "commits"} & set(folder.names("")):
        raise NotACheckpointError(folder.address, "it contains no metadata, no offsets and no commits")
    return folder


def query_id(folder: Folder) -> str | None:
    """Return the query's id from `metadata`; None if the file does not exist.

    Raises:
        CheckpointFormatError: The file is damaged.
    """
    try:
        data = folder.read("metadata")
    except FileAbsentError:
        return None
    value = parse_object("metadata", decode("metadata", data)).get("id")
    if not isinstance(value, str) or _QUERY_ID.fullmatch(value) is None:
        raise CheckpointFormatError(
            "metadata", f"id is {excerpt(repr(value))}, not a UUID.", code="unparseable-file"
        )
    return value


def batches_in(folder: Folder, log: str) -> list[int]:
    """Return the batches that have a file in `offsets` or `commits`, ascending."""
    return folder.numbers(log)


def newest(batches: Iterable[int]) -> int | None:
    """Return the highest batch; None without any."""
    return max(batches, default=None)


def offset_entry(folder: Folder, batch_id: int) -> OffsetEntry:
    """Return `offsets/<batch_id>`; raises CheckpointFormatError."""
    where = f"offsets/{batch_id}"
    return parse_offsets(batch_id, folder.read(where), where)


def commit_entry(folder: Folder, batch_id: int) -> CommitEntry:
    """Return `commits/<batch_id>`; raises CheckpointFormatError."""
    where = f"commits/{batch_id}"
    return parse_commit(batch_id, folder.read(where), where)


def readable_offset(folder: Folder, batch_id: int) -> OffsetEntry | None:
    """Return `offsets/<batch_id>`; None if the file is missing or damaged."""
    try:
        return offset_entry(folder, batch_id)
    except CheckpointFormatError:
        return None


def readable_commit(folder: Folder, batch_id: int) -> CommitEntry | None:
    """Return `commits/<batch_id>`; None if the file is missing or damaged."""
    try:
        return commit_entry(folder, batch_id)
    except CheckpointFormatError:
        return None


def offset_batches(checkpoint: Checkpoint) -> list[int]:
    """Return the batches whose offsets the checkpoint still has, ascending (Spark keeps the last hundred)."""
    return batches_in(open_checkpoint(checkpoint), "offsets")


def commit_batches(checkpoint: Checkpoint) -> list[int]:
    """Return the batches whose commit the checkpoint still has, ascending."""
    return batches_in(open_checkpoint(checkpoint), "commits")


def read_offset(checkpoint: Checkpoint, batch_id: int) -> OffsetEntry:
    """Return the offsets of one batch; raises CheckpointFormatError (FileAbsentError if the file is missing)."""
    return offset_entry(open_checkpoint(checkpoint), batch_id)


def read_commit(checkpoint: Checkpoint, batch_id: int) -> CommitEntry:
    """Return the commit of one batch; raises CheckpointFormatError (FileAbsentError if the file is missing)."""
    return commit_entry(open_checkpoint(checkpoint), batch_id)
