"""The check of the main table against the checkpoint: neither may be ahead of the other."""

from pipelines.streaming.checkpoint.inspection import Inspection
from pipelines.streaming.checkpoint.verify.findings import Findings


def check_sink(inspection: Inspection, sink_batch: int, findings: Findings) -> None:
    """Compare the newest batch in the main table with the newest batches of the checkpoint."""
    last, committed = inspection.latest_offset_batch, inspection.latest_committed_batch
    if last is None or sink_batch > last:
        findings.add(
            "error",
            "sink-ahead",
            "offsets",
            f"The table has batch {sink_batch} of this query, and the checkpoint "
            + ("has planned none" if last is None else f"ends at batch {last}")
            + f": the table would skip every batch up to {sink_batch} as already written, and their rows would be "
            "lost.",
            "Restore the checkpoint that belongs to the table, or start over with a new checkpoint, which has its "
            "own query id.",
        )
    elif committed is None or sink_batch > committed:
        findings.add(
            "warning",
            "sink-has-uncommitted-batch",
            f"offsets/{last}",
            f"The table has batch {sink_batch}, which is not committed. Plain Spark skips its write and with it "
            "its plan, so the watermark does not move as it should.",
            "Run the stream: tidemill run executes such a batch without writing.",
        )
    elif sink_batch < committed:
        findings.add(
            "warning",
            "sink-behind",
            f"commits/{committed}",
            f"Batch {committed} is committed, and the newest batch in the table is {sink_batch}. This is correct "
            "if the batches between wrote nothing, and a loss if the table was replaced by an older one.",
            "Compare the table's history with the checkpoint's.",
        )
