"""The verification of a checkpoint: all checks in their order.

`quick` checks what a start needs: the tail of the logs, and the ends of the files that sources and state are
read from. `full` reads every file.
"""

from dataclasses import dataclass

from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.hadoop_checksum import sidecar
from tidemill.checkpoint.format.logs import open_checkpoint, readable_offset
from tidemill.checkpoint.format.source_log import source_folder
from tidemill.checkpoint.format.source_offset import SourceOffset
from tidemill.checkpoint.inspection import Inspection, inspect_folder
from tidemill.checkpoint.positions import Position, Recognizer, SourceFolder
from tidemill.checkpoint.verify.contents import LZ4, Contents
from tidemill.checkpoint.verify.damage import Damage, Progress
from tidemill.checkpoint.verify.findings import Finding, Findings, Level
from tidemill.checkpoint.verify.logs import START_OVER, check_logs
from tidemill.checkpoint.verify.operators import check_operators
from tidemill.checkpoint.verify.order import check_history
from tidemill.checkpoint.verify.state import StateCheck
from tidemill.storage.store import Entry

CODEC_CONF = "spark.sql.streaming.stateStore.compression.codec"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification.

    Attributes:
        level: The level of the verification.
        inspection: The contents of the checkpoint.
        offset_log_versions: The format versions of the offset files that were read, ascending.
        commit_log_versions: The format versions of the commit files that were read, ascending.
        findings: The findings, errors first.
    """

    level: Level
    inspection: Inspection
    offset_log_versions: tuple[int, ...]
    commit_log_versions: tuple[int, ...]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """True if no finding is an error: the next start works and reads exactly what it should."""
        return all(finding.severity != "error" for finding in self.findings)


def verify(
    checkpoint: Checkpoint,
    *,
    level: Level,
    recognize: Recognizer,
    on_progress: Progress | None = None,
    sink_batch: int | None = None,
) -> Verdict:
    """Verify the checkpoint at a path.

    Args:
        level: `quick`: what a start needs. `full`: every file.
        recognize: Returns the position in the offset of a source.
        on_progress: Receives the bytes that are done and their total, at level `full`.
        sink_batch: The newest batch of this query in the main table: the version of the Delta transaction with the
            query's id, or -1 if the table has none. Every committed batch must have its transaction. None if the
            table is unknown: it is then not compared.

    Raises:
        NotACheckpointError: The path is not a checkpoint.
    """
    folder = open_checkpoint(checkpoint)
    inspection = inspect_folder(folder, recognize)
    findings = Findings()
    full = level == "full"
    positions = {source.key: recognize(source) for source in inspection.sources}
    damage = Damage(Contents(folder, positions, inspection.conf.get(CODEC_CONF, LZ4), full=full))
    offset_versions, commit_versions = (
        set(inspection.offset_log_versions),
        set(inspection.commit_log_versions),
    )
    files: list[Entry] = []
    if full:
        files = list(folder.walk())
        for where in damage.examine(files, on_progress):
            _wrong_checksum(where, findings)
        history = check_history(folder, recognize, findings)
        offset_versions |= history[0]
        commit_versions |= history[1]
    check_logs(folder, inspection, damage, sink_batch, findings)
    check_sources(folder, inspection, damage, findings)
    check_operators(folder, inspection, damage, findings)
    StateCheck(folder, inspection, damage, findings).run()
    _start(inspection, findings)
    if sink_batch is not None:
        check_sink(inspection, sink_batch, findings)
    _unreadable(inspection, damage, findings)
    if full:
        for problem in damage.unread():
            findings.add_problem(problem, severity="warning", consequence="The next start does not read it.")
        _unexpected(files, findings)
    return Verdict(
        level=level,
        inspection=inspection,
        offset_log_versions=tuple(sorted(offset_versions)),
        commit_log_versions=tuple(sorted(commit_versions)),
        findings=findings.all(),
    )


def _start(inspection: Inspection, findings: Findings) -> None:
    start = inspection.next_start
    if start is not None and start.kind == "no_data_batch":
        findings.add(
            "info",
            "pending-no-data-batch",
            f"commits/{start.batch_id - 1}",
            "The last batch moved the watermark, and the results that this closed have not been emitted: Spark "
            "emits them only together with new data.",
            "Run the stream: tidemill run emits them at once.",
        )


def _wrong_checksum(where: str, findings: Findings) -> None:
    parent, slash, name = where.rpartition("/")
    checksums = f"{parent}{slash}{sidecar(name)}"
    findings.add(
        "warning",
        "wrong-checksum",
        where,
        f"The file does not match the checksums in {checksums}, so it is not byte for byte what Spark wrote. "
        "Spark does not compare these checksums and reads the file as it is.",
        f"Compare the file with a copy. If the change was intended, delete {checksums}.",
    )


def _unreadable(inspection: Inspection, damage: Damage, findings: Findings) -> None:
    """Add the unreadable files of the inspection that no check requested."""
    for problem in inspection.problems:
        if problem.where in {"metadata", "offsets", "commits"} or problem.where.startswith(
            ("offsets/", "commits/")
        ):
            if not damage.requested(problem.where):
                findings.add_problem(problem)
        else:
            damage.problem(problem.where)
            # Measured: Spark 4.2 starts without metadata of version 1 and fails without that of version 2.
            optional = problem.where.endswith("/_metadata/metadata") and problem.code != "unknown-version"
            findings.add_problem(
                problem,
                severity="warning" if optional else "error",
                consequence="Stores and partitions are taken from the folders; Spark starts without this file."
                if optional
                else "The next start fails.",
            )


def _unexpected(files: list[Entry], findings: Findings) -> None:
    """Add leftovers of Spark, and files that Spark did not write."""
    leftovers = [file for file in files if _is_temporary(file.name)]
    if leftovers:
        size = sum(file.size for file in leftovers)
        noun, them = ("file", "it") if len(leftovers) == 1 else ("files", "them")
        findings.add(
            "info",
            "leftover-temporary",
            leftovers[0].key,
            f"Killed attempts left {len(leftovers)} temporary {noun}, {size} bytes; nothing reads {them}.",
            f"Delete {them} while no query runs.",
        )
    for file in files:
        if file.kind == "outside":
            findings.add(
                "warning",
                "outside-link",
                file.key,
                "It is a symbolic link that leaves the checkpoint; the link was not followed.",
                "Replace the link with its target.",
            )
        elif file.kind != "file":
            what = (
                "It is a folder deeper than any of Spark's"
                if file.is_folder
                else "It is neither a file nor a folder"
            )
            findings.add(
                "warning",
                "unexpected-file",
                file.key,
                f"{what}; Spark did not write it.",
                "Move it out of the checkpoint.",
            )


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith((".tmp", ".tmp.crc"))


def check_sources(folder: Folder, inspection: Inspection, damage: Damage, findings: Findings) -> None:
    """Check the folder of every source that keeps one."""
    for source in inspection.sources:
        inspection.recognize(source).check_folder(
            SourceFolder(
                folder=folder,
                log=source_folder(source.key),
                done=_done(folder, inspection, source),
                problem=damage.problem,
                findings=findings,
            )
        )


def _done(folder: Folder, inspection: Inspection, source: SourceOffset) -> Position | None:
    """Return the position that no batch goes back behind; None before the first batch."""
    start = inspection.next_start
    if start is None or start.kind != "repeat_batch":
        return inspection.recognize(source)
    entry = readable_offset(folder, start.batch_id - 1)
    previous = None if entry is None else entry.source(source.key)
    return None if previous is None else inspection.recognize(previous)


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
