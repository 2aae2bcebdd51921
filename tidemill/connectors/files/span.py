"""The files of a folder that are read again."""

from collections.abc import Iterable
from pathlib import Path

from tidemill.checkpoint import SourceFile
from tidemill.connectors.files.backlog import plain_path
from tidemill.connectors.span import Period, SourceSpan
from tidemill.definitions.source import Source
from tidemill.text.plurals import pluralize

_MOST_NAMED = 3


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
        missing=missing_files(source, files),
        files=files,
    )


def missing_files(source: Source, files: Iterable[SourceFile]) -> tuple[str, ...]:
    """Return the sentence that files of a source are missing; none where none is.

    Args:
        files: Files that it has read.
    """
    paths = {plain_path(file.path) for file in files}
    missing = sorted(path for path in paths if not Path(path).exists())
    if not missing:
        return ()
    named = ", ".join(Path(path).name for path in missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return (f"{pluralize(len(missing), 'file')} of {source.describe()} are missing: {named}{more}.",)
