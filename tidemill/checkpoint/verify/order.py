"""The checks of the order of batches: offsets and watermarks never go back."""

from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logs import batches_in, readable_commit, readable_offset
from tidemill.checkpoint.format.offsets import OffsetEntry
from tidemill.checkpoint.inspection import Inspection
from tidemill.checkpoint.positions import Recognizer
from tidemill.checkpoint.verify.findings import Findings


def check_tail_order(folder: Folder, inspection: Inspection, last: int, findings: Findings) -> None:
    """Check the last offsets against the previous ones and against the commits.

    These checks detect a file that was swapped with, or copied from, that of another batch.
    """
    latest, commit = inspection.latest_offset, inspection.latest_commit
    before = readable_offset(folder, last - 1) if last else None
    if latest is not None and before is not None:
        for what in _backwards(before, latest, inspection.recognize):
            findings.add(
                "error",
                "offsets-go-back",
                f"offsets/{last}",
                f"{what} The next start reads those records again.",
                "Restore both files from a copy before the next start.",
            )
    committed = readable_commit(folder, last - 1) if last else None
    if (
        latest is not None
        and committed is not None
        and committed.next_watermark_ms is not None
        and committed.next_watermark_ms != latest.watermark_ms
    ):
        findings.add(
            "warning",
            "watermark-mismatch",
            f"commits/{last - 1}",
            f"It leaves a watermark of {committed.next_watermark_ms} ms, and offsets/{last} has one of "
            f"{latest.watermark_ms} ms: one of the files belongs to another batch. Later data moves the watermark "
            "on.",
            "Restore both files from a copy.",
        )
    if (
        latest is not None
        and commit is not None
        and commit.batch_id == latest.batch_id
        and commit.next_watermark_ms is not None
        and commit.next_watermark_ms < latest.watermark_ms
    ):
        findings.add(
            "error",
            "watermark-goes-back",
            f"commits/{commit.batch_id}",
            f"It lowers the watermark from {latest.watermark_ms} to {commit.next_watermark_ms} ms, which "
            "Spark never does: windows that were emitted may be emitted again.",
            "Restore it from a copy, or delete it and its checksum file to repeat the batch over the same range.",
        )


def _backwards(before: OffsetEntry, after: OffsetEntry, recognize: Recognizer) -> list[str]:
    messages = []
    for source in after.sources:
        old = before.source(source.key)
        if old is not None and (how_far := recognize(source).went_back(recognize(old))):
            messages.append(f"Source {source.key} goes back {how_far}.")
    return messages


def check_history(folder: Folder, recognize: Recognizer, findings: Findings) -> tuple[set[int], set[int]]:
    """Check that all neighbors in the logs are in order; warnings only, because no start reads them.

    Returns:
        The format versions of the offset and the commit files.
    """
    batches = batches_in(folder, "offsets")
    offset_versions: set[int] = set()
    before: OffsetEntry | None = None
    for batch in batches:
        entry = readable_offset(folder, batch)
        if entry is not None:
            offset_versions.add(entry.version)
            if before is not None and before.batch_id == batch - 1 and batch != batches[-1]:
                for what in _backwards(before, entry, recognize):
                    findings.add("warning", "offsets-go-back", f"offsets/{batch}", what)
        before = entry
    commits = (readable_commit(folder, batch) for batch in batches_in(folder, "commits"))
    return offset_versions, {commit.version for commit in commits if commit is not None}
