"""Write each micro-batch by a function of the user's."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.definitions.sink import BatchIdentity, Delivery, SinkBatch
from tidemill.errors import DefinitionError
from tidemill.sinks.external_sink import ExternalSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BatchSink(ExternalSink):
    """Each micro-batch is given to your function, which can write it to any system, at least once.

    ```python
    from tidemill import BatchSink, DeltaAppend, Feed, Json, Pipeline

    shop = Pipeline("shop")


    def export(rows, batch):
        # A folder per batch, which a repeat replaces.
        rows.write.mode("overwrite").json(f"/exports/{batch.query_id}/{batch.batch_id}")


    @shop.stream(source=Feed("orders", format=Json("id STRING")), sink=[DeltaAppend(), BatchSink(export)])
    def orders(events):
        return events
    ```

    The function is called as `function(rows, batch)`: `rows` is the DataFrame of the batch, computed once for all
    sinks, with the column `_batch` where the source is a feed; `batch` has the attributes `stream`, `query_id` and
    `batch_id`. It runs before the main table commits. An error stops the batch, and nothing is committed. The next run
    after an error or a kill repeats the batch: it calls the function again, with the rows of the same input and the
    same `query_id` and `batch_id`, by which the function can replace what it has written, or leave it out. A batch
    that the main table has is not given to the function again.

    A rewind, a reset and a rebuild begin a new query, with another `query_id`; a rewind and a reset give the rows that
    they read again to the function, too. A backfill and a rebuild replace rows of tables and do not call it. A replay
    of the quarantine calls it once, with the id of the replay as `query_id`.

    The function runs where Spark runs foreachBatch: in this process, or with Spark Connect on its server, so it must be
    picklable there.

    Attributes:
        function: The function of the rows and the batch.
        name: The name of the sink; by default that of the function.
    """

    function: "Callable[[DataFrame, BatchIdentity], Any]"
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise DefinitionError(
                f"BatchSink: function is {self.function!r}; give a function of the rows and the batch."
            )
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", ""))
        super().__post_init__()

    @property
    def delivery(self) -> Delivery:
        """A batch that is repeated before the main table has committed is given to the function again."""
        return "at least once"

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Call the function."""
        self.function(rows, batch.identity)
