"""The findings of `verify` for each damage, and none for a sound checkpoint.

The severities match what Spark 4.2 does on the next start: it was started on the same damage.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint import handmade
from tests.checkpoint.handmade import remove
from tests.checkpoint.recognized import inspect, verify
from tidemill.checkpoint.verify import Finding


def codes(checkpoint: Path, level: str = "full", **options: int) -> list[tuple[str, str, str]]:
    verdict = verify(checkpoint, level=level, **options)
    return [(finding.severity, finding.code, finding.where) for finding in verdict.findings]


def test_sound_checkpoints_have_no_findings(tmp_path: Path) -> None:
    for make in (handmade.stateless, handmade.stateful):
        checkpoint = make(tmp_path / make.__name__)
        for level in ("quick", "full"):
            assert codes(checkpoint, level) == []
            assert verify(checkpoint, level=level).sound


def test_files_that_spark_purges_are_not_reported(tmp_path: Path) -> None:
    handmade.stateful(tmp_path, 6)
    for batch in range(3):
        remove(tmp_path / "offsets" / str(batch))
        remove(tmp_path / "commits" / str(batch))
    for partition in ("0", "1"):
        handmade.delta(tmp_path, 4, partition=int(partition), suffix="snapshot")
        for version in (1, 2, 3):
            remove(tmp_path / "state" / "0" / partition / f"{version}.delta")
    assert codes(tmp_path) == []


def truncated(file: str) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        data = (checkpoint / file).read_bytes()
        handmade.write(checkpoint / file, data[: len(data) // 2])

    return damage


def empty(file: str) -> Callable[[Path], None]:
    return lambda checkpoint: handmade.write(checkpoint / file, b"") and None


def deleted(*files: str) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        for file in files:
            remove(checkpoint / file)

    return damage


def folder_deleted(folder: str) -> Callable[[Path], None]:
    return lambda checkpoint: shutil.rmtree(checkpoint / folder)


def swapped(a: str, b: str) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        first, second = (checkpoint / a).read_bytes(), (checkpoint / b).read_bytes()
        handmade.write(checkpoint / a, second)
        handmade.write(checkpoint / b, first)

    return damage


def copied(a: str, b: str) -> Callable[[Path], None]:
    return lambda checkpoint: handmade.write(checkpoint / b, (checkpoint / a).read_bytes()) and None


ERRORS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "metadata missing": (deleted("metadata"), "missing-metadata", "metadata"),
    "metadata empty": (empty("metadata"), "empty-file", "metadata"),
    "metadata truncated": (truncated("metadata"), "unparseable-file", "metadata"),
    "last offsets empty": (empty("offsets/3"), "empty-file", "offsets/3"),
    "last offsets truncated": (truncated("offsets/3"), "unparseable-file", "offsets/3"),
    "last offsets missing": (deleted("offsets/3"), "commit-without-offsets", "commits/3"),
    "offsets before missing": (deleted("offsets/2"), "missing-file", "offsets/2"),
    "offsets before truncated": (truncated("offsets/2"), "unparseable-file", "offsets/2"),
    "last commit empty": (empty("commits/3"), "empty-file", "commits/3"),
    "last commit truncated": (truncated("commits/3"), "unparseable-file", "commits/3"),
    "commit copied on": (copied("commits/3", "commits/4"), "commit-without-offsets", "commits/4"),
    "offsets folder missing": (folder_deleted("offsets"), "commit-without-offsets", "commits/3"),
    "last offsets swapped": (swapped("offsets/3", "offsets/2"), "offsets-go-back", "offsets/3"),
    "commit deleted, its checksum not": (
        lambda checkpoint: (checkpoint / "commits" / "3").unlink(),
        "orphaned-checksum",
        "commits/.3.crc",
    ),
    "source log missing": (folder_deleted("sources"), "source-log-behind", "sources/0"),
    "last source entry missing": (deleted("sources/0/3"), "source-log-behind", "sources/0"),
    "a source entry missing": (deleted("sources/0/1"), "source-log-gap", "sources/0/1"),
    "a source entry truncated": (truncated("sources/0/1"), "unparseable-file", "sources/0/1"),
    "a source entry empty": (empty("sources/0/2"), "empty-file", "sources/0/2"),
    "a delta missing": (deleted("state/0/1/3.delta"), "missing-state", "state/0/1/3.delta"),
    "a delta empty": (empty("state/0/1/3.delta"), "empty-file", "state/0/1/3.delta"),
    "commits missing": (folder_deleted("commits"), "missing-commits", "commits"),
    "two commits missing": (deleted("commits/2", "commits/3"), "several-uncommitted", "commits/2"),
    "an operator missing": (folder_deleted("state/0"), "missing-state", "state"),
    "a partition missing": (folder_deleted("state/0/1"), "missing-state", "state/0/1/1.delta"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_where_the_next_start_fails_or_loses(tmp_path: Path, name: str) -> None:
    damage, code, where = ERRORS[name]
    damage(handmade.stateful(tmp_path))
    for level in ("quick", "full"):
        assert ("error", code, where) in codes(tmp_path, level)
        assert not verify(tmp_path, level=level).sound
    for finding in verify(tmp_path, level="full").findings:
        assert finding.severity != "error" or finding.fix


HARMLESS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "an older offset missing": (deleted("offsets/1"), ["offsets-gap"]),
    "an older offset truncated": (truncated("offsets/1"), ["unparseable-file"]),
    "an older commit missing": (deleted("commits/1"), ["commits-gap"]),
    "older commits swapped": (swapped("commits/2", "commits/1"), ["watermark-mismatch"]),
    "source entries swapped": (swapped("sources/0/2", "sources/0/1"), ["wrong-entry", "wrong-entry"]),
    "source entry copied on": (copied("sources/0/3", "sources/0/4"), ["wrong-entry"]),
    "operator metadata empty": (empty("state/0/_metadata/metadata"), ["empty-file"]),
    "operator metadata missing": (deleted("state/0/_metadata/metadata"), ["missing-operator-metadata"]),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_no_error_where_the_next_start_works(tmp_path: Path, name: str) -> None:
    damage, expected = HARMLESS[name]
    damage(handmade.stateful(tmp_path))
    verdict = verify(tmp_path, level="full")
    assert verdict.sound
    assert [finding.code for finding in verdict.findings] == expected


def test_a_source_entry_of_the_batch_that_is_repeated_must_be_its_own(tmp_path: Path) -> None:
    remove(handmade.stateless(tmp_path) / "commits" / "3")
    handmade.entry(tmp_path, 3, batch=2)
    for level in ("quick", "full"):
        assert codes(tmp_path, level) == [("error", "wrong-entry", "sources/0/3")]


def test_a_wrong_checksum_alone_is_a_warning(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    for where in ("offsets/3", "commits/3", "metadata", "sources/0/3", "state/0/0/4.delta"):
        checksums = handmade.sidecar(tmp_path / where)
        original = checksums.read_bytes()
        checksums.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        assert codes(tmp_path) == [("warning", "wrong-checksum", where)]
        checksums.write_bytes(original)


def test_state_with_a_wrong_checksum_is_checked_by_its_block_checksums(tmp_path: Path) -> None:
    """LZ4 blocks have their own checksum, which Spark compares: damage in a block is more than a wrong sidecar."""
    handmade.stateful(tmp_path)
    block = (
        b"LZ4Block" + bytes([0x15]) + (3).to_bytes(4, "little") * 2 + (0x12345).to_bytes(4, "little") + b"abc"
    )
    delta = tmp_path / "state" / "0" / "0" / "4.delta"
    delta.write_bytes(block + handmade.EMPTY_STREAM)
    assert ("error", "damaged-state", "state/0/0/4.delta") in codes(tmp_path)


@pytest.mark.parametrize(("pinned", "severity"), [(True, "warning"), (False, "error")])
def test_a_damaged_snapshot_with_an_older_one(tmp_path: Path, pinned: bool, severity: str) -> None:
    """Spark 4.2 falls back to the deltas; older versions, recognized by the pinned settings, fail."""
    handmade.stateful(tmp_path)
    handmade.write(handmade.delta(tmp_path, 4, suffix="snapshot"), b"")
    if not pinned:
        handmade.offsets(tmp_path, 3, json.dumps({"logOffset": 3}), watermark=30, conf=handmade.OLDER_CONF)
    assert codes(tmp_path, "quick") == [(severity, "empty-file", "state/0/0/4.snapshot")]


def test_a_missing_delta_below_a_snapshot_does_not_matter(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    for partition in (0, 1):
        handmade.delta(tmp_path, 3, partition=partition, suffix="snapshot")
        remove(tmp_path / "state" / "0" / str(partition) / "2.delta")
    assert codes(tmp_path) == []


def test_state_without_offsets(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    for folder in ("offsets", "commits"):
        shutil.rmtree(tmp_path / folder)
    assert ("error", "state-without-offsets", "state") in codes(tmp_path, "quick")


@pytest.mark.parametrize(("batch", "watermark", "stateful"), [(2, 30, True), (3, 30, False), (2, 20, False)])
def test_all_state_missing_after_a_no_data_batch(
    tmp_path: Path, batch: int, watermark: int, stateful: bool
) -> None:
    """Only a query with operators runs a batch for a watermark alone; nothing else in the logs reveals them."""
    handmade.stateful(tmp_path)
    handmade.offsets(tmp_path, 3, json.dumps({"logOffset": batch}), watermark=watermark)
    shutil.rmtree(tmp_path / "state")
    assert (("error", "missing-state", "state") in codes(tmp_path, "quick")) is stateful


def test_state_files_with_ids_without_the_commit_that_lists_the_ids(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    for partition in (0, 1):
        handmade.delta(tmp_path, 4, partition=partition, suffix="changelog").rename(
            tmp_path / "state" / "0" / str(partition) / "4_0c9ef9ac-6d9b-4f5f-8f5c-6a2d2a3d8f11.changelog"
        )
    assert ("error", "missing-commits", "commits/3") not in codes(tmp_path, "quick")
    for batch in (3, 2):  # the ids of batch 1, which is then the last, are of another version
        remove(tmp_path / "commits" / str(batch))
    assert ("error", "missing-commits", "commits/2") in codes(tmp_path, "quick")
    shutil.rmtree(tmp_path / "commits")
    assert ("error", "missing-commits", "commits/2") in codes(tmp_path, "quick")


@pytest.mark.parametrize(
    ("repeated", "by_4_2", "fails"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_first_offsets_without_the_pinned_partitions_that_spark_4_2_compares(
    tmp_path: Path, repeated: bool, by_4_2: bool, fails: bool
) -> None:
    handmade.stateless(tmp_path, 2)
    first = {key: value for key, value in handmade.CONF.items() if "shuffle" not in key}
    last = handmade.CONF if by_4_2 else handmade.OLDER_CONF
    handmade.offsets(tmp_path, 0, json.dumps({"logOffset": 0}), conf=first)
    handmade.offsets(tmp_path, 1, json.dumps({"logOffset": 1}), conf=last)
    if repeated:
        remove(tmp_path / "commits" / "1")
    assert codes(tmp_path, "quick") == ([("error", "unpinned-partitions", "offsets/0")] if fails else [])


def reservoir(version: int, index: int, table: str = "a") -> dict[str, object]:
    position = {"reservoirId": table, "reservoirVersion": version, "index": index}
    return {"sourceVersion": 1, "isStartingVersion": False, **position}


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ({"t": {"0": 5, "1": 5}}, {"t": {"0": 6, "1": 4}}, "from 5 to 4 in partition 1 of t"),
        ({"t": {"0": 5}}, {"t": {"0": 5, "1": 0}, "u": {"0": 0}}, None),
        (reservoir(7, -1), reservoir(6, 3), "from version 7 to 6"),
        (reservoir(7, 3), reservoir(7, 2), "from file 3 to file 2 of version 7"),
        (reservoir(7, 3), reservoir(0, -1, table="b"), None),
        (9, 8, "from 9 to 8"),
        (8, 9, None),
    ],
)
def test_offsets_that_go_back(tmp_path: Path, before: object, after: object, what: str | None) -> None:
    handmade.write(tmp_path / "metadata", json.dumps({"id": handmade.QUERY_ID}))
    for batch, offset in enumerate((before, after)):
        handmade.offsets(tmp_path, batch, json.dumps(offset))
        handmade.commit(tmp_path, batch)
    for level in ("quick", "full"):
        findings = verify(tmp_path, level=level).findings
        assert [(finding.severity, finding.code) for finding in findings] == (
            [("error", "offsets-go-back")] if what else []
        )
        assert what is None or what in findings[0].what


def test_a_commit_that_lowers_the_watermark(tmp_path: Path) -> None:
    handmade.commit(handmade.stateful(tmp_path), 3, 20)  # its batch ran under 30
    assert codes(tmp_path, "quick") == [("error", "watermark-goes-back", "commits/3")]


@pytest.mark.parametrize("key_types", [[], ["void"]])
def test_an_operator_whose_rows_have_one_key_has_one_partition(tmp_path: Path, key_types: list[str]) -> None:
    """Measured: the metadata of a global limit or aggregation has the shuffle partitions all the same."""
    shutil.rmtree(handmade.stateful(tmp_path) / "state" / "0" / "1")
    handmade.operator(tmp_path, partitions=5)
    handmade.schema(tmp_path, *key_types)
    for level in ("quick", "full"):
        assert codes(tmp_path, level) == []
    assert inspect(tmp_path).operators[0].operator.partitions == 1
    remove(tmp_path / "state" / "0" / "0" / "3.delta")
    assert codes(tmp_path, "quick") == [("error", "missing-state", "state/0/0/3.delta")]


def test_an_operator_with_keys_has_the_partitions_of_its_metadata(tmp_path: Path) -> None:
    """The pinned conf says two; Spark takes the metadata's number."""
    handmade.schema(handmade.stateful(tmp_path), "string")
    handmade.operator(tmp_path, partitions=3)
    assert ("error", "missing-state", "state/0/2/1.delta") in codes(tmp_path, "quick")
    for version in range(1, 5):
        handmade.delta(tmp_path, version, partition=2)
    assert codes(tmp_path, "quick") == []


