"""Schema files of version 3, written by hand; those that Spark writes are in test_against_spark.py."""

import pytest

from pipelines.streaming.checkpoint import CheckpointFormatError
from pipelines.streaming.checkpoint.schema_file import parse_schema

PARTS = ("key", "value", "encoder", "user_key")


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def schema(**broken: str) -> bytes:
    """One column family; `broken` has what stands in place of a part."""
    chunks = {name: (1).to_bytes(4, "big") + text(broken.get(name, '{"type":"struct"}')) for name in PARTS}
    family = [text("default"), bytes(2), chunks["key"], bytes(2), chunks["value"]]
    return b"".join([text("v3"), (1).to_bytes(4, "big"), *family, chunks["encoder"], chunks["user_key"]])


def test_a_whole_one_is_read_to_its_end() -> None:
    assert parse_schema("schema", schema()) == 3
    for end in range(len(schema())):
        with pytest.raises(CheckpointFormatError):
            parse_schema("schema", schema()[:end])


@pytest.mark.parametrize("part", PARTS)
def test_a_broken_part_is_refused_but_for_the_users_key(part: str) -> None:
    """Measured with Spark 4.2: it goes on without the schema of the user's key."""
    data = schema(**{part: '{"type":"struct"'})
    if part == "user_key":
        assert parse_schema("schema", data) == 3
    else:
        with pytest.raises(CheckpointFormatError, match="JSON"):
            parse_schema("schema", data)
