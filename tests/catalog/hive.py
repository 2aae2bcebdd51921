"""Streams over a Hive metastore in a Spark of their own: `python -m tests.catalog.hive FOLDER PART WHERE`.

The metastore is Spark's own, with an embedded Derby. The Spark of the other tests has none, and a process has one.
What the runs did is printed as `RESULT <JSON>`, for the tests to compare.
"""

# ruff: noqa: S608 - the statements of an analyst

import json
import shutil
import sys
from datetime import timedelta
from pathlib import Path

from pyspark.sql import functions as F

from tests.support.catalogs import comments_in
from tests.support.lakes import bucket
from tests.support.small import SMALL
from tidemill import DeltaAppend, DeltaSource, Feed, Json, Pipeline
from tidemill.engines.engine import SparkEngine
from tidemill.errors import TidemillError
from tidemill.operations.edits.code_changes import code_changes as plan_code
from tidemill.operations.edits.rebind import rebind
from tidemill.operations.edits.rename_source import rename_source
from tidemill.operations.generations.reset import reset
from tidemill.operations.housekeeping.prune import prune
from tidemill.operations.housekeeping.register import register
from tidemill.operations.replay.backfill import backfill
from tidemill.operations.replay.rebuild import rebuild
from tidemill.records.stream_records import StreamRecords
from tidemill.run.spark.engine import session_of
from tidemill.storage.lake import Lake
from tidemill.target.catalog import CatalogSettings
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

CATALOG = "spark_catalog"
VIEW = "id STRING COMMENT 'Of the view.', n INT"


def confs(folder: Path) -> dict[str, str]:
    """Return the confs of a small Spark with a metastore in a folder."""
    derby = f"-Dderby.system.home={folder / 'derby'} -Dderby.stream.error.file={folder / 'derby.log'}"
    return SMALL | {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"{SMALL['spark.driver.extraJavaOptions']} {derby}",
    }


def settings(folder: Path, where: str) -> SparkSettings:
    """Return the settings of that Spark: `local`, on a `warm` server, or with a lake on `s3`."""
    store = {"store": bucket().settings, "has_lake_on_store": True} if where == "s3" else {}
    small = {"driver_memory": "1g", "shuffle_partitions": 2, "conf": confs(folder), **store}
    if where != "warm":
        return SparkSettings(master="local[2]", **small)
    from tidemill.target.server_home import ServerHome

    server = ServerHome("hive", Path(__file__).parents[2], folder / "server")
    return SparkSettings(
        mode="warm", master="local[2]", idle_timeout=timedelta(seconds=20), server=server, **small
    )


