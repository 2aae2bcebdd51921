"""A lake with its landing folder: data arrive, streams run, and after each run the tables are compared."""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable

from bench.changes.oracle import QUARANTINE, Commit, Oracle, Rows, State
from bench.changes.streams import Definition, declare, first_definition
from bench.changes.topics import Topics
from tidemill.errors import DefinitionError, TidemillError
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide_run
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.run.execute.results import StreamResult
from tidemill.run.spark.engine import Engine
from tidemill.storage.lake import Lake
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import FolderBinding, Target
from tidemill.text.names import StreamName

COLUMNS = {
    "messages": ("id", "customer", "amount", "at"),
    "orders": ("id", "customer", "amount", "at"),
    "customers": ("id", "seq", "name"),
    "log": ("id", "name", "kind"),
    "mirror": ("id", "seq", "name"),
    "sales": ("id", "customer", "amount", "name"),
    "unique": ("id",),
    "hourly": ("hour", "n"),
    "early": ("id",),
    "copy": ("id",),
    "totals": ("customer", "n", "amount"),
}


class DifferenceError(Exception):
    """The product did something that it must not do."""


@dataclass(frozen=True)
class Backup:
    """Copies of the folders of all streams.

    Attributes:
        root: The copies.
        definition: What was declared.
        states: The oracle's states.
        updates: How often each stream had written.
        lives: How often each stream had been rebuilt.
    """

    root: Path
    definition: Definition
    states: dict[str, State]
    updates: Counter[str]
    lives: Counter[str]


