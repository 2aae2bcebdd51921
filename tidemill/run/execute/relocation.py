"""A lake that has moved together with its landing folder: the file source's log follows.

Spark keeps the absolute address of every file that a source has read, and reads a file at another address again.
"""

from collections.abc import Mapping

from tidemill.connectors.registry import connector_of_kind
from tidemill.connectors.source_record import SourceRecord
from tidemill.records.stream_records import Snapshot


def follow(snapshot: Snapshot, sources: Mapping[str, SourceRecord]) -> None:
    """Change the addresses in the source logs of folders that have moved with the lake.

    The manifest is written afterwards, so that a run that is killed here does the rest in its next attempt.
    """
    before = snapshot.sources
    writer = snapshot.writer("moved")
    for name, record in sources.items():
        recorded = before.get(name, SourceRecord()).binding
        if recorded is None or record.binding is None:
            continue
        address = connector_of_kind(recorded["kind"]).readdressed(recorded, record.binding)
        if address is not None:
            writer.change_source_log(name, address)
