"""Sinks that have lost batches since the last check, as with an older copy of a database.

A sink knows its newest batch only, so it is asked before a run writes another one.
"""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.errors import TidemillError
from tidemill.run.decide.sink_batches import is_behind, newest_batch

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target


def record_behind(stream: "Stream", target: "Target", snapshot: "Snapshot") -> None:
    """Record for the check `exactly_once` which sinks have lost batches; one that does not answer is left out."""
    checked = snapshot.records.checked()
    if checked is None or checked.position is None or not snapshot.has(checked.position):
        return
    behind = dict(checked.sinks_behind)
    for sink in stream.external_sinks:
        # The run itself reports what it cannot write.
        with suppress(TidemillError, OSError, ValueError, KeyError, TypeError):
            newest = newest_batch(sink, target, snapshot)
            if sink.name not in behind and is_behind(sink, newest, checked.position):
                behind[sink.name] = newest
    if behind != checked.sinks_behind:
        snapshot.records.write_checked(replace(checked, sinks_behind=behind))