def test_a_commit_without_a_watermark_lowers_none(tmp_path: Path) -> None:
    """Before Spark 2.4 a commit had no watermark: it is unknown, not zero."""
    handmade.stateful(tmp_path)
    for batch in (2, 3):
        handmade.write(tmp_path / "commits" / str(batch), "v1\n{}")
    for level in ("quick", "full"):
        assert codes(tmp_path, level) == []
    assert inspect(tmp_path).watermark_ms == 30


def test_a_missing_operator_of_several(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    (tmp_path / "state" / "0").rename(tmp_path / "state" / "1")
    handmade.operator(tmp_path, 1).rename(tmp_path / "state" / "1" / "_metadata" / "metadata")
    assert ("error", "missing-state", "state/0") in codes(tmp_path, "quick")


@pytest.mark.parametrize(
    ("name", "severity"), [("symmetricHashJoin", "warning"), ("transformWithStateInPandasExec", "error")]
)
def test_a_missing_schema_that_the_operator_names(tmp_path: Path, name: str, severity: str) -> None:
    handmade.stateful(tmp_path)
    remove(tmp_path / "state" / "0" / "_metadata" / "metadata")
    schema = tmp_path / "state" / "0" / "_stateSchema" / "default" / "0_a"
    handmade.operator(tmp_path, name=name, schema=schema)
    handmade.write(tmp_path / "state" / "0" / "0" / "4.snapshot", handmade.EMPTY_STREAM)
    handmade.write(tmp_path / "state" / "0" / "1" / "4.snapshot", handmade.EMPTY_STREAM)
    for level in ("quick", "full"):
        assert (severity, "missing-file", "state/0/_stateSchema/default/0_a") in codes(tmp_path, level)
        assert verify(tmp_path, level=level).sound is (severity == "warning")


def test_a_store_that_only_other_partitions_have(tmp_path: Path) -> None:
    """Before Spark 4 only their folders name the stores of a join."""
    handmade.stateful(tmp_path)
    remove(tmp_path / "state" / "0" / "_metadata" / "metadata")
    for partition in (0, 1):
        folder = tmp_path / "state" / "0" / str(partition)
        for store in ("left", "right"):
            shutil.copytree(folder, folder.with_name("new") / store)
        shutil.rmtree(folder)
        folder.with_name("new").rename(folder)
    assert verify(tmp_path, level="full").sound
    shutil.rmtree(tmp_path / "state" / "0" / "0" / "left")
    for level in ("quick", "full"):
        assert ("error", "missing-state", "state/0/0/left/1.delta") in codes(tmp_path, level)


@pytest.mark.parametrize("name", ["007", "+9", "-1"])
def test_a_name_that_only_a_jvm_parses_as_a_batch(tmp_path: Path, name: str) -> None:
    handmade.write(handmade.stateless(tmp_path) / "offsets" / name, "v1")
    assert ("error", "unexpected-name", f"offsets/{name}") in codes(tmp_path, "quick")


def test_leftovers_are_counted_once(tmp_path: Path) -> None:
    handmade.stateless(tmp_path)
    for name in (".4.9c1b.tmp", ".4.77aa.tmp"):
        (tmp_path / "commits" / name).write_text("x")
    assert codes(tmp_path) == [("info", "leftover-temporary", "commits/.4.77aa.tmp")]


@pytest.mark.parametrize(
    ("sink_batch", "last_commit", "expected"),
    [
        (3, 3, []),
        (9, 3, [("error", "sink-ahead")]),
        (3, 2, [("warning", "sink-has-uncommitted-batch")]),
        (2, 2, []),
        (2, 3, [("error", "sink-behind")]),
        (0, 2, [("error", "sink-behind")]),
        (-1, 3, [("error", "sink-behind")]),
    ],
)
def test_the_table_against_the_checkpoint(
    tmp_path: Path, sink_batch: int, last_commit: int, expected: list[tuple[str, str]]
) -> None:
    handmade.stateless(tmp_path)
    for batch in range(last_commit + 1, 4):
        remove(tmp_path / "commits" / str(batch))
    findings = codes(tmp_path, "quick", sink_batch=sink_batch)
    assert [(severity, code) for severity, code, _ in findings] == expected


def test_a_table_that_is_older_than_its_checkpoint_is_compared_batch_by_batch(tmp_path: Path) -> None:
    (finding,) = verify(handmade.stateless(tmp_path), level="quick", sink_batch=1).findings
    assert (finding.code, finding.where) == ("sink-behind", "commits/3")
    assert "Batch 3 is committed, and the newest batch in the table is 1" in finding.what
    assert "batches 2 to 3" in finding.what


@pytest.mark.parametrize(
    ("sink_batch", "severity"), [(None, "error"), (0, "error"), (1, "error"), (2, "warning"), (3, "warning")]
)
@pytest.mark.parametrize("commits", [[], [0, 1]])
def test_two_batches_without_a_commit_unless_the_table_has_the_earlier_one(
    tmp_path: Path, sink_batch: int | None, severity: str, commits: list[int]
) -> None:
    """Spark repeats only the last one: the rows of the earlier one are lost unless they were written."""
    handmade.stateless(tmp_path)
    for batch in set(range(4)) - set(commits):
        remove(tmp_path / "commits" / str(batch))
    code = "several-uncommitted" if commits else "missing-commits"
    for level in ("quick", "full"):
        findings = verify(tmp_path, level=level, sink_batch=sink_batch).findings
        assert [finding.severity for finding in findings if finding.code == code] == [severity]
        assert all(finding.fix for finding in findings if finding.severity == "error")


@pytest.mark.parametrize("sink_batch", [None, 2, 3])
def test_the_advice_for_damaged_offsets_spares_batches_that_a_sink_has(
    tmp_path: Path, sink_batch: int | None
) -> None:
    """Without offsets/3 the next start forms another batch 3, and a sink that has batch 3 skips its rows."""
    remove(handmade.stateless(tmp_path) / "commits" / "3")
    truncated("offsets/3")(tmp_path)
    (finding,) = (
        finding
        for finding in verify(tmp_path, level="quick", sink_batch=sink_batch).findings
        if finding.code == "unparseable-file"
    )
    if sink_batch == 3:
        assert "Do not delete offsets/3: the table has batch 3" in finding.fix
    else:
        assert "delete offsets/3" in finding.fix
        assert "quarantine" in finding.fix
        assert "no sink has batch 3" in finding.fix
    assert "skips" in finding.fix


def test_the_advice_for_the_offsets_before_the_last_never_deletes_the_last(tmp_path: Path) -> None:
    remove(handmade.stateless(tmp_path) / "commits" / "3")
    truncated("offsets/2")(tmp_path)
    fixes = {finding.where: finding.fix for finding in verify(tmp_path, level="quick").findings}
    assert "delete" not in fixes["offsets/2"]


@pytest.mark.parametrize("sink_batch", [None, 3])
def test_the_advice_for_a_commit_without_offsets_spares_batches_that_a_sink_has(
    tmp_path: Path, sink_batch: int | None
) -> None:
    remove(handmade.stateless(tmp_path) / "offsets" / "3")
    findings = verify(tmp_path, level="quick", sink_batch=sink_batch).findings
    (finding,) = (finding for finding in findings if finding.code == "commit-without-offsets")
    if sink_batch == 3:
        assert "Do not delete commits/3: the table has batch 3" in finding.fix
    else:
        assert "no sink has batch 3" in finding.fix


def test_findings_are_sorted_by_severity_and_progress_reaches_its_end(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    truncated("offsets/1")(tmp_path)
    remove(tmp_path / "sources" / "0" / "1")
    progress: list[tuple[int, int]] = []
    verdict = verify(tmp_path, level="full", on_progress=lambda done, total: progress.append((done, total)))
    assert [finding.severity for finding in verdict.findings] == ["error", "warning"]
    assert progress[-1][0] == progress[-1][1] > 0
    assert isinstance(verdict.findings[0], Finding)
