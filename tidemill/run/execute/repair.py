"""Repair: the state that a killed run left behind, put right before the next start.

Two states need it (measured on Spark 4.2 and Delta 4.4). A batch that the sink has and the checkpoint has not:
Spark would repeat it, Delta would skip it without executing the plan, and the watermark that it computed would be
lost. And a no-data batch that a kill prevented: Spark never runs it later, so windows that the watermark has
closed would stay in state until new data arrives.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from tidemill.checkpoint import Tail
from tidemill.records.edits import COPIES


def schedule_batch(
    checkpoint: Path,
    tail: Tail,
    control: Path,
    ends: Mapping[str, str] | None = None,
    *,
    watermark_ms: int | None = None,
) -> int:
    """Write the offsets entry of the next batch, so that the next start runs exactly this batch.

    The entry repeats the last offsets under the watermark of the last commit. By itself that is the no-data batch
    that a kill prevented: without rows, it emits what the watermark has closed. A copy goes to the control folder.

    Args:
        checkpoint: The checkpoint.
        tail: Its end.
        control: The folder of the control files.
        ends: Where the batch ends in sources that it reads, by source name, as JSON.
        watermark_ms: Its watermark, milliseconds since the epoch; None for that of the last commit.

    Returns:
        The batch id.

    Raises:
        ValueError: The checkpoint has no committed batch.
    """
    if tail.latest_offset is None or tail.latest_commit is None:
        raise ValueError("a checkpoint without a committed batch has no next batch")
    last = tail.latest_offset.batch_id
    version, metadata, *sources = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").split("\n")
    fields = json.loads(metadata)
    if watermark_ms is None:
        watermark_ms = max(tail.latest_offset.watermark_ms, tail.latest_commit.next_watermark_ms or 0)
    fields["batchWatermarkMs"] = watermark_ms
    fields["batchTimestampMs"] = int(time.time() * 1000)
    named = {line.partition(":")[0]: line for line in sources}
    named |= {name: f"{name}:{offset}" for name, offset in (ends or {}).items()}
    text = "\n".join([version, json.dumps(fields, separators=(",", ":")), *named.values()])
    copies = control / COPIES
    copies.mkdir(parents=True, exist_ok=True)
    (copies / f"{checkpoint.name}-offsets-{last + 1}").write_text(text, encoding="utf-8")
    temporary = checkpoint / "offsets" / f".{last + 1}.tidemill.tmp"
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, checkpoint / "offsets" / str(last + 1))  # fails where the entry exists
    finally:
        temporary.unlink()
    return last + 1
