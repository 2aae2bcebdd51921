"""Handwritten schema files of version 3; those that Spark writes are in test_against_spark.py."""

import pytest

from tests.checkpoint.handmade import java_string
from tests.support.raising import raises
from tidemill.checkpoint import CheckpointFormatError
from tidemill.checkpoint.format.schema_file import parse_schema

PARTS = ("key", "value", "encoder", "user_key")


def schema(**broken: str) -> bytes:
    """Return a schema of one column family; `broken` replaces parts of it."""
    chunks = {
        name: (1).to_bytes(4, "big") + java_string(broken.get(name, '{"type":"struct"}')) for name in PARTS
    }
    family = [java_string("default"), bytes(2), chunks["key"], bytes(2), chunks["value"]]
    return b"".join(
        [java_string("v3"), (1).to_bytes(4, "big"), *family, chunks["encoder"], chunks["user_key"]]
    )


def test_a_complete_schema_is_read_to_its_end() -> None:
    assert parse_schema("schema", schema()).version == 3
    for end in range(len(schema())):
        with pytest.raises(CheckpointFormatError):
            parse_schema("schema", schema()[:end])


@pytest.mark.parametrize("part", PARTS)
def test_a_broken_part_is_refused_except_the_users_key(part: str) -> None:
    """Measured with Spark 4.2: it continues without the schema of the user's key."""
    data = schema(**{part: '{"type":"struct"'})
    if part == "user_key":
        assert parse_schema("schema", data).version == 3
    else:
        with raises("unparseable-file"):
            parse_schema("schema", data)
