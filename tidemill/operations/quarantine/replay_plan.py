"""What a replay does, or has done, for people; and refused records under today's schema and rules."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from tidemill.connectors.violations import counts, kept
from tidemill.definitions.columns import BATCH, ORIGIN, RAW, TABLE_COLUMNS, VIOLATED, refuse_reserved
from tidemill.operations.core.change import Change
from tidemill.run.batch.writer import batch_column
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.connectors.feed import Feed
    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef
    from tidemill.text.names import StreamName

_REFUSED = "__tidemill_refused"
_FIELDS = ("generation", "batch_id", "quarantined_at", "violated")
# A plan has the function once per batch, and analyzing it takes longer than running it where it has hundreds.
_BATCHES_PER_PLAN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What today's schema and rules say about refused records.

    Attributes:
        records: How many records there are.
        passed: How many violate no rule.
        changed: How many still violate a rule, and others than before.
        by_rule: Those that violate each rule, most frequent first.
    """

    records: int = 0
    passed: int = 0
    changed: int = 0
    by_rule: Mapping[str, int]

    @property
    def stay(self) -> int:
        """How many stay in quarantine."""
        return self.records - self.passed


def validated(feed: "Feed", refused: "DataFrame") -> "DataFrame":
    """Return refused records as the feed parses them today.

    The columns are those of the quarantine table, where `violated` has today's rules, and `before` those that the
    record was refused by.

    Args:
        refused: Rows of the quarantine table.
    """
    from pyspark.sql import functions as F

    records = refused.select(
        F.col("raw").alias(RAW), F.col("origin").alias(ORIGIN), F.struct(*_FIELDS).alias(_REFUSED)
    )
    return feed.validated(records, _REFUSED).select(
        F.col(RAW).alias("raw"),
        F.col(VIOLATED).alias("violated"),
        F.col(ORIGIN).alias("origin"),
        F.col(f"{_REFUSED}.generation"),
        F.col(f"{_REFUSED}.batch_id"),
        F.col(f"{_REFUSED}.quarantined_at"),
        F.col(f"{_REFUSED}.violated").alias("before"),
    )


def verdict_of(rows: "DataFrame") -> Verdict:
    """Return the counts of validated records."""
    from pyspark.sql import functions as F

    groups = rows.groupBy("violated", "before").agg(F.count(F.lit(1)).alias("records")).collect()
    rules = Counter[str]()
    for group in groups:
        rules.update(dict.fromkeys(group["violated"], group["records"]))
    return Verdict(
        records=sum(group["records"] for group in groups),
        passed=sum(group["records"] for group in groups if not group["violated"]),
        changed=sum(
            group["records"]
            for group in groups
            if group["violated"] and set(group["violated"]) != set(group["before"])
        ),
        by_rule=dict(sorted(rules.items(), key=lambda item: (-item[1], item[0]))),
    )


def write_output(stream: "Stream", feed: "Feed", rows: "DataFrame", table: "TableRef") -> dict[str, Any]:
    """Write what the function makes of the records that passed, as a Delta table, and return its counts.

    A row keeps the batch that refused its record: whatever selects rows by the batch that read their records, such
    as a backfill, selects it with its neighbors.

    Args:
        rows: Judged records that were written down.

    Raises:
        TerminalError: The function's output has a reserved column.
        Exception: Spark's error about the function, or an expectation that stops the stream.
    """
    from pyspark.sql import functions as F

    passed = rows.where(F.size("violated") == 0)
    batches = sorted(
        (row["generation"], row["batch_id"])
        for row in passed.select("generation", "batch_id").distinct().collect()
    )
    computed = replace(table, key=f"{table.key}-computed") if stream.expect else table
    for first in range(0, len(batches), _BATCHES_PER_PLAN):
        group = batches[first : first + _BATCHES_PER_PLAN]
        outputs = [_output(stream, feed, passed, generation, batch) for generation, batch in group]
        _append(reduce(lambda one, other: one.unionByName(other), outputs), computed)
    if not stream.expect:
        return {"rows_out": None}
    output = computed.read(rows.sparkSession)
    row = output.agg(*counts(output, stream.expect)).first()
    numbers = {} if row is None else {name: number or 0 for name, number in row.asDict().items()}
    _append(kept(output, stream.expect), table)
    return {
        "rows_out": numbers.pop("rows"),
        "rows_dropped": numbers.pop("dropped"),
        "violations": {name.removeprefix("violated_"): number for name, number in numbers.items()},
    }


