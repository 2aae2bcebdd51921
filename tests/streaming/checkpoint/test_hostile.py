"""Files that nobody would write on purpose: an answer or a finding, never a crash, never a look outside."""

import json
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.streaming.checkpoint import (
    CheckpointFormatError,
    OffsetEntry,
    diff,
    history,
    inspect,
    read_tail,
    verify,
)
from pipelines.streaming.checkpoint import document as documents
from pipelines.streaming.checkpoint.checksums import matches
from pipelines.streaming.checkpoint.commits import parse_commit
from pipelines.streaming.checkpoint.describe import offset_in_words, time_in_words
from pipelines.streaming.checkpoint.file_sums import crc32c, parse_file_sum
from pipelines.streaming.checkpoint.lz4 import Lz4FormatError, check_framing, check_sums, plain_head
from pipelines.streaming.checkpoint.offsets import parse_offsets
from pipelines.streaming.checkpoint.operators import parse_operator
from pipelines.streaming.checkpoint.schema_file import parse_schema
from tests.streaming.checkpoint import handmade

CASES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "campaign" else 200
PLACES = [
    "metadata",
    "offsets/3",
    "offsets/2",
    "commits/3",
    "sources/0/3",
    "state/0/_metadata/metadata",
    "state/0/0/_metadata/schema",
    "state/0/0/4.delta",
    "state/0/0/4.snapshot",
]


def look(checkpoint: Path) -> None:
    """Everything that a command does."""
    for level in ("quick", "full"):
        documents.verify_document(verify(checkpoint, level=level))
    seen = inspect(checkpoint)
    documents.inspect_document(seen)
    history(checkpoint)
    diff(seen, seen)
    with suppress(CheckpointFormatError):
        read_tail(checkpoint)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 999,
        b"\xff\xfe" * 50,
        b"v1\n" + b"[" * 200_000,
        b"v1\n{",
        b"v99\n{}",
        b"PK\x05\x06" + bytes(18),
    ],
)
def test_damaged_content_is_a_finding(tmp_path: Path, place: str, content: bytes) -> None:
    handmade.write(handmade.stateful(tmp_path) / place, content)
    look(tmp_path)
    assert any(finding.where.startswith(place) for finding in verify(tmp_path, level="full").findings)


@pytest.mark.parametrize("place", ["offsets/3", "sources/0/2", "commits/3", "metadata"])
def test_a_line_of_a_hundred_megabytes(tmp_path: Path, place: str) -> None:
    handmade.stateless(tmp_path)
    with (tmp_path / place).open("wb") as file:
        file.write(b"v1\n")
        file.seek(100 << 20)
        file.write(b"x")
    found = {(finding.code, finding.where) for finding in verify(tmp_path, level="full").findings}
    assert ("file-too-large", place) in found


@pytest.mark.parametrize("place", ["metadata", "offsets/3", "commits/3", "sources/0/3", "state/0/0/4.delta"])
def test_a_link_that_leaves_is_not_followed(tmp_path: Path, place: str) -> None:
    checkpoint = handmade.stateful(tmp_path / "checkpoint")
    secret = tmp_path / "secret"
    (checkpoint / place).replace(secret)
    (checkpoint / place).symlink_to(secret)
    look(checkpoint)
    found = {(finding.code, finding.where) for finding in verify(checkpoint, level="quick").findings}
    assert ("outside-link", place) in found


def test_a_folder_that_leaves_and_a_loop(tmp_path: Path) -> None:
    checkpoint = handmade.stateful(tmp_path / "checkpoint")
    (checkpoint / "state" / "0" / "1").rename(tmp_path / "1")
    (checkpoint / "state" / "0" / "1").symlink_to(tmp_path / "1")
    (checkpoint / "state" / "again").symlink_to(checkpoint)
    look(checkpoint)
    assert not verify(checkpoint, level="full").sound


def test_a_checkpoint_behind_a_link_is_read(tmp_path: Path) -> None:
    handmade.stateful(tmp_path / "checkpoint")
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint")
    assert verify(tmp_path / "link", level="full").sound


