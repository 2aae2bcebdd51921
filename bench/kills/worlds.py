"""What the campaign runs and kills: pipelines with their input, cut into steps, and the rows that must result."""

import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.ads import ads
from pipelines.ads.generate import generate, produce
from tests.pipelines.ads import oracle
from tests.pipelines.ads.tables import tables
from tests.run import fault_oracle, fault_streams
from tests.servers.object_store import object_store
from tests.support.recorded import calls
from tests.support.small import small_target
from tidemill.definitions.pipeline import Pipeline
from tidemill.engines.dev.broker import Broker
from tidemill.storage.lake import Lake
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.s3_settings import S3Settings
from tidemill.storage.table_ref import TableRef
from tidemill.testing import Scratch, multiset

ROOT = Path(__file__).parents[2]
Differences = list[str]


class World(ABC):
    """A project folder with a lake of its own, a pipeline, and input that arrives in steps.

    Attributes:
        name: A word for the report.
        steps: How many times input arrives.
        flags: Flags of `tidemill run`.
        pipeline: The streams.
    """

    name: str
    steps: int
    flags: tuple[str, ...] = ()
    pipeline: Pipeline
    module: str

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.seed = folder, seed
        (folder / "tidemill.toml").write_text(small_target(self.module), encoding="utf-8")
        # The command finds a pipeline's module beside tidemill.toml.
        (folder / "tests").symlink_to(ROOT / "tests")
        self.scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=None)  # type: ignore[arg-type]

    @abstractmethod
    def arrive(self, step: int) -> None:
        """Add the input of a step, counted from 0."""

    @abstractmethod
    def differences(self) -> Differences:
        """Compare every table with its oracle, after all steps."""

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder)


def _difference(table: str, rows: Counter[Any], expected: Counter[Any]) -> Differences:
    missing, surplus = expected - rows, rows - expected
    if not missing and not surplus:
        return []
    counts = f"{missing.total()} rows missing, such as {list(missing)[:1]}"
    return [f"{table}: {counts}; {surplus.total()} too many, such as {list(surplus)[:1]}"]


class AdsFiles(World):
    """The pipeline `ads` on files."""

    name = "ads, files"
    steps = 3
    pipeline = ads
    module = "pipelines.ads:ads"
    events = 3_000

    def __init__(self, folder: Path, seed: int) -> None:
        """Create the folder; the sequence of events begins at 0."""
        super().__init__(folder, seed)
        self.next_start = 0

    def arrive(self, step: int) -> None:  # noqa: ARG002 - each step continues the sequence
        """Add files of events, none of them late: late rows depend on how runs cut the input."""
        amounts = generate(
            out=self.scratch.landing,
            events=self.events,
            seed=self.seed,
            files=3,
            start=self.next_start,
            late=0,
        )
        self.next_start = amounts.next_start

    def differences(self) -> Differences:
        """Compare every table with the oracle of `ads`."""
        expected = oracle.expected(self.scratch.landing)
        rows = tables(self.scratch)
        return [line for table in rows for line in _difference(table, rows[table], expected[table])]


class AdsKafka(AdsFiles):
    """The pipeline `ads` on topics with four partitions of a real broker."""

    name = "ads, Kafka"

    def __init__(self, folder: Path, seed: int) -> None:
        """Start a broker."""
        super().__init__(folder, seed)
        self.broker = Broker().__enter__()
        self.flags = ("--kafka", self.broker.bootstrap)

    def arrive(self, step: int) -> None:
        """Send the events to the topics, and keep them as files for the oracle."""
        produce(
            bootstrap=self.broker.bootstrap,
            events=self.events,
            seed=self.seed,
            start=self.next_start,
            late=0,
        )
        super().arrive(step)

    def close(self) -> None:
        """Stop the broker."""
        self.broker.__exit__(None, None, None)
        super().close()


class AdsStore(AdsFiles):
    """The pipeline `ads` with the lake and the files on a store with the interface of S3."""

    name = "ads, S3"

    def __init__(self, folder: Path, seed: int) -> None:
        """Start a server."""
        super().__init__(folder, seed)
        self._server = object_store()
        server = self._server.__enter__()
        settings = S3Settings(
            endpoint=server.endpoint,
            region=server.region,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
        )
        self.bucket = ObjectStore(server.bucket, settings=settings)
        self.scratch.lake = Lake(self.bucket.below("lake"), access=settings)
        config = folder / "tidemill.toml"
        content = config.read_text(encoding="utf-8")
        for folder_name in ("lake", "landing"):
            content = content.replace(
                f'{folder_name} = "{folder_name}"', f'{folder_name} = "{self.bucket}/{folder_name}"'
            )
        os.environ["KILLS_STORE_KEY"] = server.secret_key
        config.write_text(
            f"""{content}
[targets.dev.store]
endpoint = "{server.endpoint}"
region = "{server.region}"
access_key_id = "{server.access_key}"
secret_access_key = "${{KILLS_STORE_KEY}}"
""",
            encoding="utf-8",
        )

    def arrive(self, step: int) -> None:
        """Write the files, which the oracle reads, and copy them into the bucket."""
        before = set(self.scratch.landing.rglob("*.json"))
        super().arrive(step)
        for file in sorted(set(self.scratch.landing.rglob("*.json")) - before):
            self.bucket.create(str(file.relative_to(self.folder)), file.read_bytes())

    def close(self) -> None:
        """Stop the server."""
        self._server.__exit__(None, None, None)
        super().close()


