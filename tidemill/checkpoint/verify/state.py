"""The checks of `state/`: the version that the next start loads can be rebuilt in every partition."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemill.checkpoint.format.commits import CommitEntry
from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logs import readable_offset
from tidemill.checkpoint.format.rocksdb import lineage, snapshot_tables
from tidemill.checkpoint.format.state_files import (
    Provider,
    Rebuild,
    StateFile,
    provider_of,
    rebuilds,
    rebuilds_by_id,
)
from tidemill.checkpoint.inspection import PROVIDER_CONF, Inspection
from tidemill.checkpoint.verify.damage import Damage
from tidemill.checkpoint.verify.findings import Findings
from tidemill.checkpoint.verify.logs import RESTORE

_LOST = f"The state of this partition is lost. {RESTORE}"
_MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class _Store:
    """One store in one partition, and the version that the next start loads."""

    folder: str
    files: tuple[StateFile, ...]
    provider: Provider
    version: int
    unique_id: str | None
    families: bool


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The check of one checkpoint's state.

    Attributes:
        inspection: Its contents.
        damage: Its damaged files.
        findings: The findings, which the check adds to.
    """

    folder: Folder
    inspection: Inspection
    damage: Damage
    findings: Findings

    def run(self) -> None:
        """Check every operator, store and partition."""
        start = self.inspection.next_start
        if start is None:
            return
        if start.kind == "first_run":
            if any(view.files for view in self.inspection.operators):
                self.findings.add(
                    "error",
                    "state-without-offsets",
                    "state",
                    "There is state, and no batch was ever planned: the next start refuses the folder.",
                    "Restore offsets/ and commits/ from a copy; without one, use a new, empty folder.",
                )
        elif start.batch_id > 0:
            commit = self.inspection.latest_commit
            if commit is not None and commit.batch_id != start.batch_id - 1:
                commit = None
            stores = tuple(self._stores(start.batch_id, commit))
            if commit is None and any(file.unique_id for store in stores for file in store.files):
                self._ids_lost(start.batch_id - 1)
            else:
                self.folder.fetch(self._needed(stores))
                for store in stores:
                    self._store(store)
            self._missing_operators()

    def _needed(self, stores: Iterable[_Store]) -> Iterator[str]:
        """Yield the files from which the version of each store is rebuilt first; not those that depend on others."""
        for store in stores:
            if store.unique_id is None:
                way = next(self._ways(store), None)
                yield from (f"{store.folder}/{file.name}" for file in (() if way is None else way.files))

    def _ids_lost(self, batch: int) -> None:
        what = (
            f"Only commits/{batch} has the ids of the state files, and it is missing: the next start fails."
        )
        self.findings.add("error", "missing-commits", f"commits/{batch}", what, RESTORE)

    def _stores(self, version: int, commit: CommitEntry | None) -> Iterator[_Store]:
        """Yield every store in every partition; `commit` is that of the batch that left the version, if known."""
        ids = commit.state_unique_ids if commit is not None else None
        rocksdb = "RocksDB" in self.inspection.conf.get(PROVIDER_CONF, "")
        for view in self.inspection.operators:
            order = [store.name for store in view.operator.stores]
            for store, partition, folder in view.operator.folders():
                parsed = (StateFile.parse(name) for name in self.folder.names(folder))
                files = tuple(file for file in parsed if file)
                unique = None
                if ids is not None:
                    of_operator = ids.get(view.operator.id, ())
                    of_partition = of_operator[partition] if partition < len(of_operator) else ()
                    number = order.index(store.name)
                    unique = of_partition[number] if number < len(of_partition) else "<id>"
                provider = provider_of(files) or ("rocksdb" if rocksdb else "hdfs")
                yield _Store(folder, files, provider, version, unique, families=bool(store.schema_files))

    def _missing_operators(self) -> None:
        """Check for operators without a folder: the commit log's ids and the operators' numbers reveal them."""
        commit = self.inspection.latest_commit
        present = {view.operator.id for view in self.inspection.operators}
        known = set((commit.state_unique_ids if commit is not None else None) or ())
        known |= set(range(max(present, default=-1) + 1))  # Spark numbers them from 0, without a gap
        for operator in sorted(known - present):
            self.findings.add(
                "error", "missing-state", f"state/{operator}", "The operator's state is missing.", _LOST
            )
        if not known and (why := self._was_stateful()):
            what = f"The state is missing: {why}, so the query has operators with state."
            self.findings.add("error", "missing-state", "state", what, _LOST)

    def _was_stateful(self) -> str:
        """Return the evidence that a checkpoint without any operator had one; empty without evidence."""
        if self.folder.has("state"):
            return "its folder exists and is empty"
        latest = self.inspection.latest_offset
        previous = latest and readable_offset(self.folder, latest.batch_id - 1)
        if (
            latest
            and previous
            and previous.sources == latest.sources
            and previous.watermark_ms < latest.watermark_ms
        ):
            return f"batch {latest.batch_id} had no new data, and emitted the results that a watermark had closed"
        return ""

    def _store(self, store: _Store) -> None:
        first: list[CheckpointFormatError] = []
        for way in self._ways(store):
            problems = list(self._problems(store, way))
            if not problems:
                self._fallback(store, first)
                return
            first = first or problems
        for problem in first[:_MAX_FINDINGS]:
            consequence = f"Version {store.version} of the state cannot be rebuilt: the next start fails."
            self.findings.add_problem(problem, consequence=consequence, fix=_LOST)

    def _fallback(self, store: _Store, problems: list[CheckpointFormatError]) -> None:
        # Spark 4.2 falls back to an older snapshot if one is damaged.
        falls_back = self.inspection.since_spark_4_2 and store.unique_id is None
        for problem in problems[:_MAX_FINDINGS]:
            self.findings.add_problem(
                problem,
                severity="warning" if falls_back else "error",
                consequence="An older snapshot and the changes after it result in the same state; "
                + (
                    "Spark falls back to them."
                    if falls_back
                    else "Spark 4.0 and, with state ids, Spark 4.2 do not fall back to them."
                ),
                fix=""
                if falls_back
                else "Delete the snapshot and its checksum file: Spark then uses the older one.",
            )

    def _ways(self, store: _Store) -> Iterator[Rebuild]:
        # Measured with Spark 4.2: a snapshot creates the column families, and no changelog recreates them.
        from_empty = not store.families
        if store.unique_id is None:
            return rebuilds(store.files, store.version, store.provider, from_empty=from_empty)
        changelog = StateFile(store.version, store.unique_id, "changelog")
        where = f"{store.folder}/{changelog.name}"
        earlier: dict[int, str] = {}
        if changelog in store.files and self.damage.problem(where) is None:
            try:
                with self.folder.open(where) as file:
                    earlier = dict(lineage(where, file))
            except CheckpointFormatError:
                earlier = {}  # another codec than lz4: only snapshots can be checked
        return rebuilds_by_id(store.files, store.version, store.unique_id, earlier, from_empty=from_empty)

    def _problems(self, store: _Store, way: Rebuild) -> Iterator[CheckpointFormatError]:
        for name in way.missing:
            where = f"{store.folder}/{name}"
            yield CheckpointFormatError(where, "The file is missing.", code="missing-state")
        for file in way.files:
            path = f"{store.folder}/{file.name}"
            if problem := self.damage.problem(path):
                yield problem
            elif file.suffix == "zip":
                yield from self._table_problems(store.folder, path)

    def _table_problems(self, store: str, path: str) -> Iterator[CheckpointFormatError]:
        with self.folder.open(path) as file:
            tables = snapshot_tables(path, file)
        for table in tables:
            where = f"{store}/SSTs/{table.name}"
            item = self.folder.item(where)
            if item is None:
                yield CheckpointFormatError(
                    where, f"It is missing, and {path} needs it.", code="missing-state"
                )
            elif item.size != table.size:
                what = f"It has {item.size} bytes; {path} expects {table.size}."
                yield CheckpointFormatError(where, what, code="damaged-state")
            elif problem := self.damage.problem(where):
                yield problem
