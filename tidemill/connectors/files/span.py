"""The files of a folder that are read again."""

from collections.abc import Iterable

from tidemill.checkpoint import SourceFile
from tidemill.connectors.answers import Period, SourceSpan
from tidemill.connectors.files.addresses import plain_path
from tidemill.connectors.files.listing import missing_paths
from tidemill.definitions.source import Source
from tidemill.storage.lake import Lake
from tidemill.text.plurals import first_few, pluralize


def files_span(source: Source, logged: Iterable[SourceFile], period: Period, lake: Lake) -> SourceSpan:
    """Return what is read of a folder.

    Args:
        logged: The files that the stream has read.
        period: The time of what is read.
        lake: The lake of the target, which says how S3 is reached.
    """
    known = tuple(logged)
    files = tuple(file for file in known if period.has(file.timestamp_ms))
    return SourceSpan(
        reads=f"{len(files):,} of {pluralize(len(known), 'file')} of {source.describe()}",
        is_empty=not files,
        missing=missing_files(source.describe(), (file.path for file in files), lake),
        files=files,
    )


def missing_files(source: str, paths: Iterable[str], lake: Lake) -> tuple[str, ...]:
    """Return the sentence that some of the files that were read of a source are missing; none where none is."""
    missing = missing_paths(sorted(set(map(plain_path, paths))), lake)
    if not missing:
        return ()
    named = first_few([path.rpartition("/")[2] for path in missing])
    return (f"{pluralize(len(missing), 'file')} of {source} are missing: {named}.",)