def _output(stream: "Stream", feed: "Feed", passed: "DataFrame", generation: int, batch: int) -> "DataFrame":
    """Return what the function makes of the records that one batch refused."""
    from pyspark.sql import functions as F

    own = passed.where((F.col("generation") == generation) & (F.col("batch_id") == batch))
    records = own.select(F.col("raw").alias(RAW), F.col("origin").alias(ORIGIN))
    output = stream(feed.validated(records).drop(RAW, VIOLATED))
    reserved: Sequence[str] = [column for column in TABLE_COLUMNS if column != ORIGIN]
    refuse_reserved(output.columns, reserved, where="the function's output")
    return output.withColumn(BATCH, batch_column(generation, batch))


def _append(rows: "DataFrame", table: "TableRef") -> None:
    table.write(rows).mode("append").save()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Change):
    """A replay that is planned, or done.

    Attributes:
        verdict: What today's schema and rules say about the records.
        operation: The id of the operation, once it has changed something.
    """

    verdict: Verdict
    operation: str | None = None

    @classmethod
    def of(
        cls,
        stream: "StreamName",
        verdict: Verdict,
        *,
        operation: str | None = None,
        effects: tuple[str, ...] = (),
    ) -> "Replay":
        """Return a replay with what it does in a sentence.

        Args:
            verdict: What today's schema and rules say about the records.
            operation: The id of the operation, once it has changed something.
            effects: What follows from it, one sentence each.
        """
        records, moved = pluralize(verdict.records, "record"), pluralize(verdict.passed, "record")
        return cls(
            stream=stream,
            what=f"{verdict.passed:,} of {records} in quarantine pass today's schema and rules."
            if verdict.records
            else "The quarantine has no record of a committed batch.",
            effects=effects,
            outcome="" if operation is None else f"{moved} moved.",
            verdict=verdict,
            operation=operation,
        )

    @property
    def changes(self) -> bool:
        """Whether a record moves, or stays for other reasons than before."""
        return bool(self.verdict.passed or self.verdict.changed)

    @property
    def item(self) -> dict[str, Any]:
        """The replay as JSON."""
        verdict = self.verdict
        return {
            "stream": str(self.stream),
            "records": verdict.records,
            "moved": verdict.passed,
            "kept": verdict.stay,
            "changed_rules": verdict.changed,
            "rules": dict(verdict.by_rule),
            "operation": self.operation,
            "what": self.what,
            "effects": list(self.effects),
        }


def effects_of(stream: "Stream", verdict: Verdict, readers: "Sequence[Stream]") -> tuple[str, ...]:
    """Return what follows from a replay, one sentence each.

    Args:
        verdict: What today's schema and rules say about its refused records.
        readers: The streams that may read its table.
    """
    effects = []
    if verdict.passed:
        effects.append(f"{pluralize(verdict.passed, 'record')} move through the function into the table.")
    if verdict.stay:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in verdict.by_rule.items())
        effects.append(f"{pluralize(verdict.stay, 'record')} stay in quarantine: {rules}.")
    if verdict.changed:
        effects.append(f"Of those, {pluralize(verdict.changed, 'record')} violate other rules than before.")
    late = [
        (reader.name, source.watermark.column)
        for reader in (readers if verdict.passed else ())
        for source in reader.sources.values()
        if source.upstream == stream.name and source.watermark is not None
    ]
    effects += [
        f"{name} reads the table with a watermark on {column!r}: of the moved rows it drops those that are behind it, "
        "as late rows."
        for name, column in late
    ]
    return tuple(effects)
