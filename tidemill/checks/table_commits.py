"""The commits of a stream's tables: each batch has exactly one, and nothing else changed the rows."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidemill.connectors.delta.rows import rows_added
from tidemill.definitions.sink import transaction_app_id
from tidemill.records.stream_records import StreamRecords
from tidemill.run.batch.quarantine import has_quarantine
from tidemill.sinks.shared_append import appending
from tidemill.storage import delta_log
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.delta_log import Commit
from tidemill.tables.commit_counts import rows_written
from tidemill.text.names import MAIN_SINK, QUARANTINE
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.definitions.stream import Stream
    from tidemill.records.batch import BatchRecord
    from tidemill.storage.table_ref import TableRef

_RESTORE = "Restore the table and the checkpoint of the same time."
_FROM_A_COPY = "Restore its file from a copy."


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What the log of one table shows about some batches.

    Attributes:
        findings: What is wrong, a sentence each.
        version: The version up to which its commits are accounted for; None before the first.
        rows: The rows that the commits of the batches have written.
        commits: The commits of the batches.
    """

    findings: tuple[str, ...] = ()
    version: int | None = None
    rows: int = 0
    commits: int = 0


def sinks_of(stream: "Stream") -> tuple[str, ...]:
    """Return the names of a stream's tables: its sinks, and the quarantine where it has one."""
    names = tuple(sink.name for sink in stream.tables)
    return (*names, QUARANTINE) if has_quarantine(stream) else names


@dataclass(frozen=True, slots=True)
class _TableCommit:
    """One commit of a batch.

    Attributes:
        rows_in_files: The rows in the files that it adds; None where they have no statistics.
    """

    commit: Commit
    rows_in_files: int | None

    @property
    def version(self) -> int:
        return self.commit.version

    @property
    def rows(self) -> int | None:
        """The rows that it states to have written."""
        return rows_written(self.commit, commit_metadata(self.commit))


