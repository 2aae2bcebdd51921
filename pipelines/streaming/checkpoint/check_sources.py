"""The checks of `sources/`: does a source's own log go as far as the offsets say, without a hole?"""

from pipelines.streaming.checkpoint.check_logs import NEW_LIFE
from pipelines.streaming.checkpoint.damage import Damage
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.findings import Findings
from pipelines.streaming.checkpoint.inspection import Inspection
from pipelines.streaming.checkpoint.source_log import LogEntry, log_entries, needed_entries, source_folder
from pipelines.streaming.checkpoint.source_offset import SourceOffset
from pipelines.streaming.checkpoint.tail import readable_offset


def check_sources(folder: Folder, seen: Inspection, damage: Damage, found: Findings) -> None:
    """The log of every source that keeps one."""
    for source in seen.sources:
        if source.kind == "file":
            _file_source(folder, source, _done(folder, seen, source), damage, found)
        elif source.kind == "rate":
            where = f"{source_folder(source.key)}/0"
            if folder.item(where) is not None and (problem := damage.problem(where)):
                found.problem(problem, means="The source reads it when it starts.", fix=NEW_LIFE)


def _done(folder: Folder, seen: Inspection, source: SourceOffset) -> int:
    """The last entry of a file source's log that is read for good: -1 before the first."""
    start = seen.next_start
    if start is None or start.kind != "repeat_batch":
        return source.log_offset if source.log_offset is not None else -1
    entry = readable_offset(folder, start.batch_id - 1)
    before = None if entry is None else entry.source(source.key)
    return before.log_offset if before is not None and before.log_offset is not None else -1


def _file_source(folder: Folder, source: SourceOffset, done: int, damage: Damage, found: Findings) -> None:
    offset = source.log_offset
    if offset is None or offset < 0:
        return
    place = source_folder(source.key)
    entries = log_entries(folder.names(place))
    newest = entries[-1].number if entries else None
    if newest is None or newest < offset:
        found.add(
            "error",
            "source-log-behind",
            place,
            f"The offsets stand at entry {offset}, the source's log "
            + ("is gone" if newest is None else f"ends at entry {newest}")
            + ": the next start fails, or skips new files without a word.",
            "Restore the folder from a copy; without one, start over with a new checkpoint.",
        )
        return
    needed = needed_entries(entries)
    _holes(place, needed, found)
    for entry in needed:
        problem = damage.problem(f"{place}/{entry.name}")
        if problem is None:
            continue
        if problem.code != "wrong-entry":
            found.problem(problem, means="A start reads it: the next one fails.", fix=NEW_LIFE)
        elif done < entry.number <= offset:
            found.problem(problem, means="The batch that is repeated loses their files.", fix=NEW_LIFE)
        else:
            found.problem(problem, severity="warning", means="No batch that is still to run needs them.")


def _holes(place: str, needed: list[LogEntry], found: Findings) -> None:
    numbers = {entry.number for entry in needed}
    first = needed[0].number if needed[0].compact else 0
    missing = [number for number in range(first, first + len(numbers) + 1) if number not in numbers]
    if missing and missing[0] < needed[-1].number:
        found.add(
            "error",
            "source-log-gap",
            f"{place}/{missing[0]}",
            f"The source's log has no entry {missing[0]}, and a start reads all entries "
            + (f"from {needed[0].name} on" if needed[0].compact else "from 0 on")
            + ": the next start fails.",
            NEW_LIFE,
        )