def test_pipes_folders_and_broken_links_in_the_place_of_files(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    for place in ("offsets/3", "commits/3", "metadata"):
        (tmp_path / place).unlink()
    os.mkfifo(tmp_path / "offsets" / "3")
    (tmp_path / "commits" / "3").mkdir()
    (tmp_path / "metadata").symlink_to(tmp_path / "nowhere")
    look(tmp_path)
    assert not verify(tmp_path, level="quick").sound


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handmade.stateful(tmp_path)
    real = os.open

    def refuse(path: str, *how: int) -> int:
        if str(path).endswith("offsets/3"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *how)

    monkeypatch.setattr(os, "open", refuse)  # chmod does not stop root
    look(tmp_path)
    found = {(finding.code, finding.where) for finding in verify(tmp_path, level="quick").findings}
    assert ("unreadable-file", "offsets/3") in found


def test_absurd_numbers(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    biggest = 10**18
    handmade.offsets(tmp_path, biggest, '{"logOffset":0}', watermark=2**63 - 1)
    handmade.operator(tmp_path, partitions=2)
    look(tmp_path)
    assert len(verify(tmp_path, level="full").findings) < 50


def test_an_operator_cannot_name_a_store_outside(tmp_path: Path) -> None:
    handmade.stateful(tmp_path / "checkpoint")
    metadata = tmp_path / "checkpoint" / "state" / "0" / "_metadata" / "metadata"
    metadata.write_text(metadata.read_text().replace('"default"', '"../../../../x"'))
    look(tmp_path / "checkpoint")
    assert inspect(tmp_path / "checkpoint").problems[0].where == "state/0/_metadata/metadata"


def test_a_snapshot_cannot_name_a_table_outside(tmp_path: Path) -> None:
    handmade.stateful(tmp_path, 1)
    for partition in ("0", "1"):
        (tmp_path / "state" / "0" / partition / "1.delta").unlink()
        with zipfile.ZipFile(tmp_path / "state" / "0" / partition / "1.zip", "w") as archive:
            archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"../../x.sst","sizeBytes":1}]}')
    look(tmp_path)
    assert {finding.code for finding in verify(tmp_path, level="quick").findings} == {"damaged-snapshot"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["batchWatermarkMs", "batchTimestampMs", "conf", "nextBatchWatermarkMs", "stateUniqueIds", "logOffset"]
)
OBJECTS = st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3), max_size=4)


def _text(version: str, lines: list[Any]) -> bytes:
    return "\n".join([version, *(json.dumps(line) for line in lines)]).encode()


FILES = st.binary(max_size=300) | st.builds(
    _text, st.sampled_from(["v1", "v2", "v3", "", "v", "v1 "]), st.lists(OBJECTS | JSON, max_size=4)
)


def answer(read: Callable[[], object]) -> object:
    """What a parser gives, or None where it refuses; anything else it raises is a failure."""
    with suppress(CheckpointFormatError, Lz4FormatError):
        return read()
    return None


@settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_parsers_answer_or_refuse(data: bytes) -> None:
    offsets = answer(lambda: parse_offsets(1, data, "file"))
    for source in offsets.sources if isinstance(offsets, OffsetEntry) else ():
        assert source.kind == "kafka" or not source.partitions
        assert (source.delta is not None) == (source.kind == "delta")
        assert offset_in_words(source)
    commit = answer(lambda: parse_commit(1, data, "file"))
    assert commit is None or commit == parse_commit(1, data, "file")
    answer(lambda: parse_operator(0, data, "file"))
    answer(lambda: parse_schema("file", data))
    answer(lambda: parse_file_sum("file", data))


@settings(max_examples=CASES, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=40))
def test_streams_and_sums_answer_or_refuse(data: bytes, sums: bytes) -> None:
    for stream in (data, b"LZ4Block" + data, b"LZ4Block\x25" + data):
        answer(lambda stream=stream: check_framing(BytesIO(stream), len(stream)))
        answer(lambda stream=stream: check_sums(BytesIO(stream)))
        answer(lambda stream=stream: plain_head(BytesIO(stream), 9))
    assert matches(sums, [data]) in (True, False)


@settings(max_examples=CASES, deadline=None)
@given(st.integers())
def test_any_time_has_words(milliseconds: int) -> None:
    assert time_in_words(milliseconds)


def test_sums_are_those_of_the_standards():
    assert crc32c([b"1234", b"56789"]) == 0xE3069283
