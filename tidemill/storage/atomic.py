"""Files that are replaced as a whole: a reader gets the old content or the new one, never a part."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def replace_file(path: Path, content: str) -> None:
    """Replace a file atomically; its folder is created where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
    ) as temporary:
        temporary.write(content)
    try:
        # NamedTemporaryFile creates files for this user only; records are as readable as other files.
        Path(temporary.name).chmod(0o666 & ~_umask())
        Path(temporary.name).replace(path)
    except OSError:
        Path(temporary.name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
