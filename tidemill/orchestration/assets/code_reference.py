"""The link from an asset to the lines that declare its stream, which the UI opens in an editor."""

import inspect
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import BetaWarning, CodeReferencesMetadataValue, LocalFileCodeReference

from tidemill.definitions.declaration import underlying

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream


def code_reference(stream: "Stream") -> dict[str, CodeReferencesMetadataValue]:
    """Return the metadata entry with the file and the line of `declared_at`; none for code without a file.

    `link_code_references_to_git` of Dagster turns it into a link to a repository.
    """
    code = underlying(stream.function).code
    file = _file(code.co_filename) if inspect.iscode(code) else None
    if not inspect.iscode(code) or file is None:
        return {}
    with warnings.catch_warnings():  # one per stream otherwise, at each load of the code location
        warnings.simplefilter("ignore", BetaWarning)
        reference = LocalFileCodeReference(
            file_path=file,
            line_number=code.co_firstlineno,
            label=stream.declared_at,
        )
        return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[reference])}


@lru_cache(maxsize=1024)
def _file(name: str) -> str | None:
    """Return the absolute path of a file of code; None where it is no file."""
    path = Path(name)
    return str(path.resolve()) if path.is_file() else None
