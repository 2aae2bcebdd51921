"""The sources of a stream against those that its checkpoint and its manifest know: names and bindings.

A source's name in the checkpoint is the name of the function's argument. Spark starts a source whose name it does
not know from its beginning, so a renamed argument would put every row into the table twice.
"""

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Binding
from tidemill.connectors.registry import binding_of, difference, recognize, resolved
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source
from tidemill.errors import TerminalError
from tidemill.records.stream_records import Snapshot
from tidemill.target.target import Target

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry, SourceOffset
    from tidemill.definitions.stream import Stream


def check_names(stream: "Stream", snapshot: Snapshot) -> None:
    """Check that no source would start from its beginning unseen.

    Raises:
        TerminalError: A name is missing together with a new one, or a source that was removed is back.
    """
    entry = snapshot.tail.latest_offset
    if entry is None:
        return
    known = {offset.key for offset in entry.sources}
    declared = streaming_sources(stream)
    records = recorded_sources(snapshot)
    missing = sorted(
        offset.key for offset in entry.sources if offset.raw is not None and offset.key not in declared
    )
    new = [name for name in declared if name not in known and not records[name].accepted_as_new]
    for name in new:
        if records[name].stopped_at is not None:
            raise TerminalError(
                f"the source {name!r} was removed in an earlier run and is back: Spark would read it from its "
                "beginning, and rows that are in the table would be added again.",
                stream=stream.name,
                fix=_decision(stream, name, name, "to continue where it stopped"),
                code="source-returned",
            )
    if missing and new:
        raise TerminalError(
            f"the checkpoint has a position in the source {missing[0]!r}, which the definition no longer has, and "
            f"none in the source {new[0]!r}, which is new: Spark would read {new[0]!r} from its beginning.",
            stream=stream.name,
            fix=_decision(stream, missing[0], new[0], f"if {new[0]!r} is {missing[0]!r} renamed"),
            code="source-name-changed",
        )


def _decision(stream: "Stream", old: str, new: str, when: str) -> str:
    name = quote(str(stream.name))
    return (
        f"{when}: tidemill rename-source {name} {quote(old)} {quote(new)}. "
        f"If it is another source, to be read from its beginning: tidemill accept {name} --new-source {quote(new)}"
    )


def bindings(stream: "Stream", target: Target) -> dict[str, Binding]:
    """Return what the streaming sources of a stream are bound to, by name; raise what `binding_of` raises."""
    bound = ((name, binding_of(source, target)) for name, source in streaming_sources(stream).items())
    return {name: binding for name, binding in bound if binding is not None}


def check_bindings(
    stream: "Stream", target: Target, snapshot: Snapshot, bound: Mapping[str, Binding]
) -> None:
    """Check that every source reads what its checkpoint continues.

    Args:
        bound: What its sources are bound to, by name.

    Raises:
        TerminalError: A source is bound to another folder, cluster or topic, or is of another kind.
    """
    records = recorded_sources(snapshot)
    for name, source in streaming_sources(stream).items():
        recorded, now = records[name].binding, bound.get(name)
        changed = None
        if recorded is not None and now is not None:
            changed = difference(recorded, now, source, target)
        offset = snapshot.tail.planned(name)
        if changed is None and offset is not None and offset.raw is not None:
            kind = _other_kind(source, target, records[name], offset)
            if kind is not None:
                changed = f"is {source.describe()}, and its checkpoint has a position of the kind {kind!r}"
        if changed is None:
            continue
        if recorded is None or now is None:  # a table has no binding
            fix = "declare the source as it was; or rename the argument, and accept it as a new source."
        else:
            fix = "bind it back, or accept the change after a comparison of both sides: "
            fix += f"tidemill rebind {quote(str(stream.name))} {quote(name)}"
        raise TerminalError(
            f"its source {name!r} {changed}.", stream=stream.name, fix=fix, code="binding-changed"
        )


def _other_kind(source: Source, target: Target, record: SourceRecord, offset: "SourceOffset") -> str | None:
    """Return the kind of source that wrote an offset; None where it is that of the source, or unknown."""
    connector, bound = resolved(source, target)
    if record.kind is not None:
        return None if record.kind == bound.kind else record.kind
    position = recognize(offset)
    return None if position.kind == "unknown" or connector.parse(offset) is not None else position.kind


def recorded_sources(snapshot: Snapshot) -> "_Records":
    """Return what the manifest records about sources; an empty record for a name that it does not have."""
    return _Records(snapshot.sources)


def updated_sources(
    stream: "Stream", target: Target, snapshot: Snapshot, bound: Mapping[str, Binding]
) -> dict[str, SourceRecord]:
    """Return the records of all sources that the active generation has had, as a run writes them.

    A source that the definition no longer has keeps the offset at which the stream stopped reading it.
    """
    entry = snapshot.tail.latest_offset
    read = _read_up_to(snapshot)
    records = recorded_sources(snapshot)
    known = () if entry is None else tuple(offset.key for offset in entry.sources)
    declared = streaming_sources(stream)
    for name, source in declared.items():
        records[name] = replace(
            records[name],
            binding=bound.get(name, records[name].binding),
            kind=resolved(source, target)[1].kind,
            stopped_at=None,
            accepted_as_new=records[name].accepted_as_new and name not in known,
        )
    for name in known:
        if name not in declared:
            offset = None if read is None else read.source(name)
            records[name] = replace(records[name], stopped_at=None if offset is None else offset.raw)
    return dict(records)


def _read_up_to(snapshot: Snapshot) -> "OffsetEntry | None":
    """Return the offsets up to which the main table has the rows of a source that is removed now.

    A batch that must be repeated is repeated without the source, unless the table has the batch.
    """
    tail, table = snapshot.tail, snapshot.main_table
    start = tail.next_start
    if start.kind != "repeat_batch" or (table is not None and table.has(start.batch_id)):
        return tail.latest_offset
    return tail.committed_offsets


def streaming_sources(stream: "Stream") -> dict[str, Source]:
    """Return the sources that have a position in the checkpoint, by name."""
    return {name: source for name, source in stream.sources.items() if source.streaming}


class _Records(dict[str, SourceRecord]):
    def __missing__(self, name: str) -> SourceRecord:
        return SourceRecord()
