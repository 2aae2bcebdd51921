"""A lake in a temporary folder, with feeds that are folders and upstream tables that the test fills."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.connectors.feed import feed_of
from tidemill.definitions.columns import BOOKKEEPING, DELETED
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.run.spark.engine import session_of
from tidemill.storage.lake import Lake
from tidemill.storage.table_ref import TableRef
from tidemill.target.catalog import CatalogSettings
from tidemill.target.postgres import PostgresDatabase
from tidemill.target.target import Binding, KafkaCluster, Target

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.run.execute.results import StreamResult
    from tidemill.run.spark.engine import Engine
    from tidemill.text.names import StreamName

Records = Sequence[Mapping[str, Any] | str]


def multiset(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Return rows without an order, each with its number of occurrences."""
    return Counter(tuple(row) for row in rows)


@dataclass(slots=True)
class Scratch:
    """A scratch lake and the runs in it.

    Attributes:
        lake: The lake.
        landing: The folder with one folder per feed.
        engine: Where Spark sessions come from.
        bindings: Feeds with another binding, such as a topic.
        clusters: Kafka clusters by name.
        databases: Postgres databases by name.
        catalog: The catalog in which tables are registered; None where there is none.
    """

    lake: Lake
    landing: Path
    engine: "Engine"
    bindings: dict[str, Binding] = field(default_factory=dict)
    clusters: dict[str, KafkaCluster] = field(default_factory=dict)
    databases: dict[str, PostgresDatabase] = field(default_factory=dict)
    catalog: CatalogSettings | None = None
    _files: Any = field(default_factory=lambda: count(1))
    _runs: Any = field(default_factory=lambda: count(1))

    @property
    def target(self) -> Target:
        """The target of the runs."""
        return Target(
            name="scratch",
            lake=self.lake,
            clusters=self.clusters,
            databases=self.databases,
            feeds=self.bindings,
            default_binding=self.landing,
            catalog=self.catalog,
        )

    def run(
        self, stream: "Stream", runs: Sequence[Records | Mapping[str, Records]] = ()
    ) -> "list[StreamResult]":
        """Run a stream once per list of rows; without lists, once over what is there.

        Args:
            stream: The stream.
            runs: The rows that arrive before each run: dicts (or lines of text, for a feed), or such lists by
                source name.

        Returns:
            The result of each run.

        Raises:
            TidemillError: The failure of a run.
        """
        results = []
        for arriving in runs or [[]]:
            by_source = arriving if isinstance(arriving, Mapping) else {next(iter(stream.sources)): arriving}
            for source, records in by_source.items():
                self.arrive(stream, source, records)
            results.append(self.run_all([stream])[0])
            if results[-1].error is not None:
                raise results[-1].error
        return results

    def run_all(self, streams: "Iterable[Stream]") -> "list[StreamResult]":
        """Run several streams once; errors are in the results."""
        return list(self.start(streams).iter_results())

    def start(self, streams: "Iterable[Stream]") -> PipelineRun:
        """Return a run of several streams that the test iterates over itself."""
        for stream in (streams := list(streams)):
            if (feed := feed_of(stream)) is not None:
                (self.landing / feed.name).mkdir(parents=True, exist_ok=True)
        return PipelineRun(
            streams, target=self.target, engine=self.engine, run_id=f"run-{os.getpid()}-{next(self._runs)}"
        )

    def arrive(self, stream: "Stream", source: str, records: Records) -> None:
        """Put rows where a source of a stream reads them: into a file of its feed, or the upstream's table."""
        if not records:
            return
        reading = stream.sources[source]
        if reading.feed_name is not None:
            self.drop_file(reading.feed_name, records)
        elif reading.upstream is not None:
            rows: list[Any] = [dict(record) for record in records if isinstance(record, Mapping)]
            with session_of(self.engine) as spark:
                frame = spark.createDataFrame(rows)
                frame.write.format("delta").mode("append").save(str(self.lake.table(reading.upstream)))
        else:
            raise TypeError(f"the kit fills feeds and tables of other streams, not {reading.describe()}")

    def drop_file(self, feed: str, records: Records) -> Path:
        """Move a file of JSON lines (or of lines given as strings) into a feed's folder."""
        folder = self.landing / feed
        folder.mkdir(parents=True, exist_ok=True)
        number = next(self._files)
        path = folder / f"{number:06d}.json"
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        temporary = folder / f".{path.name}"
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        # The file source reads in the order of modification times: the order in which files were dropped.
        os.utime(temporary, (1_700_000_000 + number, 1_700_000_000 + number))
        temporary.replace(path)
        return path

    def rows(self, stream: "Stream", *columns: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a stream's table as a multiset, without tombstones and reserved columns.

        Args:
            stream: The stream.
            columns: The columns, in this order; by default all, in the table's order.
        """
        return self.table_rows(self.lake.table(stream.name), *columns)

    def quarantined(self, stream: "Stream", *columns: str) -> Counter[tuple[Any, ...]]:
        """Return a stream's quarantined records as a multiset: `raw` and `violated`, unless others are named."""
        return self.table_rows(self.lake.quarantine(stream.name), *(columns or ("raw", "violated")))

    def table_rows(self, table: TableRef, *columns: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a Delta table as a multiset; none where there is no table."""
        opened = table.open()
        if opened is None:
            return Counter()
        names = [field.name for field in opened.schema().fields]
        records = table.dataset(opened).to_table().to_pylist()
        chosen = columns or tuple(name for name in names if name not in (*BOOKKEEPING, DELETED))
        alive = (record for record in records if not record.get(DELETED))
        return multiset([_plain(record[column]) for column in chosen] for record in alive)

    def checkpoint(self, name: "StreamName", generation: int = 1) -> Path:
        """Return the checkpoint folder of a stream."""
        return Path(self.lake.checkpoint(name, generation).uri())


def _plain(value: Any) -> Any:
    """Return a value that can be compared and counted."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((key, _plain(item)) for key, item in value.items())
    return value
