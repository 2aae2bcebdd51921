"""Hostile files: an answer or a finding, never a crash, never a read outside the checkpoint."""

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

from tests.checkpoint import handmade
from tests.checkpoint.recognized import inspect, verify
from tidemill.checkpoint import CheckpointFormatError, OffsetEntry, diff, history, read_tail
from tidemill.checkpoint.document import describe_time, inspect_document
from tidemill.checkpoint.format.commits import parse_commit
from tidemill.checkpoint.format.hadoop_checksum import matches
from tidemill.checkpoint.format.lz4 import Lz4FormatError, check_checksums, check_framing, plain_head
from tidemill.checkpoint.format.offsets import parse_offsets
from tidemill.checkpoint.format.operators import parse_operator
from tidemill.checkpoint.format.rocksdb import check_members, snapshot_tables
from tidemill.checkpoint.format.schema_file import parse_schema
from tidemill.checkpoint.format.spark_checksum import crc32c, parse_spark_checksum
from tidemill.checkpoint.positions import describe_offset
from tidemill.checkpoint.verify.document import verify_document
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.rate.position import RowPosition
from tidemill.connectors.registry import recognize

CASES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "campaign" else 200
FILES_OF_A_CHECKPOINT = [
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


def read_all(checkpoint: Path) -> None:
    """Do everything that the commands do."""
    for level in ("quick", "full"):
        verify_document(verify(checkpoint, level=level))
    inspection = inspect(checkpoint)
    inspect_document(inspection)
    history(checkpoint)
    diff(inspection, inspection)
    with suppress(CheckpointFormatError):
        read_tail(checkpoint)


@pytest.mark.parametrize("file", FILES_OF_A_CHECKPOINT)
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
def test_damaged_content_is_a_finding(tmp_path: Path, file: str, content: bytes) -> None:
    handmade.write(handmade.stateful(tmp_path) / file, content)
    read_all(tmp_path)
    assert any(finding.where.startswith(file) for finding in verify(tmp_path, level="full").findings)


@pytest.mark.parametrize("file", ["offsets/3", "sources/0/2", "commits/3", "metadata"])
def test_a_line_of_a_hundred_megabytes(tmp_path: Path, file: str) -> None:
    handmade.stateless(tmp_path)
    with (tmp_path / file).open("wb") as opened:
        opened.write(b"v1\n")
        opened.seek(100 << 20)
        opened.write(b"x")
    findings = {(finding.code, finding.where) for finding in verify(tmp_path, level="full").findings}
    assert ("file-too-large", file) in findings


@pytest.mark.parametrize("file", ["metadata", "offsets/3", "commits/3", "sources/0/3", "state/0/0/4.delta"])
def test_a_link_that_leaves_is_not_followed(tmp_path: Path, file: str) -> None:
    checkpoint = handmade.stateful(tmp_path / "checkpoint")
    secret = tmp_path / "secret"
    (checkpoint / file).replace(secret)
    (checkpoint / file).symlink_to(secret)
    read_all(checkpoint)
    findings = {(finding.code, finding.where) for finding in verify(checkpoint, level="quick").findings}
    assert ("outside-link", file) in findings


def test_a_folder_that_leaves_and_a_loop(tmp_path: Path) -> None:
    checkpoint = handmade.stateful(tmp_path / "checkpoint")
    (checkpoint / "state" / "0" / "1").rename(tmp_path / "1")
    (checkpoint / "state" / "0" / "1").symlink_to(tmp_path / "1")
    (checkpoint / "state" / "again").symlink_to(checkpoint)
    read_all(checkpoint)
    assert not verify(checkpoint, level="full").sound


def test_a_checkpoint_behind_a_link_is_read(tmp_path: Path) -> None:
    handmade.stateful(tmp_path / "checkpoint")
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint")
    assert verify(tmp_path / "link", level="full").sound


def test_pipes_folders_and_broken_links_instead_of_files(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    for file in ("offsets/3", "commits/3", "metadata"):
        (tmp_path / file).unlink()
    os.mkfifo(tmp_path / "offsets" / "3")
    (tmp_path / "commits" / "3").mkdir()
    (tmp_path / "metadata").symlink_to(tmp_path / "nowhere")
    read_all(tmp_path)
    assert not verify(tmp_path, level="quick").sound


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handmade.stateful(tmp_path)
    real = os.open

    def refuse(path: str, *arguments: int) -> int:
        if str(path).endswith("offsets/3"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)  # chmod does not stop root
    read_all(tmp_path)
    findings = {(finding.code, finding.where) for finding in verify(tmp_path, level="quick").findings}
    assert ("unreadable-file", "offsets/3") in findings


def test_absurd_numbers(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    biggest = 10**18
    handmade.offsets(tmp_path, biggest, '{"logOffset":0}', watermark=2**63 - 1)
    handmade.operator(tmp_path, partitions=2)
    read_all(tmp_path)
    assert len(verify(tmp_path, level="full").findings) < 50


def test_an_operator_cannot_name_a_store_outside(tmp_path: Path) -> None:
    handmade.stateful(tmp_path / "checkpoint")
    metadata = tmp_path / "checkpoint" / "state" / "0" / "_metadata" / "metadata"
    metadata.write_text(metadata.read_text().replace('"default"', '"../../../../x"'))
    read_all(tmp_path / "checkpoint")
    assert inspect(tmp_path / "checkpoint").problems[0].where == "state/0/_metadata/metadata"


def test_a_snapshot_cannot_name_a_table_outside(tmp_path: Path) -> None:
    handmade.stateful(tmp_path, 1)
    for partition in ("0", "1"):
        (tmp_path / "state" / "0" / partition / "1.delta").unlink()
        with zipfile.ZipFile(tmp_path / "state" / "0" / partition / "1.zip", "w") as archive:
            archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"../../x.sst","sizeBytes":1}]}')
    read_all(tmp_path)
    assert {finding.code for finding in verify(tmp_path, level="quick").findings} == {"damaged-snapshot"}


