"""The check `state_bounded`: the state is as large as declared, laid out as pinned, and quick to load."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.checkpoint import CheckpointFormatError, NotACheckpointError
from tidemill.checkpoint.format.logs import open_checkpoint
from tidemill.checkpoint.format.operators import operator_ids, read_operator
from tidemill.checkpoint.format.state_files import StateFile
from tidemill.checks.result import CheckResult, unevaluated
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.definitions.bounds import Severity, StateBounds

NAME = "state_bounded"
_PARTITIONS = "spark.sql.shuffle.partitions"
_SAFE = "A watermark on every streaming source and a time bound in every join let Spark remove rows from the state."


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the state lies on the disk.

    Attributes:
        operators: The stateful operators.
        partitions: The most partitions of one.
        snapshot_age: The most batches since the newest snapshot of a store.
        faults: What does not belong to this checkpoint, a sentence each.
    """

    operators: int = 0
    partitions: int | None = None
    snapshot_age: int | None = None
    faults: tuple[str, ...] = ()


def state_bounded(context: "CheckContext") -> CheckResult:
    """Return whether the state is under its declared bounds and belongs to this checkpoint."""
    lines = [line for line in context.lines if line.state_rows is not None]
    rows, size = (None, None) if not lines else (lines[-1].state_rows, lines[-1].state_bytes)
    try:
        layout = _layout(context)
    except NotACheckpointError:
        layout = _Layout()
    except CheckpointFormatError as error:
        return unevaluated(NAME, f"The state cannot be read ({error}); see checkpoint_sound.")
    growth = _growth(context, rows)
    over = _over_bounds(context.bounds.state, rows, size, growth, layout.snapshot_age)
    severity: Severity = "error" if layout.faults else "warn"
    problems = [*layout.faults, *over]
    if not problems and not layout.operators:
        summary = "The stream has no state."
    else:
        summary = "\n".join(problems) or f"{pluralize(rows or 0, 'row')} in state."
    return CheckResult(
        name=NAME,
        passed=not problems,
        severity=severity,
        summary=summary,
        numbers={
            "state_rows": rows,
            "state_bytes": size,
            "state_growth": None if growth is None else round(growth, 6),
            "state_operators": layout.operators,
            "state_partitions": layout.partitions,
            "snapshot_age_batches": layout.snapshot_age,
        },
    )


def _over_bounds(
    bounds: "StateBounds", rows: int | None, size: int | None, growth: float | None, age: int | None
) -> Iterator[str]:
    if rows is not None and bounds.rows is not None and rows > bounds.rows:
        yield f"{pluralize(rows, 'row')} in state, more than {bounds.rows:,}. {_SAFE}"
    if size is not None and bounds.bytes is not None and size > bounds.bytes:
        yield f"The state has {pluralize(size, 'byte')}, more than {bounds.bytes:,}. {_SAFE}"
    if growth is not None and bounds.growth is not None and growth > bounds.growth:
        yield (
            f"The rows in state grew by {growth:.0%} since the run before, more than {bounds.growth:.0%}. Compare the "
            f"number of keys that the run read with the usual one. {_SAFE}"
        )
    if age is not None and bounds.snapshot_batches is not None and age > bounds.snapshot_batches:
        yield (
            f"The newest snapshot of a store is {pluralize(age, 'batch')} old, more than {bounds.snapshot_batches}: a "
            "restart repeats all changes since. Spark writes one when as many batches as "
            "spark.sql.streaming.stateStore.minDeltasForSnapshot have passed, 10 if not set: set a lower number in the "
            "stream's QueryOptions(options={...})."
        )


def _growth(context: "CheckContext", rows: int | None) -> float | None:
    """Return by how much the rows in state grew since the run before; None where that is not known."""
    if rows is None or not context.lines or context.lines[0].batch_id == 0:
        return None
    ledger = context.snapshot.records.ledger
    before = ledger.lines_of(context.snapshot.generation, [context.lines[0].batch_id - 1])
    earlier = before[0].state_rows if before else None
    return rows / earlier - 1 if earlier else None


def _layout(context: "CheckContext") -> _Layout:
    """Return how the state lies on the disk, by the names of its files."""
    folder = open_checkpoint(context.snapshot.checkpoint)
    tail, manifest = context.snapshot.tail, context.snapshot.manifest
    offset = tail.latest_offset
    newest = 0 if offset is None else offset.batch_id + 1
    confs = {} if manifest is None else dict(manifest.active.confs)
    confs |= {} if offset is None else dict(offset.conf)
    pinned = int(confs[_PARTITIONS]) if confs.get(_PARTITIONS, "").isdigit() else None
    faults, ages, partitions, operators = [], [], [], operator_ids(folder)
    for number in operators:
        operator = read_operator(folder, number)
        partitions.append(operator.partitions)
        # A global aggregation or a limit keeps all rows in one partition, whatever is pinned.
        if pinned is not None and operator.partitions not in (1, pinned):
            faults.append(
                f"state/{number} has {pluralize(operator.partitions, 'partition')}, and the checkpoint pins {pinned}: "
                "it belongs to another checkpoint. Restore the state from a copy."
            )
        faults += [
            (
                f"state/{number}/{partition} is of a partition that the operator does not have: it belongs to "
                "another checkpoint. Move it out of the checkpoint."
            )
            for partition in folder.numbers(f"state/{number}")
            if partition >= operator.partitions
        ]
        for _, _, store in operator.folders():
            files = [file for name in folder.names(store) if (file := StateFile.parse(name))]
            foreign = max((file.version for file in files), default=0)
            if foreign > newest:
                faults.append(
                    f"{store} has version {foreign} of the state, and the newest batch leads to version {newest}: the "
                    "state belongs to another checkpoint, or offsets and commits were removed. Restore the checkpoint "
                    "from a copy."
                )
            whole = [file.version for file in files if file.whole and file.version <= newest]
            if files:
                ages.append(newest - max(whole, default=0))
    return _Layout(len(operators), max(partitions, default=None), max(ages, default=None), tuple(faults))
