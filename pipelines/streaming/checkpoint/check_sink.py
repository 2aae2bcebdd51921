"""The check of the sink against the checkpoint: who is ahead of whom?"""

from pipelines.streaming.checkpoint.findings import Findings
from pipelines.streaming.checkpoint.inspection import Inspection


def check_sink(seen: Inspection, sink_batch: int, found: Findings) -> None:
    """The newest batch that the sink has against the newest ones that the checkpoint has."""
    last, committed = seen.latest_offset_batch, seen.latest_committed_batch
    if last is None or sink_batch > last:
        found.add(
            "error",
            "sink-ahead",
            "offsets",
            f"The sink has batch {sink_batch} of this query and the checkpoint "
            + ("has planned none" if last is None else f"ends at batch {last}")
            + f": everything up to batch {sink_batch} would be skipped as already written.",
            "Restore the checkpoint that belongs to the table, or start over with a new checkpoint: it has a "
            "query id of its own.",
        )
    elif committed is None or sink_batch > committed:
        found.add(
            "warning",
            "sink-has-uncommitted-batch",
            f"offsets/{last}",
            f"The sink has batch {sink_batch}, which is not committed. A plain start skips its write, and "
            "with it the plan: the watermark that the batch would have moved stays behind.",
            "tidemill run executes such a batch without writing.",
        )
    elif sink_batch < committed:
        found.add(
            "warning",
            "sink-behind",
            f"commits/{committed}",
            f"Batch {committed} is committed and the newest in the sink is {sink_batch}. That is right when "
            "the batches between wrote nothing, and a loss when the table was replaced by an older one.",
            "Compare the table's history with the checkpoint's.",
        )
