"""The checks of `state/`: can the version that the next start loads be rebuilt, in every partition?"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.streaming.checkpoint.check_logs import NEW_LIFE
from pipelines.streaming.checkpoint.commits import CommitEntry
from pipelines.streaming.checkpoint.damage import Damage
from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.findings import Findings
from pipelines.streaming.checkpoint.inspection import PROVIDER_CONF, Inspection
from pipelines.streaming.checkpoint.rocksdb import lineage, snapshot_tables
from pipelines.streaming.checkpoint.state_files import (
    Provider,
    Rebuild,
    StateFile,
    provider_of,
    rebuilds,
    rebuilds_by_id,
)
from pipelines.streaming.checkpoint.tail import readable_offset

_LOST = f"The state of this partition is lost. {NEW_LIFE}"
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Store:
    """One store in one partition, and what is needed of it."""

    place: str
    files: tuple[StateFile, ...]
    provider: Provider
    version: int
    unique_id: str | None
    families: bool


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The check of one checkpoint's state.

    Attributes:
        folder: The checkpoint.
        seen: What is in it.
        damage: Which of its files are damaged.
        found: Where findings go.
    """

    folder: Folder
    seen: Inspection
    damage: Damage
    found: Findings

    def run(self) -> None:
        """Checks every operator, store and partition."""
        start = self.seen.next_start
        if start is None:
            return
        if start.kind == "first_run":
            if any(view.files for view in self.seen.operators):
                self.found.add(
                    "error",
                    "state-without-offsets",
                    "state",
                    "There is state and no batch was ever planned: the next start refuses the folder.",
                    "Restore offsets/ and commits/ from a copy; without one, use a new, empty folder.",
                )
        elif start.batch_id > 0:
            commit = self.seen.latest_commit
            if commit is not None and commit.batch_id != start.batch_id - 1:
                commit = None
            stores = tuple(self._stores(start.batch_id, commit))
            if commit is None and any(file.unique_id for store in stores for file in store.files):
                self._ids_lost(start.batch_id - 1)
            else:
                for store in stores:
                    self._store(store)
            self._missing_operators()

    def _ids_lost(self, batch: int) -> None:
        what = f"Only commits/{batch} says which files of the state hold, and it is not there: the next start fails."
        self.found.add("error", "missing-commits", f"commits/{batch}", what, NEW_LIFE)

    def _stores(self, version: int, commit: CommitEntry | None) -> Iterator[_Store]:
        """Every store in every partition; `commit` is that of the batch which left the version, where known."""
        ids = commit.state_unique_ids if commit is not None else None
        rocksdb = "RocksDB" in self.seen.conf.get(PROVIDER_CONF, "")
        for view in self.seen.operators:
            order = [store.name for store in view.operator.stores]
            for store, partition, place in view.operator.folders():
                parsed = (StateFile.parse(name) for name in self.folder.names(place))
                files = tuple(file for file in parsed if file)
                unique = None
                if ids is not None:
                    of_operator = ids.get(view.operator.id, ())
                    of_partition = of_operator[partition] if partition < len(of_operator) else ()
                    number = order.index(store.name)
                    unique = of_partition[number] if number < len(of_partition) else "<id>"
                provider = provider_of(files) or ("rocksdb" if rocksdb else "hdfs")
                yield _Store(place, files, provider, version, unique, families=bool(store.schema_files))

    def _missing_operators(self) -> None:
        """Operators whose folder is gone as a whole: the ids in the commit log and their own numbers tell."""
        commit = self.seen.latest_commit
        there = {view.operator.id for view in self.seen.operators}
        known = set((commit.state_unique_ids if commit is not None else None) or ())
        known |= set(range(max(there, default=-1) + 1))  # Spark numbers them from 0, without a gap
        for operator in sorted(known - there):
            self.found.add(
                "error", "missing-state", f"state/{operator}", "The operator's state is gone.", _LOST
            )
        if not known and (why := self._was_stateful()):
            what = f"The state is gone: {why}, so the query has operators with state."
            self.found.add("error", "missing-state", "state", what, _LOST)

    def _was_stateful(self) -> str:
        """What tells that a checkpoint without any operator had one; empty when nothing does."""
        if self.folder.item("state") is not None:
            return "its folder is there and empty"
        latest = self.seen.latest_offset
        before = latest and readable_offset(self.folder, latest.batch_id - 1)
        if (
            latest
            and before
            and before.sources == latest.sources
            and before.watermark_ms < latest.watermark_ms
        ):
            return f"batch {latest.batch_id} had no new data, and gave out what a watermark had closed"
        return ""

    def _store(self, store: _Store) -> None:
        first: list[CheckpointFormatError] = []
        for way in self._ways(store):
            problems = list(self._problems(store, way))
            if not problems:
                self._worked_around(store, first)
                return
            first = first or problems
        for problem in first[:_SHOWN]:
            means = f"Version {store.version} of the state cannot be rebuilt: the next start fails."
            self.found.problem(problem, means=means, fix=_LOST)

    def _worked_around(self, store: _Store, problems: list[CheckpointFormatError]) -> None:
        # Spark 4.2 goes on to an older snapshot when one is damaged.
        repairs = self.seen.since_spark_4_2 and store.unique_id is None
        for problem in problems[:_SHOWN]:
            self.found.problem(
                problem,
                severity="warning" if repairs else "error",
                means="An older snapshot and the changes after it give the same state; "
                + (
                    "Spark takes them." if repairs else "Spark 4.0 and, with state ids, 4.2 do not take them."
                ),
                fix="" if repairs else "Delete the snapshot and its sums: the older one is taken then.",
            )

    def _ways(self, store: _Store) -> Iterator[Rebuild]:
        # Measured with Spark 4.2: column families are made in a snapshot, and no changelog makes them again.
        from_empty = not store.families
        if store.unique_id is None:
            return rebuilds(store.files, store.version, store.provider, from_empty=from_empty)
        changelog = StateFile(store.version, store.unique_id, "changelog")
        where = f"{store.place}/{changelog.name}"
        before: dict[int, str] = {}
        if changelog in store.files and self.damage.problem(where) is None:
            try:
                with self.folder.opened(where) as file:
                    before = dict(lineage(where, file))
            except CheckpointFormatError:
                before = {}  # another codec than lz4: snapshots alone can be judged
        return rebuilds_by_id(store.files, store.version, store.unique_id, before, from_empty=from_empty)

    def _problems(self, store: _Store, way: Rebuild) -> Iterator[CheckpointFormatError]:
        for name in way.missing:
            where = f"{store.place}/{name}"
            yield CheckpointFormatError(where, "The file is missing.", code="missing-state")
        for file in way.files:
            path = f"{store.place}/{file.name}"
            if problem := self.damage.problem(path):
                yield problem
            elif file.suffix == "zip":
                yield from self._table_problems(store.place, path)

    def _table_problems(self, place: str, path: str) -> Iterator[CheckpointFormatError]:
        with self.folder.opened(path) as file:
            tables = snapshot_tables(path, file)
        for table in tables:
            where = f"{place}/SSTs/{table.name}"
            item = self.folder.item(where)
            if item is None:
                yield CheckpointFormatError(
                    where, f"{path} needs it and it is missing.", code="missing-state"
                )
            elif item.size != table.size:
                what = f"It has {item.size} bytes; {path} says {table.size}."
                yield CheckpointFormatError(where, what, code="damaged-state")
            elif problem := self.damage.problem(where):
                yield problem
