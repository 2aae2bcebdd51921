"""A stream for each kind of sink and point, to be killed: `python -m tests.sinks.killed.streams PLACES NAME...`"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.sinks.streams import SALE, Log
from tests.support.killed import run_side_by_side, scratch_at
from tidemill import (
    DeltaAppend,
    Feed,
    FileSink,
    ForeachSink,
    JdbcSink,
    Json,
    KafkaSink,
    Pipeline,
)
from tidemill import functions as F
from tidemill.run.pause_points import pause_point
from tidemill.storage.local_store import LocalStore
from tidemill.target.target import KafkaCluster
from tidemill.text.names import StreamName

POINTS = ("before-batch", "in-write", "between-sinks", "after-sink", "before-ledger")
KINDS = ("files", "kafka", "jdbc", "foreach", "shared")
HALF = 5
"""A write that is killed has written the rows with a higher amount."""


def name_of(kind, point):
    return f"{kind}_{point.replace('-', '_')}"


NAMES = {name_of(kind, point): (kind, point) for kind in KINDS for point in POINTS}
del NAMES[name_of("shared", "in-write")]  # one commit of Delta


@dataclass(frozen=True)
class Places:
    """Where the streams read and write."""

    lake: str
    landing: str
    bootstrap: str
    topic: str
    port: int
    schema: str

    def folder(self, name):
        return str(Path(self.landing) / "written" / name)

    def connect(self, scratch):
        scratch.clusters["default"] = KafkaCluster(bootstrap=self.bootstrap)
        scratch.databases["default"] = PostgresServer(self.port).database
        return scratch


def in_write(name):
    pause_point("in-write", StreamName("shops", name))


class PausedStore(LocalStore):
    """A folder whose files are there, and whose log does not name them."""

    def create(self, key, data):
        in_write(self.root.name)
        return super().create(key, data)


class PausedFiles(FileSink):
    def connection(self, target):
        return PausedStore(super().connection(target).root)


class PausedKafka(KafkaSink):
    """It writes each batch in two parts."""

    def write(self, rows, batch):
        super().write(rows.where(F.col("amount") > HALF), batch)
        in_write(batch.identity.stream.partition("/")[2])
        super().write(rows.where(F.col("amount") <= HALF), batch)


class PausedJdbc(JdbcSink):
    """Its transaction has rows, and is not committed."""

    def _copy(self, rows, connection):
        super()._copy(rows, connection)
        in_write(self.table.partition(".")[2])


class PausedLog(Log):
    def process(self, row):
        if row.amount <= HALF:
            in_write(Path(self.path).name)
        super().process(row)


def sinks_of(name, places, shared):
    """The sinks of a stream, the main one last; `shared` is the stream to whose table one may append."""
    table, folder = f"{places.schema}.{name}", places.folder(name)
    match NAMES[name][0]:
        case "files":
            return [PausedFiles(folder, "json"), DeltaAppend()]
        case "kafka":
            return [PausedKafka(places.topic, key="shop", value="json"), DeltaAppend()]
        case "jdbc":
            merged = JdbcSink(f"{table}_now", keys=["shop"], sequence_by="amount")
            return [PausedJdbc(table, name="log"), merged, DeltaAppend()]
        case "foreach":
            return [ForeachSink(PausedLog(folder)), DeltaAppend()]
        case "shared":
            return [DeltaAppend(into=shared)]


def declared(places):
    """The streams by name: `sales`, `all`, to whose table those of the kind `shared` append, and one for each name.

    Those that are killed within a write, or right after it, read the feed itself, and the others the table `sales`.
    """
    shops = Pipeline("shops")
    feed = Feed("sales", format=Json(SALE), max_files_per_batch=1)
    made = {"sales": shops.stream(source=feed, sink=DeltaAppend(), name="sales")(lambda sales: sales)}

    def of_feed(name, *sinks):
        return shops.stream(source=feed, sink=list(sinks), name=name)(
            lambda sales: sales.withColumn("stream", F.lit(name))
        )

    def of_table(name, *sinks):
        return shops.stream(source=made["sales"], sink=list(sinks), name=name)(
            lambda sales: sales.select("shop", "amount", F.lit(name).alias("stream"))
        )

    made["all"] = of_feed("all", DeltaAppend())
    for name, (_, point) in NAMES.items():
        read = of_feed if point in ("in-write", "between-sinks") else of_table
        made[name] = read(name, *sinks_of(name, places, made["all"]))
    return made


def main() -> None:
    places, *names = sys.argv[1:]
    places = Places(**json.loads(places))
    made = declared(places)
    scratch = places.connect(scratch_at(places.lake, places.landing, cores=len(KINDS)))
    run_side_by_side(scratch, [made[name] for name in names])


def arguments(places, names):
    """The command line of such a run."""
    return ["tests.sinks.killed.streams", json.dumps(asdict(places)), *names]


if __name__ == "__main__":
    main()
