"""Write each row of a micro-batch by an object of the user's."""

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.definitions.sink import Delivery, SinkBatch
from tidemill.errors import DefinitionError
from tidemill.sinks.external_sink import ExternalSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row


@dataclass(frozen=True)
class ForeachSink(ExternalSink):
    """Each row is given to a writer, in the tasks of Spark, at least once.

    The writer has the methods of Spark's `foreach`: `process(row)`, and where they are needed
    `open(partition_id, epoch_id)` and `close(error)`. For each partition of a batch, `open` is called first, with the
    batch id as `epoch_id`; where it returns False, the rows of the partition are left out. `close` is called at
    the end, also where `open` returned False, with the error of `process`, or None. An error stops the
    batch, and nothing is committed.

    A batch is written before the main table commits. After an error or a kill in between, the next run gives the writer
    the rows again, with the same `epoch_id`. A task that Spark repeats does so, too. A batch that the main table has is
    not given to it again. A rewind, a reset and a rebuild begin a new query, whose batch ids count from 0.

    Attributes:
        writer: A class or a function without arguments that makes a writer for each partition; or a writer, which each
            task gets a copy of.
        name: The name of the sink; by default that of the class or the function.
    """

    writer: Any
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        kind = self.writer if inspect.isclass(self.writer) else type(self.writer)
        if not hasattr(kind, "process") and not inspect.isroutine(self.writer):
            raise DefinitionError(
                f"ForeachSink: writer is {self.writer!r}; give a class with the method process(row), an object of one, "
                "or a function that makes one."
            )
        if not self.name:
            name = getattr(self.writer, "__name__", type(self.writer).__name__)
            object.__setattr__(self, "name", name.lower())
        super().__post_init__()

    @property
    def delivery(self) -> Delivery:
        """A batch that is repeated before the main table has committed is given to the writer again."""
        return "at least once"

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Give the rows to a writer per partition."""
        rows.foreachPartition(_partition(self.writer, batch.identity.batch_id))


def _partition(declared: Any, epoch_id: int) -> "Callable[[Iterator[Row]], None]":
    """Return the function of the rows of one partition."""
    makes = inspect.isclass(declared) or inspect.isroutine(declared)

    def process(rows: "Iterator[Row]") -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        writer = declared() if makes else declared
        takes = not hasattr(writer, "open") or writer.open(context.partitionId() if context else 0, epoch_id)
        error = None
        try:
            if takes:
                for row in rows:
                    writer.process(row)
        except Exception as raised:
            error = raised
            raise
        finally:
            if hasattr(writer, "close"):
                writer.close(error)

    return process