@dataclass(frozen=True, kw_only=True)
class TableLog:
    """The log of one table, to be compared with the batches of its stream.

    Attributes:
        sink: The name of the sink, or `quarantine`.
        batches: The batches to account for.
        lines: The ledger's lines by batch.
        known: The version up to which the commits are accounted for; None where no check has examined them.
    """

    context: "CheckContext"
    sink: str
    batches: range
    lines: "Mapping[int, BatchRecord]"
    known: int | None

    def report(self) -> TableReport:
        """Compare the commits with the batches."""
        versions = self._versions
        if not versions:
            return TableReport(findings=tuple(self._without_log()), version=self.known)
        if self.known is not None and versions[-1] < self.known:
            what = (
                f"The table {self._name} ends at version {versions[-1]}, and version {self.known} existed at the last "
                f"check: an older copy was restored, and the rows in between are missing. {_RESTORE}"
            )
            return TableReport(findings=(what,), version=self.known)
        own, foreign = self._commits
        findings = [*self._holes(), *map(self._foreign, foreign), *self._misplaced()]
        expected = [batch for batch in self.batches if batch >= self._oldest]
        for batch in expected:
            findings += self._of_batch(batch, own.get(batch, []))
        commits = [commit for batch in expected for commit in own.get(batch, [])]
        accounted = [
            commit.version for batch, of in own.items() if batch < self.batches.stop for commit in of
        ]
        return TableReport(
            findings=tuple(findings),
            version=max(accounted, default=self.known),
            rows=sum(commit.rows or 0 for commit in commits),
            commits=len(commits),
        )

    @cached_property
    def _folder(self) -> "TableRef":
        return self.context.snapshot.records.table(self.sink)

    @property
    def _name(self) -> str:
        return self._folder.name

    @cached_property
    def _versions(self) -> list[int]:
        return self._folder.log.versions()

    @cached_property
    def _app_id(self) -> str:
        return transaction_app_id(self.context.snapshot.query_id or "", self.sink)

    @cached_property
    def _start(self) -> int:
        """The first version to account for; without a check before, it is found from the end of the log."""
        if self.known is not None:
            return self.known + 1
        if self.batches.start == 0 or not self.batches:
            return 0
        own = self._folder.log.commits_of_batches(self._app_id, self.batches.start)
        return min((commit.version for commit in own.values()), default=0)

    @cached_property
    def _commits(self) -> tuple[dict[int, list[_TableCommit]], list[Commit]]:
        """The commits of batches, by batch, and the other ones that changed rows."""
        own: dict[int, list[_TableCommit]] = defaultdict(list)
        foreign = []
        for number in (number for number in self._versions if number >= self._start):
            actions = self._folder.log.actions(number)
            if actions is None:
                continue
            commit = delta_log.commit_of(number, actions)
            batch = self._batch_of(commit)
            if batch is not None:
                own[batch].append(_TableCommit(commit, rows_added(actions)))
            elif (commit.adds_rows or commit.removes_rows) and not self._is_known(commit):
                foreign.append(commit)
        return own, foreign

    def _batch_of(self, commit: Commit) -> int | None:
        """Return the batch of the stream that a commit belongs to; None for a commit of somebody else."""
        metadata = commit_metadata(commit)
        if metadata.get("operation") in self._operations:
            return None  # a rewind marks a table with the last batch that it kept
        if self._app_id in commit.transactions:
            return commit.transactions[self._app_id]
        if self.sink != QUARANTINE or commit.transactions:
            return None
        # A repeat replaces records, without a transaction; one of an earlier release has no generation.
        active = self.context.snapshot.generation
        batch = metadata.get("batch_id") if metadata.get("generation", active) == active else None
        return batch if isinstance(batch, int) else None

    @cached_property
    def _operations(self) -> frozenset[str]:
        """The ids of the stream's operations, such as a rewind or a backfill."""
        records = self.context.snapshot.records
        current = records.operation()
        return frozenset(
            operation.id for operation in (*records.operations(), *(() if current is None else (current,)))
        )

    def _is_known(self, commit: Commit) -> bool:
        """Return whether a commit belongs to an operation or to an earlier generation of the stream."""
        metadata = commit_metadata(commit)
        if metadata.get("operation") in self._operations:
            return True
        if self._is_appended(commit):
            return True
        manifest = self.context.snapshot.manifest
        earlier = () if manifest is None else manifest.generations[:-1]
        if self.sink == QUARANTINE and metadata.get("generation") in [one.number for one in earlier]:
            return True
        return any(
            transaction_app_id(generation.query_id, self.sink) in commit.transactions
            for generation in earlier
            if generation.query_id is not None
        )

    def _is_appended(self, commit: Commit) -> bool:
        """Return whether a commit is of another stream, which appends to the table."""
        writers = self._others.get(str(commit_metadata(commit).get("appended_by")), frozenset())
        return any(app.partition("/")[0] in writers for app in commit.transactions)

    @cached_property
    def _others(self) -> dict[str, frozenset[str]]:
        """The ids with which other streams append to the table, by stream."""
        records = self.context.snapshot.records
        names = appending(records.control) if self.sink == MAIN_SINK else []
        return {str(name): _writers(StreamRecords(records.lake, name)) for name in names}

    @property
    def _begins(self) -> int | None:
        """The first batch of a sink that was accepted later; None of one that has all batches."""
        manifest = self.context.snapshot.manifest
        return None if manifest is None else manifest.active.sinks_begin.get(self.sink)

    @property
    def _oldest(self) -> int:
        """The oldest batch that must be in the table: a sink that was added later has none of those before it."""
        if self._begins is not None:
            return self._begins
        if self.known is not None or self.batches.start == 0 or self.sink == MAIN_SINK:
            return 0
        return min(self._commits[0], default=0)

    def _without_log(self) -> Iterator[str]:
        """Yield what is wrong with a table that does not exist; a quarantine exists from its first record on."""
        expected = len(self.batches)
        if self.sink == QUARANTINE:
            expected = sum(bool(line.rows_quarantined) for line in self.lines.values())
        if expected:
            rows = f"with the rows of {pluralize(expected, 'batch')}"
            yield f"The table {self._name} is missing, {rows}. {_RESTORE}"
        elif self.known is not None and self.sink != QUARANTINE:
            yield f"The table {self._name} is missing, and version {self.known} existed at the last check. {_RESTORE}"

    def _holes(self) -> Iterator[str]:
        """Yield the versions whose file is missing, other than those that the log's cleanup has removed."""
        present = set(self._versions)
        for number in range(max(self._start, self._versions[0]), self._versions[-1] + 1):
            if number not in present:
                yield (
                    f"Version {number} is missing in the log of {self._name}: the rows of its batch can no longer be "
                    f"read. {_FROM_A_COPY}"
                )

    def _foreign(self, commit: Commit) -> str:
        rows = "" if commit.rows_written is None else f" of {pluralize(commit.rows_written, 'row')}"
        others = ", ".join(f"{app} {number}" for app, number in commit.transactions.items())
        transaction = f" (transaction {others})" if others else ""
        return (
            f"Version {commit.version} of {self._name} ({commit.operation or 'unknown operation'}{rows}) changed rows "
            f"and belongs to no batch of the stream{transaction}: another program wrote it, or a batch twice. "
            f"{self._undo(commit.version)}"
        )

    def _misplaced(self) -> Iterator[str]:
        """Yield batches that the table has and should not have here: earlier ones again, or later ones."""
        last_commit = self.context.snapshot.last_commit
        for batch, commits in self._commits[0].items():
            version = f"Version {commits[0].version} of {self._name}"
            # A sink was filled as a batch that an earlier check has compared in the other tables.
            is_filled = self.known is None and batch == self._begins and len(commits) == 1
            if batch < self.batches.start and not is_filled:
                yield (
                    f"{version} has batch {batch} again, which an earlier version had: its rows are in the table "
                    f"twice. {self._undo(commits[0].version)}"
                )
            elif batch > last_commit + 1:
                yield (
                    f"{version} has batch {batch}, and the checkpoint ends at batch {last_commit}: the checkpoint is "
                    f"older than the table. {_RESTORE}"
                )

    def _undo(self, version: int) -> str:
        return (
            f"Compare versions {version - 1} and {version} of the table, and delete what is there twice. Then, or if "
            f"the change was intended: tidemill accept {self.context.stream.name} --findings."
        )

    def _of_batch(self, batch: int, commits: Sequence[_TableCommit]) -> Iterator[str]:
        """Yield what is wrong with the commits of one batch."""
        if self.sink == QUARANTINE:
            yield from self._refused(batch, commits)
        elif not commits and self._wrote_nothing(batch):
            return
        elif not commits:
            yield (
                f"Batch {batch} is committed in the checkpoint, and no version of {self._name} has it: its rows are "
                f"missing. {_RESTORE}"
            )
        elif len(commits) > 1:
            numbers = " and ".join(str(commit.version) for commit in commits)
            yield (
                f"The versions {numbers} of {self._name} both have batch {batch}: its rows are in the table twice. "
                f"{self._undo(commits[-1].version)}"
            )
        else:
            yield from self._rows(batch, commits[0])

    def _wrote_nothing(self, batch: int) -> bool:
        """Return whether a batch that fired timers had no rows to write, and so has no commit."""
        line = self.lines.get(batch)
        return line is not None and line.follows is not None

    def _counts(self, batch: int) -> dict[str, Any]:
        """Return what the batch of a feed has counted, which its commit may not have."""
        snapshot = self.context.snapshot
        counts = snapshot.records.counts(snapshot.generation, batch, snapshot.query_id or "")
        return {} if counts is None else _known(asdict(counts))

    def _refused(self, batch: int, commits: Sequence[_TableCommit]) -> Iterator[str]:
        """Compare the records in quarantine with those that the batch refused; a repeat has replaced earlier ones."""
        line = self.lines.get(batch)
        refused = None if line is None else line.rows_quarantined
        present = commits[-1].rows if commits else 0
        if refused is not None and present is not None and present != refused:
            yield (
                f"Batch {batch} refused {pluralize(refused, 'record')}, and its commit in {self._name} has "
                f"{present:,}: records are missing or there twice. {_RESTORE}"
            )

    def _rows(self, batch: int, one: _TableCommit) -> Iterator[str]:
        """Compare the counts of a commit with its files and with the ledger."""
        where = f"version {one.version} of {self._name}"
        [sink] = (sink for sink in self.context.stream.tables if sink.name == self.sink)
        merges = sink.rows_are_replaced
        if (
            not merges
            and sink.has_rows
            and None not in (one.rows, one.rows_in_files)
            and one.rows != one.rows_in_files
        ):
            yield (
                f"The files of {where} have {one.rows_in_files:,} rows, and its commit states {one.rows:,}: the log "
                f"was changed. {_FROM_A_COPY}"
            )
        line = self.lines.get(batch)
        if line is None or self.sink != MAIN_SINK:
            return
        metadata = {**self._counts(batch), **_known(commit_metadata(one.commit))}
        if not merges and None not in (line.rows_out, line.rows_dropped, one.rows):
            refused = line.rows_out_quarantined or 0
            kept = (line.rows_out or 0) - (line.rows_dropped or 0) - refused
            if kept != one.rows:
                also = f", {refused:,} went to quarantine" if refused else ""
                yield (
                    f"Batch {batch}: {pluralize(line.rows_out or 0, 'row')} left the function, "
                    f"{line.rows_dropped:,} were dropped{also}, and {where} has {one.rows:,}: "
                    f"rows are missing or there twice. {_RESTORE}"
                )
        for what, logged, recorded in (
            ("rows written", one.rows, line.rows_written),
            ("records read", metadata.get("rows_read"), line.rows_read),
            ("records in quarantine", metadata.get("rows_quarantined"), line.rows_quarantined),
            ("rows out of the function", metadata.get("rows_out"), line.rows_out),
            ("rows dropped", metadata.get("rows_dropped"), line.rows_dropped),
            ("Delta version", one.version, line.delta_version),
        ):
            if logged is not None and recorded is not None and logged != recorded:
                yield (
                    f"The ledger's line of batch {batch} has {recorded:,} as its {what}, and {where} has {logged:,}: "
                    "the line was changed, or the table was. Restore both from a copy of the same time."
                )


def _writers(records: StreamRecords) -> frozenset[str]:
    """Return the ids with which a stream writes: those of its queries and of its operations."""
    manifest, current = records.manifest(), records.operation()
    generations = () if manifest is None else manifest.generations
    operations = (*records.operations(), *(() if current is None else (current,)))
    ids = [generation.query_id for generation in generations]
    return frozenset(filter(None, [*ids, *(operation.id for operation in operations)]))


def _known(counts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: count for name, count in counts.items() if count is not None}
