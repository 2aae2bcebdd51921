"""Edits of a checkpoint's files: each is replaced as a whole, after a copy of it went to the control folder."""

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.checkpoint import OffsetEntry, offset_batches, read_offset
from tidemill.storage.atomic import replace_file

if TYPE_CHECKING:
    from tidemill.records.stream_records import Snapshot

COPIES = "repairs"
"""The folder of the copies, below the control folder."""

_VOID = "-"
# A restart plans from the last entry of the offset log, and reads the one before it as well.
_ENTRIES_OF_A_RESTART = 2

Offsets = Mapping[str, str | None]
"""The offset of each source by name; None for a source of which nothing was read."""


class Edits:
    """Edits of the active checkpoint of a stream whose lease is held.

    Args:
        snapshot: The stream's records.
        why: The reason, in one word; part of the name of the folder with the copies.

    Attributes:
        copies: The folder with the copies; it exists once something was edited.
    """

    def __init__(self, snapshot: "Snapshot", why: str) -> None:
        began = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self.copies = snapshot.records.control / COPIES / f"{snapshot.generation}-{began}-{why}"
        self._checkpoint = snapshot.checkpoint

    def change_offsets(self, change: Callable[[Offsets], Offsets]) -> None:
        """Change the offsets in the entries that a restart reads."""
        for batch in offset_batches(self._checkpoint)[-_ENTRIES_OF_A_RESTART:]:
            entry = read_offset(self._checkpoint, batch)
            before = offsets_of(entry)
            after = change(before)
            if after == before:
                continue
            where = f"offsets/{batch}"
            header = (self._checkpoint / where).read_text(encoding="utf-8").split("\n")[:2]
            lines = [f"{name}:{_VOID if offset is None else offset}" for name, offset in after.items()]
            self.replace(where, "\n".join([*header, *lines]))

    def replace(self, where: str, content: str) -> None:
        """Replace a file.

        Args:
            where: Its path below the checkpoint.
            content: Its new content.
        """
        path = self._checkpoint / where
        copy = self.copies / where
        checksum = path.with_name(f".{path.name}.crc")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
        if checksum.exists():  # Hadoop refuses a file that its checksum does not fit, and needs none
            shutil.copy2(checksum, copy.with_name(checksum.name))
            checksum.unlink()
        replace_file(path, content)

    def move(self, where: str, to: str) -> None:
        """Move a folder below the checkpoint; a folder that is in its way goes to the copies."""
        if (self._checkpoint / where).exists():
            self.archive(to)
            (self._checkpoint / where).rename(self._checkpoint / to)

    def archive(self, where: str) -> None:
        """Move a folder of the checkpoint to the copies."""
        if (self._checkpoint / where).exists():
            copy = self.copies / where
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(self._checkpoint / where, copy)

    def change_source_log(self, where: str, address: Callable[[str], str]) -> None:
        """Change the addresses of the files in a file source's log.

        Args:
            where: The log's folder below the checkpoint.
            address: The new address of a file.
        """
        folder = Path(self._checkpoint / where)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith("."):
                continue
            text = path.read_text(encoding="utf-8")
            lines = [_with_address(line, address) for line in text.split("\n")]
            if (changed := "\n".join(lines)) != text:
                self.replace(f"{where}/{path.name}", changed)


def offsets_of(entry: OffsetEntry) -> dict[str, str | None]:
    """Return the offsets of an entry by source name."""
    return {offset.key: offset.raw for offset in entry.sources}


def _with_address(line: str, address: Callable[[str], str]) -> str:
    if not line.startswith("{"):  # the version
        return line
    file = json.loads(line)
    file["path"] = address(file["path"])
    return json.dumps(file, ensure_ascii=False, separators=(",", ":"))
