"""The checks of `sources/`: what a source's own folder must have, its kind knows."""

from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logs import readable_offset
from tidemill.checkpoint.format.source_log import source_folder
from tidemill.checkpoint.format.source_offset import SourceOffset
from tidemill.checkpoint.inspection import Inspection
from tidemill.checkpoint.positions import Position, SourceFolder
from tidemill.checkpoint.verify.damage import Damage
from tidemill.checkpoint.verify.findings import Findings


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
