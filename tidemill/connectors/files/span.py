"""The files of a folder that are read again."""

# ruff: noqa: PTH119, PTH208 - `os` compares and lists names, of which there may be hundreds of thousands.

import os
from collections.abc import Iterable

from tidemill.checkpoint import SourceFile
from tidemill.connectors.answers import Period, SourceSpan
from tidemill.connectors.files.addresses import plain_path
from tidemill.definitions.source import Source
from tidemill.text.plurals import first_few, pluralize


def files_span(source: Source, logged: Iterable[SourceFile], period: Period) -> SourceSpan:
    """Return what is read of a folder.

    Args:
        logged: The files that the stream has read.
        period: The time of what is read.
    """
    known = tuple(logged)
    files = tuple(file for file in known if period.has(file.timestamp_ms))
    return SourceSpan(
        reads=f"{len(files):,} of {pluralize(len(known), 'file')} of {source.describe()}",
        is_empty=not files,
        missing=missing_files(source.describe(), (file.path for file in files)),
        files=files,
    )


def missing_files(source: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the sentence that some of the files that were read of a source are missing; none where none is."""
    missing = missing_paths(sorted(set(map(plain_path, paths))))
    if not missing:
        return ()
    named = first_few([os.path.basename(path) for path in missing])
    return (f"{pluralize(len(missing), 'file')} of {source} are missing: {named}.",)


def missing_paths(paths: Iterable[str]) -> list[str]:
    """Return those of some files that are missing. Each folder is listed once; what only Spark can list is left out."""
    names: dict[str, frozenset[str]] = {}
    missing = []
    for path in paths:
        if "://" in path:
            continue
        folder, name = os.path.split(path)
        if folder not in names:
            try:
                names[folder] = frozenset(os.listdir(folder))
            except (FileNotFoundError, NotADirectoryError):
                names[folder] = frozenset()
        if name not in names[folder]:
            missing.append(path)
    return missing
