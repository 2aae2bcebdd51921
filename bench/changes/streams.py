"""The streams of the campaign, declared from data that edits replace.

```
orders (feed, quarantine) -> sales (with files and a snapshot of customers), unique, hourly, totals
customers (feed, merge)   -> log (its changes), mirror (a merge of its changes)
early (files)              -> copy, both without a row for long
messages (feed, a topic), where there is a broker
```
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import DeltaAppend, DeltaMerge, Feed, FileSource, Json, Pipeline, QueryOptions
from tidemill.definitions.sink import Sink
from tidemill.definitions.stream import Stream

ORDER = "id BIGINT, customer BIGINT, amount BIGINT, at BIGINT"
CUSTOMER = "id BIGINT, seq BIGINT, name STRING, removed BOOLEAN"
DELAY = "1 hour"

Change = Callable[[DataFrame], DataFrame]
Inputs = list[tuple[str, DataFrame]]
Function = Callable[[Inputs], DataFrame]


@dataclass(frozen=True)
class Definition:
    """What is declared, as data.

    Attributes:
        sources: By stream, what it reads by argument: `feed orders`, `files web`, `rows orders`,
            `changes customers` or `static customers`.
        sinks: By stream, its sinks.
        queries: By stream, its options.
        folders: By feed or set of files, its folder below the landing folder.
        columns: By stream, a change of its output.
        keyed_by: By stream, the columns of its state.
    """

    sources: Mapping[str, Mapping[str, str]]
    sinks: Mapping[str, tuple[Sink, ...]]
    queries: Mapping[str, QueryOptions] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Change] = field(default_factory=dict)
    keyed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def changed(self, part: str, stream: str, value: object) -> "Definition":
        """Return the definition with one entry of one of its parts replaced."""
        return replace(self, **{part: {**getattr(self, part), stream: value}})

    def folder(self, what: str) -> str:
        """Return the folder of a feed or of a set of files."""
        return self.folders.get(what, what)

    def further(self, stream: str) -> list[str]:
        """Return the names of a stream's further sinks."""
        return [sink.name for sink in self.sinks[stream] if sink.name != "main"]

    @property
    def deletes(self) -> bool:
        """Whether customers can be deleted."""
        return getattr(self.sinks["customers"][-1], "apply_as_deletes", None) is not None

    def concerned(self, stream: str) -> list[str]:
        """Return a stream with those that it reads and those that stream from it, directly or not."""
        chosen = {stream, *self.readers(stream)}
        for name in reversed(list(self.sources)):
            if name in chosen:
                upstream = (what.split(" ") for what in self.sources[name].values())
                chosen.update(of for kind, of in upstream if kind in ("rows", "changes", "static"))
        return [name for name in self.sources if name in chosen]

    def readers(self, stream: str) -> list[str]:
        """Return the streams that stream from a stream, directly or not."""
        readers: list[str] = []
        for reader, sources in self.sources.items():
            for what in sources.values():
                kind, name = what.split(" ")
                if (
                    kind in ("rows", "changes")
                    and (name == stream or name in readers)
                    and reader not in readers
                ):
                    readers.append(reader)
        return readers


CUSTOMERS = DeltaMerge(keys=["id"], sequence_by="seq", apply_as_deletes="removed", except_columns=["removed"])
MIRROR = DeltaMerge(
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="_change_type = 'delete'",
    except_columns=["_change_type", "_commit_timestamp"],
)


def first_definition(*, messages: bool) -> Definition:
    """Return the definition that a world begins with. Streams come after those that they read."""
    append = (DeltaAppend(),)
    topics = {"messages": {"events": "feed messages"}} if messages else {}
    return Definition(
        sources={
            **topics,
            "orders": {"events": "feed orders"},
            "customers": {"events": "feed customers"},
            "log": {"changes": "changes customers"},
            "mirror": {"changes": "changes customers"},
            "sales": {"orders": "rows orders", "web": "files web", "names": "static customers"},
            "unique": {"orders": "rows orders"},
            "hourly": {"orders": "rows orders"},
            "totals": {"orders": "rows orders"},
            "early": {"files": "files early"},
            "copy": {"early": "rows early"},
        },
        sinks={
            "messages": append,
            "orders": append,
            "customers": (CUSTOMERS,),
            "log": append,
            "mirror": (MIRROR,),
            "sales": append,
            "unique": append,
            "hourly": (DeltaMerge(keys=["hour"], sequence_by="n"),),
            "totals": (DeltaMerge(keys=["customer"]),),
            "early": append,
            "copy": append,
        },
        queries={
            "totals": QueryOptions(output_mode="update", state_store="hdfs"),
            "unique": QueryOptions(state_store="hdfs"),
        },
    )


