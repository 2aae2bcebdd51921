"""The checks of `sources/`: a source's own log reaches the offsets and has no gap."""

from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logs import readable_offset
from tidemill.checkpoint.format.source_log import LogEntry, log_entries, needed_entries, source_folder
from tidemill.checkpoint.format.source_offset import SourceOffset
from tidemill.checkpoint.inspection import Inspection
from tidemill.checkpoint.verify.damage import Damage
from tidemill.checkpoint.verify.findings import Findings
from tidemill.checkpoint.verify.logs import RESTORE, START_OVER


def check_sources(folder: Folder, inspection: Inspection, damage: Damage, findings: Findings) -> None:
    """Check the log of every source that keeps one."""
    for source in inspection.sources:
        if source.kind == "file":
            _file_source(folder, source, _done(folder, inspection, source), damage, findings)
        elif source.kind == "rate":
            where = f"{source_folder(source.key)}/0"
            if folder.item(where) is not None and (problem := damage.problem(where)):
                findings.add_problem(problem, consequence="The source reads it when it starts.", fix=RESTORE)


def _done(folder: Folder, inspection: Inspection, source: SourceOffset) -> int:
    """Return the last entry of a file source's log that no batch reads again: -1 before the first."""
    start = inspection.next_start
    if start is None or start.kind != "repeat_batch":
        return source.log_offset if source.log_offset is not None else -1
    entry = readable_offset(folder, start.batch_id - 1)
    previous = None if entry is None else entry.source(source.key)
    return previous.log_offset if previous is not None and previous.log_offset is not None else -1


def _file_source(folder: Folder, source: SourceOffset, done: int, damage: Damage, findings: Findings) -> None:
    offset = source.log_offset
    if offset is None or offset < 0:
        return
    log = source_folder(source.key)
    entries = log_entries(folder.names(log))
    newest = entries[-1].number if entries else None
    if newest is None or newest < offset:
        findings.add(
            "error",
            "source-log-behind",
            log,
            f"The offsets are at entry {offset}, and the source's log "
            + ("is missing" if newest is None else f"ends at entry {newest}")
            + ": the next start fails, or silently skips new files.",
            f"Restore the folder from a copy; without one, {START_OVER}.",
        )
        return
    needed = needed_entries(entries)
    _gaps(log, needed, findings)
    for entry in needed:
        problem = damage.problem(f"{log}/{entry.name}")
        if problem is None:
            continue
        if problem.code != "wrong-entry":
            findings.add_problem(problem, consequence="The next start reads it and fails.", fix=RESTORE)
        elif done < entry.number <= offset:
            findings.add_problem(problem, consequence="The repeated batch loses their files.", fix=RESTORE)
        else:
            findings.add_problem(problem, severity="warning", consequence="No future batch needs them.")


def _gaps(log: str, needed: list[LogEntry], findings: Findings) -> None:
    numbers = {entry.number for entry in needed}
    first = needed[0].number if needed[0].compact else 0
    missing = [number for number in range(first, first + len(numbers) + 1) if number not in numbers]
    if missing and missing[0] < needed[-1].number:
        findings.add(
            "error",
            "source-log-gap",
            f"{log}/{missing[0]}",
            f"The source's log has no entry {missing[0]}, and a start reads all entries from "
            + (needed[0].name if needed[0].compact else "0")
            + " on"
            + ": the next start fails.",
            RESTORE,
        )
