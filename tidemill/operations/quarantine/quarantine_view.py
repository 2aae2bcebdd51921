"""What is in the quarantine of a stream, read without a JVM: counts by rule, and examples."""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigurationError
from tidemill.run.batch.quarantine import INPUT, KIND, has_quarantine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

EXAMPLES = 5
"""The examples of a stream that are shown unless another number is named."""

LONGEST_RAW = 500
_COLUMNS = ("raw", "violated", "origin", "generation", "batch_id", "quarantined_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A record of a feed, or a row of an output, in quarantine.

    Attributes:
        kind: `input` for a record of the feed, `output` for a row of the output.
        raw: Its text, cut where it is long: of a row its columns as JSON; None for a Kafka message without a value.
        violated: The rules that it violates; `unparsable` where it cannot be parsed.
        origin: Where it came from, as the column `_origin`; None for a row without this column.
        generation: The generation of the checkpoint that refused it.
        batch_id: The batch that refused it.
        quarantined_at: When that was.
    """

    kind: str
    raw: str | None
    violated: tuple[str, ...]
    origin: Mapping[str, Any] | None
    generation: int
    batch_id: int
    quarantined_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The quarantine of one stream.

    Attributes:
        table: The folder of its table, which exists from the first refused record on.
        records: How many records it has.
        by_rule: The records that violate each rule, most frequent first. A record that violates two counts twice.
        newest: When the newest was refused; None where there is none.
        examples: The newest records, newest first.
    """

    stream: "StreamName"
    table: "TableRef"
    records: int = 0
    by_rule: Mapping[str, int]
    newest: datetime | None = None
    examples: tuple[RefusedRecord, ...] = ()


def quarantined(stream: "Stream", target: "Target", *, limit: int = EXAMPLES) -> Quarantine:
    """Return what is in the quarantine of a stream.

    The table is scanned in pieces, and the text of the examples only is read.

    Args:
        stream: The stream.
        limit: The most examples.
    """
    path = target.lake.quarantine(stream.name)
    table = path.open()
    if table is None:
        return Quarantine(stream=stream.name, table=path, by_rule={})
    import pyarrow.compute as pc

    data = path.dataset(table)
    records, rules, newest = 0, Counter[str](), list[datetime]()
    for batch in data.to_batches(columns=["violated", "quarantined_at"]):
        records += batch.num_rows
        rules.update(_counts(batch.column("violated")))
        times = batch.column("quarantined_at").drop_null().to_pylist()
        newest = heapq.nlargest(max(1, limit), [*newest, *times])
    examples: list[dict[str, Any]] = []
    if newest and limit:
        is_new = pc.field("quarantined_at") >= newest[-1]
        columns = [*_COLUMNS, *([KIND] if KIND in data.schema.names else [])]
        examples = data.scanner(columns=columns, filter=is_new).head(limit).to_pylist()
    return Quarantine(
        stream=stream.name,
        table=path,
        records=records,
        by_rule=dict(sorted(rules.items(), key=lambda item: (-item[1], item[0]))),
        newest=max(newest, default=None),
        examples=tuple(
            sorted(map(_record, examples), key=lambda record: record.quarantined_at, reverse=True)
        ),
    )


def with_quarantine(streams: "Sequence[Stream]", target: "Target") -> "tuple[Stream, ...]":
    """Return the streams that have a quarantine: by their definition, or because an earlier one has filled it.

    Raises:
        ConfigurationError: There is none among them.
    """
    having = tuple(
        stream
        for stream in streams
        if has_quarantine(stream) or target.lake.quarantine(stream.name).open() is not None
    )
    if not having:
        raise ConfigurationError(
            "The selection has no stream with a quarantine: none reads a feed, or has an expectation with "
            "on_violation='quarantine'.",
            fix="Select another stream; tidemill list shows what each stream reads.",
            code="quarantine-missing",
        )
    return having


def _counts(violated: Any) -> dict[str, int]:
    """Return how often each rule is in a column of lists."""
    import pyarrow.compute as pc

    return {item["values"]: item["counts"] for item in pc.value_counts(pc.list_flatten(violated)).to_pylist()}


def _record(fields: dict[str, Any]) -> RefusedRecord:
    raw = fields["raw"]
    if raw is not None and len(raw) > LONGEST_RAW:
        raw = raw[:LONGEST_RAW] + " ..."
    kind = fields.get(KIND) or INPUT
    return RefusedRecord(**{**fields, "kind": kind, "raw": raw, "violated": tuple(fields["violated"])})
