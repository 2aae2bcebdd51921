"""The files of a state store that a version is rebuilt from, by their names alone.

For every version (batch + 1) a store keeps either the whole state (`V.snapshot`, `V.zip`) or the changes
(`V.delta`, `V.changelog`). A version is the newest snapshot at or below it, then every change up to it.
With unique ids (commit log version 2) the names are `V_<id>.zip` and `V_<id>.changelog`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

_NAME = re.compile(
    r"(0|[1-9][0-9]{0,18})(?:_([0-9A-Za-z-]{1,64}))?\.(snapshot|delta|zip|changelog)", re.ASCII
)
_WHOLE = frozenset({"snapshot", "zip"})
_MAX_NAMED = 3

Provider = Literal["hdfs", "rocksdb"]


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file of a state store.

    Attributes:
        version: The state version that it has or leads to.
        unique_id: The id of the attempt at that version; None without unique ids.
        suffix: `snapshot` or `delta` (HDFS provider), `zip` or `changelog` (RocksDB).
    """

    version: int
    unique_id: str | None
    suffix: str

    @classmethod
    def parse(cls, name: str) -> "StateFile | None":
        """Return the state file of a name; None for every other name."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], match[3])

    @property
    def name(self) -> str:
        """The name of the file."""
        unique = "" if self.unique_id is None else f"_{self.unique_id}"
        return f"{self.version}{unique}.{self.suffix}"

    @property
    def whole(self) -> bool:
        """True if it has the whole state, not changes."""
        return self.suffix in _WHOLE


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One way to rebuild a version.

    Attributes:
        files: The files that exist, in the order in which they are read.
        missing: The names of missing files; at most a few are listed.
    """

    files: tuple[StateFile, ...]
    missing: tuple[str, ...]

    @property
    def possible(self) -> bool:
        """True if no file is missing."""
        return not self.missing


def provider_of(files: Iterable[StateFile]) -> Provider | None:
    """Return the provider that wrote these files; None without any."""
    for file in files:
        return "hdfs" if file.suffix in {"snapshot", "delta"} else "rocksdb"
    return None


def rebuilds(
    files: Sequence[StateFile], version: int, provider: Provider, *, from_empty: bool = True
) -> Iterator[Rebuild]:
    """Yield the ways to rebuild a version in Spark's order: from the newest snapshot, then from older ones.

    Spark up to 4.0 tries the first way only. From 4.1 on, if a snapshot is damaged, it falls back to older ones
    (AutoSnapshotLoader), and finally to the empty state of version 0.

    Args:
        files: The files of the store.
        version: The version.
        provider: The provider that wrote the files.
        from_empty: True if changes alone, from version 1 on, are enough.
    """
    snapshots = {file.version: file for file in files if file.whole and file.version <= version}
    changes = {file.version: file for file in files if not file.whole}
    suffix = "delta" if provider == "hdfs" else "changelog"
    bases = sorted(snapshots, reverse=True)
    if not (bases or from_empty):
        yield Rebuild((), (StateFile(min(changes, default=version), None, "zip").name,))
    for base in [*bases, 0] if from_empty else bases:
        have = sorted(number for number in changes if base < number <= version)
        missing = () if len(have) == version - base else tuple(_gaps(have, base, version, suffix))
        start = (snapshots[base],) if base else ()
        yield Rebuild((*start, *(changes[number] for number in have)), missing)


def rebuilds_by_id(
    files: Iterable[StateFile],
    version: int,
    unique_id: str,
    lineage: Mapping[int, str],
    *,
    from_empty: bool = True,
) -> Iterator[Rebuild]:
    """Yield the ways to rebuild the version that a unique id names.

    Args:
        files: The files of the store.
        version: The version.
        unique_id: Its id, from the commit log.
        lineage: The ids of earlier versions, from the head of its changelog; empty if that has none.
        from_empty: True if changes alone, from version 1 on, are enough.
    """
    ids = {**lineage, version: unique_id}
    known = {file.name: file for file in files}
    snapshots = [
        number for number in sorted(ids, reverse=True) if StateFile(number, ids[number], "zip").name in known
    ]
    if not (snapshots or from_empty):
        yield Rebuild((), (StateFile(min(ids), ids[min(ids)], "zip").name,))
    for base in [*snapshots, 0] if from_empty else snapshots:
        names = [] if base == 0 else [StateFile(base, ids[base], "zip").name]
        missing = []
        for number in range(base + 1, version + 1) if version - base <= len(ids) else sorted(ids):
            unique = ids.get(number)
            names.append(StateFile(number, unique or "<id>", "changelog").name)
        missing = [name for name in names if name not in known]
        if version - base > len(ids):
            missing.insert(0, f"{base + 1}_<id>.changelog")
        yield Rebuild(tuple(known[name] for name in names if name in known), tuple(missing[:_MAX_NAMED]))


def _gaps(have: Sequence[int], base: int, version: int, suffix: str) -> Iterator[str]:
    """Yield the first few missing names; the range itself may be absurdly long."""
    present = set(have)
    named = 0
    for number in range(base + 1, min(version, base + len(have) + _MAX_NAMED) + 1):
        if number not in present and named < _MAX_NAMED:
            named += 1
            yield f"{number}.{suffix}"
