"""The tail of a checkpoint that may not exist yet."""

from pathlib import Path

from pipelines.streaming.checkpoint import NotACheckpointError, Tail, read_tail


def tail_of(checkpoint: Path) -> Tail:
    """The tail of a checkpoint; an empty one where there is none yet.

    Raises:
        CheckpointFormatError: a file at the tail is damaged.
    """
    try:
        return read_tail(checkpoint)
    except NotACheckpointError:
        return Tail(
            path=str(checkpoint),
            query_id=None,
            latest_offset=None,
            latest_commit=None,
            committed_offsets=None,
            stateful=False,
        )