class Runs:
    """The lake, the metastore, and what is asked of them.

    Args:
        folder: An empty folder.
        where: Where Spark and the lake are.
    """

    def __init__(self, folder: Path, where: str) -> None:
        self.folder = folder
        self.scratch = Scratch(
            lake=Lake(bucket().below("shop"), access=bucket().settings)
            if where == "s3"
            else Lake.at(folder / "a lake"),
            landing=folder / "landing",
            engine=SparkEngine(settings(folder, where)),
            catalog=CatalogSettings(CATALOG, "shop"),
        )

    def run(self, stream, *records):
        """Run a stream after these records, and return its outcome, its error's code and its warnings."""
        if records:
            self.scratch.drop_file("views", list(records))
        [result] = self.scratch.run_all([stream])
        code = None if result.error is None else result.error.code
        assert code is None or code.startswith(("catalog-", "source-", "upstream-")), str(result.error)
        return {"outcome": result.outcome, "code": code, "warnings": list(result.warnings)}

    def sql(self, statement):
        with session_of(self.scratch.engine) as spark:
            return [list(row) for row in spark.sql(statement).collect()]

    def states(self, stream):
        tables = StreamRecords(self.scratch.lake, stream.name).registrations().tables
        return {one.name: one.state for one in tables.values()}

    def by_name(self, stream):
        """Return of each table where its name leads, whether that is the table, its rows by name, and its comments."""
        shown = {}
        for sink, one in StreamRecords(self.scratch.lake, stream.name).registrations().tables.items():
            table = StreamRecords(self.scratch.lake, stream.name).table(sink)
            described = self.sql(f"DESCRIBE TABLE EXTENDED {one.name}")
            [location] = [row[1] for row in described if row[0] == "Location" and "/" in row[1]]
            id_or_raw = "raw" if sink == "quarantine" else "id"
            shown[one.name] = {
                "leads_home": location.removeprefix("file:").replace("%20", " ") == table.uri,
                "rows": sorted(row[0] for row in self.sql(f"SELECT {id_or_raw} FROM {one.name}")),
                "comments": comments_in(table),
                "columns": {
                    row[0]: row[2] for row in described if row[0] in ("id", "name", "raw") and row[2]
                },
            }
        return shown

    def take(self, name):
        """Let a name lead to a table of somebody else."""
        self.sql(f"DROP TABLE {name}")
        self.sql(
            f"CREATE TABLE {name} USING delta LOCATION '{self.folder / 'theirs'}' AS SELECT 'theirs' AS id"
        )

    def version(self, stream, sink="main"):
        return self.scratch.lake.table(stream.name, sink).log.latest_version()


def views_of(pipeline: Pipeline):
    """Declare a stream with three tables."""

    @pipeline.stream(
        source=Feed("views", Json(VIEW), rules={"positive": "n > 0"}),
        sink=[DeltaAppend(name="copy", table=f"{CATALOG}.extra.views_copy"), DeltaAppend()],
        name="views",
    )
    def views(events):
        """Every view, it's said."""
        return events.select("*", (F.col("n") * 2).alias("twice", metadata={"comment": "Two times n."}))

    return views


def reader_of(pipeline: Pipeline, views):
    """Declare a stream that reads its new rows."""

    @pipeline.stream(source={"views": views}, sink=DeltaAppend(), name="reader")
    def reader(views):
        return views.select("id")

    return reader


def renamed_source_of(views):
    """Declare the same stream with another name for its source."""
    pipeline = Pipeline("shop")

    @pipeline.stream(source=views.sources["events"], sink=list(views.sinks), name="views")
    def again(clicks):
        return views.function(clicks)

    return again


def tables(runs: Runs) -> dict:
    """Register three tables, drop one and move one, and change the stream by operations."""
    shop = Pipeline("shop")
    views = views_of(shop)
    reader = reader_of(shop, views)
    facts = {"first": runs.run(views, {"id": "a", "n": 1}, {"id": "b", "n": 0})}
    facts["after_first"] = runs.by_name(views)
    version = runs.version(views)
    facts["second"] = runs.run(views, {"id": "c", "n": 3})
    facts["commits_of_second"] = runs.version(views) - version
    facts["reader"] = [runs.run(reader)]

    runs.sql(f"DROP TABLE {CATALOG}.extra.views_copy")
    facts["idle"] = runs.run(views)
    facts["dropped"] = runs.run(views, {"id": "d", "n": 4})
    facts["dropped_states"] = runs.states(views)
    runs.sql(f"ALTER TABLE {CATALOG}.shop.views ALTER COLUMN id COMMENT 'Of somebody else.'")
    facts["reader"].append(runs.run(reader))

    name = f"{CATALOG}.shop.views"
    runs.take(name)
    facts["moved"] = runs.run(views, {"id": "e", "n": 5})
    facts["moved_states"], facts["left"] = runs.states(views), runs.sql(f"SELECT id FROM {name}")
    runs.sql(f"DROP TABLE {name}")
    target, engine = runs.scratch.target, runs.scratch.engine
    facts["reader"].append(runs.run(reader))
    facts["read"] = sorted(row[0] for row in runs.scratch.rows(reader, "id").elements())
    facts["registered"] = register(views, target, engine).outcome
    facts["registered_states"] = runs.states(views)

    rebuild(views, target, engine, keep_old=True)
    facts["after_rebuild"] = runs.by_name(views)
    reset(views, target, engine, start="earliest", table="replace", allow_doubled=True)
    facts["run_after_reset"] = runs.run(views)
    facts["after_reset"] = runs.by_name(views)
    renamed = renamed_source_of(views)
    rename_source(renamed, target, "events", "clicks")
    facts["run_after_rename"] = runs.run(renamed, {"id": "f", "n": 6})
    prune(renamed, target, engine, older_than=timedelta(0))
    facts["run_after_prune"] = runs.run(renamed, {"id": "g", "n": 7})
    facts["after_prune"], facts["last_states"] = runs.by_name(renamed), runs.states(renamed)
    return facts


