"""Tests of the stream `new_pipeline/events`: each run reads files as in production, in a lake of the test's own."""

from tidemill.testing import Scratch, multiset

from pipelines.new_pipeline import events


def event(event_id: str, amount: int = 5) -> dict[str, object]:
    return {"event_id": event_id, "amount": amount, "event_time": "2026-01-01T12:00:00Z"}


def test_every_record_is_in_the_table_or_in_quarantine(scratch: Scratch) -> None:
    scratch.run(events, [[event("a"), event("b", amount=0)], ["{broken", event("c")]])
    assert scratch.rows(events, "event_id", "amount") == multiset([("a", 5), ("c", 5)])
    assert scratch.quarantined(events, "violated") == multiset([(("positive",),), (("unparsable",),)])
