"""Tests of the stream `new_pipeline/new_stream`."""

from tidemill.testing import Scratch, multiset

from pipelines.new_pipeline import new_stream


def test_every_record_is_in_the_table_or_in_quarantine(scratch: Scratch) -> None:
    scratch.run(new_stream, [[{"id": "a", "value": 1.5}, {"id": ""}]])
    assert scratch.rows(new_stream, "id", "value") == multiset([("a", 1.5)])
    assert scratch.quarantined(new_stream, "violated") == multiset([(("has_id",),)])
