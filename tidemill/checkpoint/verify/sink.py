"""The check of the main table against the checkpoint: neither may be ahead of the other."""

from tidemill.checkpoint.inspection import Inspection
from tidemill.checkpoint.verify.findings import Findings
from tidemill.checkpoint.verify.logs import START_OVER


def check_sink(inspection: Inspection, sink_batch: int, findings: Findings) -> None:
    """Compare the newest batch in the main table, -1 for none, with the newest batches of the checkpoint."""
    last, committed = (
        -1 if batch is None else batch
        for batch in (inspection.latest_offset_batch, inspection.latest_committed_batch)
    )
    if sink_batch > last:
        findings.add(
            "error",
            "sink-ahead",
            "offsets",
            f"The table has batch {sink_batch} of this query, and the checkpoint "
            + ("has planned none" if last < 0 else f"ends at batch {last}")
            + f": the table would skip every batch up to {sink_batch} as already written, and their rows would be "
            "lost.",
            f"Restore the checkpoint that belongs to the table; without one, {START_OVER}.",
        )
    elif sink_batch > committed:
        findings.add(
            "warning",
            "sink-has-uncommitted-batch",
            f"offsets/{last}",
            f"The table has batch {sink_batch}, which is not committed. Plain Spark skips its write and with it "
            "its plan, so the watermark does not move as it should.",
            "Run the stream: tidemill run executes such a batch without writing.",
        )
    elif sink_batch < committed:
        first = sink_batch + 1
        missing = f"batch {committed}" if first == committed else f"batches {first} to {committed}"
        findings.add(
            "error",
            "sink-behind",
            f"commits/{committed}",
            f"Batch {committed} is committed, and "
            + (
                f"the newest batch in the table is {sink_batch}"
                if first
                else "the table has none of its batches"
            )
            + ": the table is older than its checkpoint, as after a restore from a backup. The next start continues "
            f"after batch {committed}, and the rows of {missing} stay missing.",
            "Restore the table and the checkpoint of the same time, together with the stream's further tables; "
            f"without them, {START_OVER}.",
        )
