"""Which files of a state store a version is rebuilt from, told by their names alone.

A store keeps, for every version (batch + 1), either the whole state (`V.snapshot`, `V.zip`) or what changed
(`V.delta`, `V.changelog`). A version is the newest whole state at or below it, then every change up to it.
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
_SHOWN = 3

Provider = Literal["hdfs", "rocksdb"]


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file of a state store.

    Attributes:
        version: The state version it holds or leads to.
        unique_id: Which of several attempts at that version; None without unique ids.
        suffix: `snapshot` or `delta` (HDFS provider), `zip` or `changelog` (RocksDB).
    """

    version: int
    unique_id: str | None
    suffix: str

    @classmethod
    def parse(cls, name: str) -> "StateFile | None":
        """The state file of a name; None for every other name."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], match[3])

    @property
    def name(self) -> str:
        """The file's name."""
        unique = "" if self.unique_id is None else f"_{self.unique_id}"
        return f"{self.version}{unique}.{self.suffix}"

    @property
    def whole(self) -> bool:
        """Whether it holds the whole state, not changes."""
        return self.suffix in _WHOLE


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One way to rebuild a version.

    Attributes:
        files: The files that are there, in the order they are read.
        missing: The names of files that are not there; at most a few are named.
    """

    files: tuple[StateFile, ...]
    missing: tuple[str, ...]

    @property
    def possible(self) -> bool:
        """Whether all files are there."""
        return not self.missing


def provider_of(files: Iterable[StateFile]) -> Provider | None:
    """Which provider wrote these files; None without any."""
    for file in files:
        return "hdfs" if file.suffix in {"snapshot", "delta"} else "rocksdb"
    return None


def rebuilds(
    files: Sequence[StateFile], version: int, provider: Provider, *, from_empty: bool = True
) -> Iterator[Rebuild]:
    """The ways to rebuild a version, as Spark tries them: from the newest whole state, then from older ones.

    Spark up to 4.0 tries the first alone; from 4.1 on it goes on to older whole states when one is damaged
    (AutoSnapshotLoader), and at last to the empty state of version 0.

    Args:
        files: The files of the store.
        version: The version.
        provider: Which provider wrote them.
        from_empty: Whether changes alone, from version 1 on, are enough.
    """
    wholes = {file.version: file for file in files if file.whole and file.version <= version}
    changes = {file.version: file for file in files if not file.whole}
    suffix = "delta" if provider == "hdfs" else "changelog"
    bases = sorted(wholes, reverse=True)
    if not (bases or from_empty):
        yield Rebuild((), (StateFile(min(changes, default=version), None, "zip").name,))
    for base in [*bases, 0] if from_empty else bases:
        have = sorted(number for number in changes if base < number <= version)
        missing = () if len(have) == version - base else tuple(_gaps(have, base, version, suffix))
        start = (wholes[base],) if base else ()
        yield Rebuild((*start, *(changes[number] for number in have)), missing)


def rebuilds_by_id(
    files: Iterable[StateFile],
    version: int,
    unique_id: str,
    lineage: Mapping[int, str],
    *,
    from_empty: bool = True,
) -> Iterator[Rebuild]:
    """The ways to rebuild the version that a unique id names.

    Args:
        files: The files of the store.
        version: The version.
        unique_id: Its id, from the commit log.
        lineage: The ids of versions before it, from the head of its changelog; empty where that has none.
        from_empty: Whether changes alone, from version 1 on, are enough.
    """
    ids = {**lineage, version: unique_id}
    known = {file.name: file for file in files}
    wholes = [
        number for number in sorted(ids, reverse=True) if StateFile(number, ids[number], "zip").name in known
    ]
    if not (wholes or from_empty):
        yield Rebuild((), (StateFile(min(ids), ids[min(ids)], "zip").name,))
    for base in [*wholes, 0] if from_empty else wholes:
        names = [] if base == 0 else [StateFile(base, ids[base], "zip").name]
        missing = []
        for number in range(base + 1, version + 1) if version - base <= len(ids) else sorted(ids):
            unique = ids.get(number)
            names.append(StateFile(number, unique or "<id>", "changelog").name)
        missing = [name for name in names if name not in known]
        if version - base > len(ids):
            missing.insert(0, f"{base + 1}_<id>.changelog")
        yield Rebuild(tuple(known[name] for name in names if name in known), tuple(missing[:_SHOWN]))


def _gaps(have: Sequence[int], base: int, version: int, suffix: str) -> Iterator[str]:
    """The first few numbers that are not there; the range itself may be absurdly long."""
    present = set(have)
    shown = 0
    for number in range(base + 1, min(version, base + len(have) + _SHOWN) + 1):
        if number not in present and shown < _SHOWN:
            shown += 1
            yield f"{number}.{suffix}"
