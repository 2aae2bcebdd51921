"""The columns that Tidemill adds to tables and to records in flight."""

ORIGIN = "_origin"
"""Where a record of a feed came from: a file, or a Kafka topic, partition, offset, timestamp and key."""

BATCH = "_batch"
"""The generation and the batch that wrote a row of a feed's table."""

DELETED = "_deleted"
"""Whether a row of a merge table is a tombstone."""

START_AT, END_AT = "__START_AT", "__END_AT"
"""From when to when a version in an SCD 2 table is valid; the end of the current version is NULL."""

BOOKKEEPING = (ORIGIN, BATCH)
"""Columns that readers of a stream's table do not get."""

RAW = "_raw"
"""The text of a feed's record, until the record is accepted or quarantined."""

VIOLATED = "_violated"
"""The names of the rules that a feed's record violates, until the record is accepted or quarantined."""