class Kinds(World):
    """A small pipeline with every kind of stream: stateless, windows, sessions, joins, merges, complete mode."""

    name = "every kind of stream"
    steps = 2
    pipeline = fault_streams.PIPELINE
    module = "tests.run.fault_streams:PIPELINE"

    def arrive(self, step: int) -> None:
        """Add a file to each feed."""
        orders = [*fault_oracle.ORDERS[step], fault_oracle.BAD]
        for feed in ("orders", "refunds", "returns"):
            self.scratch.drop_file(feed, orders)
        for feed in ("sent", "noted"):
            self.scratch.drop_file(feed, fault_oracle.ORDERS[step])
        self.scratch.drop_file("payments", [*fault_oracle.PAYMENTS[step], fault_oracle.BAD])
        self.scratch.drop_file("owners", fault_oracle.OWNERS[step])
        names = [{"customer": customer, "name": f"name of {customer}"} for customer in ("c0", "c1")]
        self.scratch.drop_file("names", names if step == 0 else [])

    def differences(self) -> Differences:
        """Compare every table with plain Python."""
        ingested = ("order_id",), fault_oracle.expected_ingest()
        order_rows = [order for arrival in fault_oracle.ORDERS for order in arrival]
        payment_rows = [payment for arrival in fault_oracle.PAYMENTS for payment in arrival]
        named = multiset((order["order_id"], f"name of {order['customer']}") for order in order_rows)
        totals = ("customer", "n", "amount"), fault_oracle.expected_totals()
        windows = ("start", "n"), fault_oracle.expected_windows()
        expected = {
            "orders": ingested,
            "refunds": ingested,
            "returns": ingested,
            "payments": (("order_id",), multiset((payment["order_id"],) for payment in payment_rows)),
            "owners": (("customer", "owner", "__START_AT", "__END_AT"), fault_oracle.expected_owners()),
            "names": (("customer",), multiset([("c0",), ("c1",)])),
            "copied": (("order_id", "amount"), fault_oracle.expected_copied()),
            "named": (("order_id", "name"), named),
            "windows": windows,
            "counts": windows,
            "visits": (("customer", "start", "n"), fault_oracle.expected_visits()),
            "paid": (("order_id", "paid_at"), fault_oracle.expected_paid()),
            "totals": totals,
            "followed": totals,
            "best": (("customer", "amount"), fault_oracle.expected_best()),
        }
        given = {"sent", "noted"}  # to a function, the first alone and the second next to a table
        expected["noted"] = ingested
        streams = {stream.name.stream for stream in self.pipeline}
        differences = [f"{name} is not compared" for name in sorted(streams ^ (expected.keys() | given))]
        for name in sorted(given):
            differences += self._given(name)
        for name, (columns, rows) in expected.items():
            stream = self.pipeline[name]
            differences += _difference(name, self.scratch.rows(stream, *columns), rows)
            if name in ("orders", "refunds", "returns", "payments"):
                refused = self.scratch.quarantined(stream).total()
                if refused != self.steps:
                    differences.append(f"{name}: {refused} records in quarantine, not {self.steps}")
        archive = Path(self.scratch.lake.table(self.pipeline["returns"].name, "archive").uri)
        rows = self.scratch.table_rows(TableRef.at(archive), "order_id")
        return differences + _difference("returns__archive", rows, fault_oracle.expected_ingest())

    def _given(self, name: str) -> Differences:
        """Compare what a function was given at least once: a repeated batch has the rows of the first attempt."""
        batches: dict[int, Counter[tuple[Any, ...]]] = {}
        differences = [
            f"{name}: batch {call.batch_id} was given again with other rows"
            for call in calls(self.folder / name)
            if batches.setdefault(call.batch_id, call.rows) != call.rows
        ]
        rows = sum(batches.values(), Counter())
        return differences + _difference(f"{name} (given)", rows, fault_oracle.expected_ingest())


WORLDS: tuple[type[World], ...] = (AdsFiles, Kinds, AdsKafka, AdsStore)
