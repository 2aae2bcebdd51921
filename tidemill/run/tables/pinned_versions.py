"""The versions of the tables that a run reads: they exist, and static readings are pinned to one."""

from typing import TYPE_CHECKING

from tidemill.connectors.registry import connector_of
from tidemill.errors import TerminalError

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.storage.lake import Lake


def current_versions(stream: "Stream", lake: "Lake") -> dict[str, int]:
    """Return the newest Delta version of each static reading of a stream.

    Raises:
        TerminalError: A table that is read does not exist yet.
    """
    versions = {}
    for name, source in stream.sources.items():
        table = connector_of(source).table(source, lake)
        if table is None:
            continue
        version = table.log.latest_version()
        if version is None:
            raise TerminalError(
                f"it reads {source.describe()}, and that table does not exist yet.",
                stream=stream.name,
                fix=f"tidemill run +{stream.name}"
                if source.upstream is not None
                else "correct the path, or create the table.",
                code="upstream-table-missing",
            )
        if not source.streaming:
            versions[name] = version
    return versions