class World:
    """A lake, what is declared over it, and what its tables must contain.

    Args:
        root: An empty folder.
        engine: Where Spark sessions come from.
        rng: Every decision.
        topics: The topic of the feed `messages`, where there is a broker.

    Attributes:
        definition: What is declared.
        oracle: What the tables must contain.
        steps: What has happened.
        backups: Copies of the lake.
        updates: How often each stream has written.
        lives: How often each stream has been rebuilt.
        outcomes: The last outcome of each stream.
        history: The rows of orders by the version of its table.
        sales_sources: Every source that sales has read, by argument.
    """

    def __init__(self, root: Path, engine: Engine, rng: Random, topics: Topics | None = None) -> None:
        self.topics = topics
        self.base, self.engine, self.rng = root, engine, rng
        self.root = root / "home"
        self.definition: Definition = first_definition(messages=topics is not None)
        self.oracle = Oracle(self.definition.sources)
        if topics is not None:
            self.oracle.topics["messages"] = topics.messages
        self.steps: list[str] = []
        self.backups: list[Backup] = []
        self.updates: Counter[str] = Counter()
        self.lives: Counter[str] = Counter()
        self.outcomes: dict[str, str] = {}
        self.history: dict[int, Rows] = {}
        self.sales_sources: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._hashes: dict[tuple[str, int, int, int], str] = {}
        self._clock = 1_700_000_000

    @property
    def lake(self) -> Lake:
        """The lake."""
        return Lake.at(self.root / "lake")

    @property
    def landing(self) -> Path:
        """The landing folder."""
        return self.root / "landing"

    @property
    def target(self) -> Target:
        """The target of the runs."""
        folders = {
            feed: FolderBinding(self.landing / self.definition.folder(feed))
            for feed in ("orders", "customers")
        }
        topics = {} if self.topics is None else {"messages": self.topics.binding}
        return Target(
            name="changes", lake=self.lake, feeds={**folders, **topics}, default_binding=self.landing
        )

    @property
    def streams(self) -> list[str]:
        """The names of the streams."""
        return list(self.definition.sources)

    def number(self, what: str) -> int:
        """Return the next number of a kind."""
        self._numbers[what] += 1
        return self._numbers[what]

    def note(self, step: str) -> None:
        """Keep a step, to be printed with a difference."""
        self.steps.append(step)

    # What arrives

    def folders(self) -> list[str]:
        """Return the folders that are read now, each with the kind of its records first."""
        return sorted(
            {
                f"{name if kind == 'feed' else 'orders'} {self.definition.folder(name)}"
                for sources in self.definition.sources.values()
                for kind, name in (what.split(" ") for what in sources.values())
                if kind in ("feed", "files") and name not in ("messages", "early")
            }
        )

    def arrive(self, *, everywhere: bool = False) -> None:
        """Let files arrive in some of the folders."""
        self._clock += self.rng.randrange(7200)
        if self.topics is not None and self.rng.random() < 0.4:
            self.topics.send(self.records("orders"))
        for folder in self.folders():
            if everywhere or self.rng.random() < 0.4:
                kind, path = folder.split(" ")
                for _ in range(self.rng.choice([1, 1, 1, 2, 5])):
                    self.drop(path, self.records(kind, clean=not path.startswith("orders")))

    def records(self, kind: str, *, clean: bool = False) -> list[str]:
        """Return the lines of a new file."""
        rng = self.rng
        if kind == "customers":
            lines = []
            for _ in range(rng.randrange(1, 6)):
                # Some changes come too late, and no two of them have the same sequence.
                seq = 10 * self.number("seq") - rng.choice([0, 0, 55])
                change = {"id": (key := rng.randrange(12)), "seq": seq, "name": f"{key}.{seq}"}
                lines.append(json.dumps({**change, "removed": rng.random() < 0.3}))
            return lines
        lines = []
        for _ in range(rng.randrange(1, 8)):
            order: dict[str, int | None] = {
                "id": self.number("order") if rng.random() < 0.8 else rng.randrange(1, 50),
                "customer": rng.randrange(12),
                "amount": rng.randrange(-5, 50),
                "at": self._clock - rng.randrange(1800),
            }
            if not clean and rng.random() < 0.1:
                order["amount"] = None
            lines.append(json.dumps(order))
            if not clean and rng.random() < 0.05:
                lines.append(f"not JSON, {self.number('bad')}")
        return lines

    def drop(self, folder: str, lines: list[str], name: str | None = None) -> None:
        """Put a file into a folder, or another one in its place."""
        number = self.number("file")
        name = name or f"{number:06d}.json"
        path = self.landing / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{name}")
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(temporary, (1_700_000_000 + number, 1_700_000_000 + number))
        temporary.replace(path)
        self.oracle.files.setdefault(folder, {})[name] = lines

    # What runs

    def run(self, names: Iterable[str] | None = None) -> dict[str, TidemillError]:
        """Run streams, compare what changed with what had to, and return the errors by stream.

        Raises:
            DifferenceError: A table has other rows than the oracle, or a stream that did not run was changed.
        """
        chosen = [name for name in self.streams if names is None or name in set(names)]
        try:
            declared = declare(self.definition, self.landing)
        except DefinitionError as error:
            self.note(f"declaration refused: {error}")
            return {"": error}
        for path in ("early", *(folder.split(" ")[1] for folder in self.folders())):
            (self.landing / path).mkdir(parents=True, exist_ok=True)
        before = {name: self.contents(name) for name in chosen}
        refusals = {name for name in chosen if self.oracle.must_refuse(name, self.definition.sources[name])}
        run = PipelineRun(
            [declared[name] for name in chosen],
            target=self.target,
            engine=self.engine,
            run_id=f"run-{self.number('run'):04d}",
        )
        results = {result.stream.stream: result for result in run.iter_results()}
        errors = {name: result.error for name, result in results.items() if result.error is not None}
        outcomes = {name: results[name].outcome for name in chosen}
        self.outcomes.update(outcomes)
        self.note("run: " + ", ".join(f"{name} {outcome}" for name, outcome in outcomes.items()))
        for name, error in errors.items():
            self.note(f"{name}: {error}")
        for name, outcome in outcomes.items():
            if outcome in ("updated", "idle"):
                self._follow(name, refused=name in refusals)
            self.updates[name] += outcome == "updated"
            self._compare_files(name, results[name], before[name])
        self.compare(name for name, outcome in outcomes.items() if outcome in ("updated", "idle"))
        self.history[self.version("orders")] = Counter(self.oracle.streams["orders"].rows)
        self.sales_sources |= self.definition.sources["sales"]
        return errors

    def _follow(self, name: str, *, refused: bool) -> None:
        """Let the oracle read what a stream had to read.

        Raises:
            DifferenceError: The stream had to be refused.
        """
        if refused:
            raise DifferenceError(f"{name} read past a commit that removed rows, and it was not accepted")
        self.oracle.run(
            name,
            self.definition.sources[name],
            folders=self.definition.folders,
            further=self.definition.further(name),
            deletes=self.definition.deletes,
        )

    def _compare_files(self, name: str, result: StreamResult, before: dict[str, str]) -> None:
        """Compare the files of a stream that did not write with those before the run.

        Raises:
            DifferenceError: They have changed.
        """
        # A first run without input makes tables; a run may only write the lines that the ledger misses.
        had_reason = result.outcome == "idle" and result.reason != "nothing new"
        if result.outcome == "updated" or had_reason:
            return
        after = self.contents(name)
        if "control/manifest.json" not in before:  # a first run that fails leaves its result there
            after.pop("control/manifest.json", None)
        if changed := difference_of(before, after, result.error):
            raise DifferenceError(f"{name} was {result.outcome} and changed {', '.join(changed[:5])}")

    def idle(self, names: Iterable[str]) -> None:
        """Check that nothing waits after a run of streams.

        Raises:
            DifferenceError: A stream would run again.
        """
        declared = declare(self.definition, self.landing)
        for name in names:
            if reasons := decide_run(declared[name], self.target).reasons:
                raise DifferenceError(f"{name} is not idle after a run: {', '.join(reasons)}")

    # What the lake has

    def paths(self, stream: str) -> dict[str, Path]:
        """Return the folders of a stream by kind."""
        name = StreamName("shop", stream)
        folders = {
            "checkpoint": Path(self.lake.checkpoint(name, 1).uri()).parent,
            "control": Path(self.lake.records(name).uri()),
            "ledger": Path(self.lake.ledger(name).uri()),
        }
        tables = Path(self.lake.table(name).uri).parent
        return {
            **folders,
            **{p.name: p for p in tables.glob(f"{stream}*") if p.name.split("__")[0] == stream},
        }

    def contents(self, stream: str) -> dict[str, str]:
        """Return a hash of each file of a stream, leases aside."""
        contents = {}
        for kind, folder in self.paths(stream).items():
            for parent, _, files in os.walk(folder):
                for file in files:
                    path = Path(parent) / file
                    name = f"{kind}/{path.relative_to(folder)}"
                    if not name.startswith("control/lease"):
                        contents[name] = self._hash(path)
        return contents

    def _hash(self, path: Path) -> str:
        if path.name == "manifest.json":  # the result of the last run is not a part of what it ran on
            manifest = json.loads(path.read_text())
            manifest.pop("last_run", None)
            return json.dumps(manifest)
        stat = path.stat()
        key = (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if key not in self._hashes:
            self._hashes[key] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._hashes[key]

    def compare(self, names: Iterable[str]) -> None:
        """Compare the tables and the ledgers of streams with the oracle.

        Raises:
            DifferenceError: They differ.
        """
        for name in names:
            state = self.oracle.streams[name]
            actual = self.rows(name)
            if name == "log":
                actual = net(actual)
            expect_equal(name, state.rows, actual)
            for sink, rows in state.further.items():
                expect_equal(f"{name}__{sink}", rows, self.rows(name, sink))
            self._compare_ledger(name)

    def _compare_ledger(self, name: str) -> None:
        records = StreamRecords(self.lake, StreamName("shop", name))
        batches = sorted(line.batch_id for line in records.ledger.lines())
        snapshot = records.snapshot()
        if snapshot.manifest is not None and batches != list(range(snapshot.last_commit + 1)):
            raise DifferenceError(
                f"the ledger of {name} has the batches {batches}, and {snapshot.last_commit} is the last one"
            )

    def rows(self, stream: str, sink: str = "main") -> Rows:
        """Return the rows of a table that readers see."""
        path = Path(self.lake.table(StreamName("shop", stream), sink).uri)
        if TableRef.at(path).open() is None:
            return Counter()
        columns = ("raw", "violated") if sink == QUARANTINE else COLUMNS[stream]
        records = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
        return Counter(
            tuple(plain(record[column]) for column in columns)
            for record in records
            if not record.get("_deleted")
        )

    def version(self, stream: str) -> int:
        """Return the version of a stream's table; -1 where there is none."""
        version = self.lake.table(StreamName("shop", stream)).log.latest_version()
        return -1 if version is None else version

    def sql(self, statement: str, stream: str, **numbers: int) -> None:
        """Run a statement about a stream's table, `{table}` in it, with numbers by name."""
        spark = self.engine.new()
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        for conf in (
            "spark.sql.shuffle.partitions",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism",
        ):
            spark.conf.set(conf, "1")  # VACUUM has one job per partition
        table = Path(self.lake.table(StreamName("shop", stream)).uri)
        spark.sql(statement.format(table=f"delta.`{table}`", **numbers)).collect()

    def removed(self, stream: str, rows: Rows) -> None:
        """Let the oracle know that a statement left these rows in an append table."""
        state = self.oracle.streams[stream]
        state.rows = rows
        state.commits.append(Commit((), self.version(stream)))

    def forget_history(self, stream: str) -> None:
        """Forget the versions to which a table can be restored."""
        if stream == "orders":
            self.history.clear()

    # Copies

    def back_up(self) -> None:
        """Copy the lake."""
        root = self.base / f"backup-{self.number('backup')}"
        if Path(self.lake.uri).exists():
            shutil.copytree(Path(self.lake.uri), root)
            states = {name: self.oracle.copy_of(name) for name in self.streams}
            self.backups.append(
                Backup(root, self.definition, states, Counter(self.updates), Counter(self.lives))
            )
            self.note(f"backup {len(self.backups)}")

    def rebuild(self, stream: str) -> None:
        """Move the folders of a stream and of those that stream from it away."""
        for name in [stream, *self.definition.readers(stream)]:
            for path in self.paths(name).values():
                shutil.rmtree(path, ignore_errors=True)
            self.oracle.streams[name] = State()
            self.forget_history(name)
            self.updates[name] = 0
            self.lives[name] += 1


def difference_of(
    before: dict[str, str], after: dict[str, str], error: TidemillError | None = None
) -> list[str]:
    """Return the names of files that are new, missing or changed.

    Two kinds of changes are not the run's: the maintenance of the state stores adds snapshots in the background; and
    Spark itself compares a function with the state when it has planned a batch, before it writes rows.
    """
    planned = error is not None and str(error.error_class).startswith(("STATE_STORE_", "STREAMING_STATEFUL"))
    return sorted(
        name
        for name in {*before, *after}
        if before.get(name) != after.get(name)
        and not (name not in before and "/state/" in name)
        and not (planned and name.startswith(("checkpoint/", "control/")))
    )


def expect_equal(table: str, expected: Rows, actual: Rows) -> None:
    """Compare rows.

    Raises:
        DifferenceError: They differ.
    """
    expected = Counter({row: number for row, number in expected.items() if number})
    if actual != expected:
        missing, many = expected - actual, actual - expected
        raise DifferenceError(
            f"{table}: {missing.total()} rows missing {dict(list(missing.items())[:3])}, "
            f"{many.total()} rows too many {dict(list(many.items())[:3])}"
        )


def net(changes: Rows) -> Rows:
    """Return the rows that changes of a feed add up to, by +1 and -1."""
    rows: Rows = Counter()
    for (*row, kind), number in changes.items():
        rows[tuple(row)] += number if kind in ("insert", "update_postimage") else -number
    return Counter({row: number for row, number in rows.items() if number})


def plain(value: Any) -> Any:
    """Return a value that can be counted."""
    return tuple(value) if isinstance(value, list) else value
