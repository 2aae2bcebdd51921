"""The files that a state version is rebuilt from, by their names."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.checkpoint.format.state_files import StateFile, rebuilds, rebuilds_by_id


def files(*names: str) -> list[StateFile]:
    parsed = [StateFile.parse(name) for name in names]
    assert None not in parsed
    return [file for file in parsed if file]


def test_names() -> None:
    assert StateFile.parse("12.delta") == StateFile(12, None, "delta")
    assert StateFile.parse("12_4a-0d.zip") == StateFile(12, "4a-0d", "zip")
    for name in (".12.delta.crc", "12.delta.crc", "012.delta", "x.zip", "12.sst", "-1.delta", "٣.delta"):
        assert StateFile.parse(name) is None


def test_the_newest_snapshot_and_the_changes_after_it() -> None:
    have = files("1.delta", "2.delta", "2.snapshot", "3.delta", "4.delta", "5.snapshot", "5.delta")
    ways = list(rebuilds(have, 4, "hdfs"))
    assert [file.name for file in ways[0].files] == ["2.snapshot", "3.delta", "4.delta"]
    assert [file.name for file in ways[1].files] == ["1.delta", "2.delta", "3.delta", "4.delta"]
    assert all(way.possible for way in ways)


def test_missing_changes_are_named_and_few() -> None:
    (way,) = rebuilds([], 10**15, "rocksdb")
    assert way.missing == ("1.changelog", "2.changelog", "3.changelog")


def test_ids_select_one_of_several_attempts() -> None:
    have = files("1_a.changelog", "1_x.changelog", "2_b.zip", "2_y.zip", "3_c.changelog")
    ways = list(rebuilds_by_id(have, 3, "c", {2: "b", 1: "a"}))
    assert [file.name for file in ways[0].files] == ["2_b.zip", "3_c.changelog"]
    assert ways[0].possible
    assert not next(rebuilds_by_id(have, 3, "d", {2: "b"})).possible
    assert next(rebuilds_by_id(have, 2, "b", {})).possible


@given(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)), st.integers(1, 12))
def test_a_way_is_possible_exactly_when_replaying_it_works(
    wholes: set[int], changes: set[int], version: int
) -> None:
    have = [StateFile(number, None, "zip") for number in wholes]
    have += [StateFile(number, None, "changelog") for number in changes]
    way = next(rebuilds(have, version, "rocksdb"))
    base = max((number for number in wholes if number <= version), default=0)
    assert way.possible == set(range(base + 1, version + 1)).issubset(changes)
    reached = 0
    for file in way.files:
        assert file.whole or file.version == reached + 1 or not way.possible
        reached = file.version
    assert reached == version or not way.possible
