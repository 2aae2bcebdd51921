"""The checks of the order of batches: offsets and watermarks only ever go forward."""

from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.findings import Findings
from pipelines.streaming.checkpoint.inspection import Inspection
from pipelines.streaming.checkpoint.offsets import OffsetEntry
from pipelines.streaming.checkpoint.source_offset import DeltaOffset, SourceOffset
from pipelines.streaming.checkpoint.tail import batches_in, readable_commit, readable_offset


def check_tail_order(folder: Folder, seen: Inspection, last: int, found: Findings) -> None:
    """The last offsets against those before them and against the commits.

    A file that was swapped or copied from another batch shows here.
    """
    latest, commit = seen.latest_offset, seen.latest_commit
    before = readable_offset(folder, last - 1) if last else None
    if latest is not None and before is not None:
        for what in _backwards(before, latest):
            found.add(
                "error",
                "offsets-go-back",
                f"offsets/{last}",
                f"{what} The next start reads those records again.",
                "Restore both files from a copy; do not start before.",
            )
    committed = readable_commit(folder, last - 1) if last else None
    if latest is not None and committed is not None and latest.watermark_ms != committed.next_watermark_ms:
        found.add(
            "warning",
            "watermark-mismatch",
            f"commits/{last - 1}",
            f"It leaves a watermark of {committed.next_watermark_ms} ms and offsets/{last} runs under "
            f"{latest.watermark_ms} ms: one of them is another batch's file. Later data moves it on.",
            "Restore both from a copy.",
        )
    if (
        latest is not None
        and commit is not None
        and commit.batch_id == latest.batch_id
        and commit.next_watermark_ms < latest.watermark_ms
    ):
        found.add(
            "error",
            "watermark-goes-back",
            f"commits/{commit.batch_id}",
            f"It lowers the watermark from {latest.watermark_ms} to {commit.next_watermark_ms} ms, which "
            "Spark never does: windows that were given out may be given out again.",
            "Restore it from a copy, or delete it and its sum to repeat the batch.",
        )


def _backwards(before: OffsetEntry, after: OffsetEntry) -> list[str]:
    found = []
    for source in after.sources:
        old = before.source(source.key)
        if old is not None and old.kind == source.kind and (what := _went_back(old, source)):
            found.append(f"Source {source.key} goes back {what}.")
    return found


def _went_back(old: SourceOffset, new: SourceOffset) -> str:
    """From where to where, in words; empty when it did not."""
    if old.kind == "kafka":
        return _partition_went_back(old, new)
    if old.delta and new.delta:
        return _table_went_back(old.delta, new.delta)
    before, after = (old.log_offset, new.log_offset) if old.kind == "file" else (old.rows, new.rows)
    return f"from {before} to {after}" if before is not None and after is not None and after < before else ""


def _partition_went_back(old: SourceOffset, new: SourceOffset) -> str:
    for topic, partitions in new.partitions.items():
        for partition, offset in partitions.items():
            was = old.partitions.get(topic, {}).get(partition, offset)
            if offset < was:
                return f"from {was} to {offset} in partition {partition} of {topic}"
    return ""


def _table_went_back(old: DeltaOffset, new: DeltaOffset) -> str:
    if new.reservoir_id != old.reservoir_id:
        return ""
    if new.version < old.version:
        return f"from version {old.version} to {new.version}"
    if new.version == old.version and new.index < old.index:
        return f"from file {old.index} to file {new.index} of version {new.version}"
    return ""


def check_history(folder: Folder, found: Findings) -> tuple[set[int], set[int]]:
    """Whether all neighbours in the logs fit together; no start reads them any more, so these are warnings.

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
                for what in _backwards(before, entry):
                    found.add("warning", "offsets-go-back", f"offsets/{batch}", what)
        before = entry
    commits = (readable_commit(folder, batch) for batch in batches_in(folder, "commits"))
    return offset_versions, {commit.version for commit in commits if commit is not None}