def names(runs: Runs) -> dict:
    """Read two tables by their names, while one of them is moved and the names of the stream's own table change."""
    raw, people = runs.folder / "raw events", runs.folder / "people"
    runs.sql(f"CREATE SCHEMA {CATALOG}.raw")
    runs.sql(f"CREATE TABLE {CATALOG}.raw.events USING delta LOCATION '{raw}' AS SELECT 'a' AS id, 1 AS n")
    runs.sql(
        f"CREATE TABLE {CATALOG}.raw.people (id STRING, name STRING COMMENT 'In full.') USING delta LOCATION '{people}'"
    )
    runs.sql(f"INSERT INTO {CATALOG}.raw.people VALUES ('a', 'Ann'), ('b', 'Bob')")
    shop = Pipeline("shop")
    named = shop.sql(
        "named",
        f"SELECT e.id, {CATALOG}.raw.people.name FROM {CATALOG}.raw.events AS e JOIN {CATALOG}.raw.people USING (id)",
        source={
            "events": DeltaSource(table=f"{CATALOG}.raw.events"),
            "people": DeltaSource(table=f"{CATALOG}.raw.people").static(),
        },
        sink=DeltaAppend(),
        description="Events with names.",
    )
    facts = {"first": runs.run(named), "after_first": runs.by_name(named), "idle": runs.run(named)}
    runs.sql(f"INSERT INTO {CATALOG}.raw.people VALUES ('d', 'Di')")
    runs.sql(f"INSERT INTO {CATALOG}.raw.events VALUES ('b', 2)")
    runs.sql(f"DROP TABLE {CATALOG}.shop.named")
    facts["second"], facts["dropped_states"] = runs.run(named), runs.states(named)

    moved = runs.folder / "moved"
    shutil.copytree(raw, moved)
    runs.sql(f"DROP TABLE {CATALOG}.raw.events")
    runs.sql(f"INSERT INTO delta.`{raw}` VALUES ('c', 3)")
    facts["missing"] = runs.run(named)
    runs.sql(f"CREATE TABLE {CATALOG}.raw.events USING delta LOCATION '{moved}'")
    facts["changed"] = runs.run(named)
    target, engine = runs.scratch.target, runs.scratch.engine
    facts["plan"] = " ".join(rebind(named, target, "events", engine=engine, dry_run=True).effects)
    rebind(named, target, "events", engine=engine)
    runs.sql(f"INSERT INTO {CATALOG}.raw.events VALUES ('d', 4)")
    runs.take(f"{CATALOG}.shop.named")
    facts["rebound"], facts["moved_states"] = runs.run(named), runs.states(named)
    facts["rows"] = sorted(runs.scratch.rows(named, "id", "name").elements())

    runs.sql(f"CREATE VIEW {CATALOG}.raw.view AS SELECT 1 AS id")
    facts["view"] = refused(runs, shop, f"{CATALOG}.raw.view")
    facts["nothing"] = refused(runs, shop, f"{CATALOG}.nowhere.nothing")
    facts["managed"] = [runs.run(stream)["code"] for stream in readers_of_managed(runs, shop)]
    shutil.rmtree(moved)
    facts["absent"] = refused(runs, shop, f"{CATALOG}.raw.events")
    return facts


