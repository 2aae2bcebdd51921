"""Repair: what a killed run left behind, put right before the next start.

Two things need it (measured on Spark 4.2 and Delta 4.4). A batch that the sink has and the checkpoint has
not: Spark would repeat it, Delta would skip it without executing the plan, and the watermark that it
computed would be lost. And a no-data batch that a kill prevented: Spark never makes it up, so windows that
the watermark has closed would stay in state until new data come.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from pipelines.streaming.checkpoint import Tail

COPIES = "repairs"


@dataclass(frozen=True, slots=True)
class Pins:
    """The Delta versions of static readings, and the first batch that uses them.

    They are written down before a batch can use them, so that a repeat of the batch joins the same rows.
    """

    first_batch: int
    versions: dict[str, int]


def read_pins(control: Path) -> Pins | None:
    """The pins of the run before; None where there are none."""
    try:
        content = json.loads((control / "pins.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Pins(first_batch=content["first_batch"], versions=content["versions"])


def write_pins(control: Path, pins: Pins) -> None:
    """Writes the pins of this run down, atomically."""
    temporary = control / f"pins.{os.getpid()}.tmp"
    temporary.write_text(
        json.dumps({"first_batch": pins.first_batch, "versions": pins.versions}), encoding="utf-8"
    )
    temporary.replace(control / "pins.json")


def schedule_no_data_batch(checkpoint: Path, tail: Tail, control: Path) -> int:
    """Writes the offsets entry of the no-data batch that a kill prevented, so that the next start runs it.

    The entry repeats the last offsets under the watermark of the last commit: a batch without rows that
    emits what the watermark has closed. A copy goes to the control folder.

    Returns:
        The batch id.
    """
    if tail.latest_offset is None or tail.latest_commit is None:
        raise ValueError("a checkpoint without a committed batch has no pending no-data batch")
    last = tail.latest_offset.batch_id
    version, metadata, *sources = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").split("\n")
    fields = json.loads(metadata)
    fields["batchWatermarkMs"] = tail.latest_commit.next_watermark_ms
    fields["batchTimestampMs"] = int(time.time() * 1000)
    text = "\n".join([version, json.dumps(fields, separators=(",", ":")), *sources])
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