def _orders(inputs: Inputs) -> DataFrame:
    return _union(inputs).withColumn("time", F.timestamp_seconds("at"))


def _log(inputs: Inputs) -> DataFrame:
    return _union(inputs).select("id", "name", F.col("_change_type").alias("kind"))


def _mirror(inputs: Inputs) -> DataFrame:
    changed = _union(inputs).where("_change_type != 'update_preimage'")
    return changed.withColumnRenamed("_commit_version", "version")


def _sales(inputs: Inputs) -> DataFrame:
    sold = [
        rows.select("id", "customer", "amount")
        if what.startswith("rows")
        else rows.select(F.from_json("value", ORDER).alias("o")).select("o.id", "o.customer", "o.amount")
        for what, rows in inputs
        if not what.startswith("static")
    ]
    [names] = [rows for what, rows in inputs if what.startswith("static")]
    names = names.select(F.col("id").alias("customer"), "name")
    return reduce(DataFrame.unionByName, sold).join(names, "customer", "left")


def _hourly(inputs: Inputs) -> DataFrame:
    counted = _union(inputs).groupBy(F.window("time", "1 hour").alias("w")).agg(F.count("*").alias("n"))
    return counted.select(F.col("w.start").cast("bigint").alias("hour"), "n")


def _totals(inputs: Inputs) -> DataFrame:
    return _union(inputs).groupBy("customer").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


def _early(inputs: Inputs) -> DataFrame:
    return _union(inputs).select(F.from_json("value", ORDER).alias("o")).select("o.id", "o.amount")


def _union(inputs: Inputs) -> DataFrame:
    return reduce(DataFrame.unionByName, [rows for _, rows in inputs])


_FUNCTIONS: Mapping[str, Function] = {
    "messages": _orders,
    "orders": _orders,
    "customers": _union,
    "log": _log,
    "mirror": _mirror,
    "sales": _sales,
    "unique": _union,
    "hourly": _hourly,
    "totals": _totals,
    "early": _early,
    "copy": _union,
}


def declare(definition: Definition, landing: Path) -> dict[str, Stream]:
    """Return the streams by name.

    Raises:
        DefinitionError: The definition is refused.
    """
    pipeline = Pipeline("shop")
    streams: dict[str, Stream] = {}
    for name, reads in definition.sources.items():
        sources = {
            argument: _source(what, streams, definition, landing, watermark=name == "hourly")
            for argument, what in reads.items()
        }
        streams[name] = pipeline.stream(
            source=sources,
            sink=list(definition.sinks[name]),
            query=definition.queries.get(name, QueryOptions()),
            name=name,
        )(_function(name, reads, definition))
    return streams


def _source(
    what: str, streams: Mapping[str, Stream], definition: Definition, landing: Path, *, watermark: bool
) -> Any:
    kind, name = what.split(" ")
    match kind:
        case "feed" if name == "customers":
            return Feed(name, format=Json(CUSTOMER))
        case "feed":
            return Feed(name, format=Json(ORDER), rules={"amount_known": "amount IS NOT NULL"})
        case "files":
            return FileSource(path=str(landing / definition.folder(name)), format="text")
        case "changes":
            return streams[name].changes()
        case "static":
            return streams[name].static()
    return streams[name].with_watermark("time", DELAY) if watermark else streams[name]


def _function(name: str, reads: Mapping[str, str], definition: Definition) -> Callable[..., DataFrame]:
    """Return a function whose arguments have the names that are declared."""
    change = definition.columns.get(name, lambda output: output)

    def function(*frames: DataFrame) -> DataFrame:
        output = _FUNCTIONS[name](list(zip(reads.values(), frames, strict=True)))
        if name == "unique":
            output = output.dropDuplicates(definition.keyed_by.get(name, ("id",))).select("id")
        return change(output)

    parameters = [inspect.Parameter(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD) for argument in reads]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function