def test_each_flipped_byte_of_a_snapshot_is_an_answer_or_damage(tmp_path: Path) -> None:
    path = tmp_path / "1.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"a.sst","sizeBytes":1}]}')
    data = path.read_bytes()
    damaged = 0
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
        for read in (snapshot_tables, check_members):
            with path.open("rb") as file:
                damaged += answer(lambda: read("1.zip", file) or True) is None  # noqa: B023
    assert damaged > len(data)


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
    """Return what a parser returns, or None if it refuses; any other error is a failure."""
    with suppress(CheckpointFormatError, Lz4FormatError):
        return read()
    return None


@settings(max_examples=CASES, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_parsers_answer_or_refuse(data: bytes) -> None:
    offsets = answer(lambda: parse_offsets(1, data, "file"))
    for source in offsets.sources if isinstance(offsets, OffsetEntry) else ():
        kinds = (FilePosition, TopicPosition, DeltaPosition, RowPosition)
        known = [position for kind in kinds if (position := kind.of(source)) is not None]
        assert known in ([], [recognize(source)])
        assert describe_offset(source, recognize)
    commit = answer(lambda: parse_commit(1, data, "file"))
    assert commit is None or commit == parse_commit(1, data, "file")
    answer(lambda: parse_operator(0, data, "file"))
    answer(lambda: parse_schema("file", data))
    answer(lambda: parse_spark_checksum("file", data))


@settings(max_examples=CASES)
@given(st.binary(max_size=200), st.binary(max_size=40))
def test_streams_and_checksums_answer_or_refuse(data: bytes, checksums: bytes) -> None:
    for stream in (data, b"LZ4Block" + data, b"LZ4Block\x25" + data):
        answer(lambda stream=stream: check_framing(BytesIO(stream), len(stream)))
        answer(lambda stream=stream: check_checksums(BytesIO(stream)))
        answer(lambda stream=stream: plain_head(BytesIO(stream), 9))
    assert matches(checksums, [data]) in (True, False)


@settings(max_examples=CASES)
@given(st.integers())
def test_any_time_has_a_description(milliseconds: int) -> None:
    assert describe_time(milliseconds)


def test_the_crc32c_is_that_of_the_standard() -> None:
    assert crc32c([b"1234", b"56789"]) == 0xE3069283