def refused(runs, shop, table):
    stream = shop.stream(
        source=DeltaSource(table=table), sink=DeltaAppend(), name=f"reads_{table.rpartition('.')[2]}"
    )(lambda rows: rows)
    return runs.run(stream)


def readers_of_managed(runs, shop):
    """Declare streams that read a table whose commits a catalog manages: by its name, by its path, and as a snapshot.

    Delta creates such a table for Unity Catalog only, so its feature is written into the log.
    """
    name, at = f"{CATALOG}.raw.managed", runs.folder / "managed"
    runs.sql(f"CREATE TABLE {name} USING delta LOCATION '{at}' AS SELECT 'a' AS id")
    features = ["catalogManaged", "vacuumProtocolCheck"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "inCommitTimestamp"],
    }
    (at / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}))
    events = DeltaSource(table=f"{CATALOG}.raw.events")
    for kind, source in {
        "name": {"rows": DeltaSource(table=name)},
        "path": {"rows": DeltaSource(path=str(at))},
        "snapshot": {"rows": events, "managed": DeltaSource(path=str(at)).static()},
    }.items():
        reads = (lambda rows: rows) if len(source) == 1 else (lambda rows, managed: rows.join(managed, "id"))
        yield shop.stream(source=source, sink=DeltaAppend(), name=f"managed_{kind}")(reads)


def again(runs: Runs) -> dict:
    """Compute a stream again that reads a table by its name, before and after the name leads to another table."""
    name, first, second = f"{CATALOG}.raw.days", runs.folder / "first", runs.folder / "second"
    runs.sql(f"CREATE SCHEMA {CATALOG}.raw")
    runs.sql(
        f"CREATE TABLE {name} USING delta LOCATION '{first}' AS SELECT 'a' AS id, DATE'2026-01-01' AS day"
    )
    days = Pipeline("shop").stream(
        source={"days": DeltaSource(table=name)}, sink=DeltaAppend(), name="days", backfill_by="day"
    )(lambda days: days)
    target, engine = runs.scratch.target, runs.scratch.engine

    def backfilled():
        try:
            backfill(days, target, engine, begin="2026-01-01", end="2026-01-02")
        except TidemillError as error:
            return error.code
        return sorted(row[0] for row in runs.scratch.rows(days, "id").elements())

    facts = {"run": runs.run(days), "backfilled": backfilled()}
    [change] = plan_code([days], target, engine)
    facts["planned"] = change.kind
    runs.sql(f"DROP TABLE {name}")
    runs.sql(
        f"CREATE TABLE {name} USING delta LOCATION '{second}' AS SELECT 'b' AS id, DATE'2026-01-01' AS day"
    )
    facts["backfilled_elsewhere"] = backfilled()
    [change] = plan_code([days], target, engine)
    facts["planned_elsewhere"] = change.error.code
    rebuild(days, target, engine)
    facts["rebuilt"] = sorted(row[0] for row in runs.scratch.rows(days, "id").elements())
    runs.sql(f"INSERT INTO {name} VALUES ('c', DATE'2026-01-02')")
    facts["run_after"] = runs.run(days)
    facts["rows"] = sorted(row[0] for row in runs.scratch.rows(days, "id").elements())
    return facts


def main() -> None:
    """Do the runs."""
    folder, part, where = sys.argv[1:]
    runs = Runs(Path(folder), where)
    try:
        facts = {"names": names, "tables": tables, "again": again}[part](runs)
    finally:
        runs.scratch.engine.stop()
    print(f"RESULT {json.dumps(facts)}")  # noqa: T201 - for the process that has started this one


if __name__ == "__main__":
    main()
