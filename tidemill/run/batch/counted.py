"""What is counted and observed of rows while they are written, by the job that writes them."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tidemill.records.batch import json_values
from tidemill.run.spark.classic import named_observations, observed_json, observed_metrics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class CountedRows:
    """Rows of a batch whose aggregates are known once something has written them.

    The observation is a barrier as well: the optimizer merges no expression above it with one below. Without it a
    filter on parsed columns would parse each record once per column.

    Args:
        aggregates: The aggregates, each with a name.
        reads_all: Whether what is done with the rows reads each of them.

    Attributes:
        rows: The rows, which count themselves when they are executed.
    """

    def __init__(self, rows: "DataFrame", *aggregates: "Column", reads_all: bool = True) -> None:
        from pyspark.sql import Observation

        self._plain, self._aggregates, self._reads_all = rows, aggregates, reads_all
        self._observation = Observation()
        self.rows = rows.observe(self._observation, *aggregates)

    def numbers(self) -> dict[str, Any]:
        """Return the aggregates by name, after the rows were executed once.

        Spark leaves out the whole plan where it finds that nothing comes of it, as below a filter that is always
        false. The rows are then counted by themselves, as where some may not have been read.
        """
        observed = None
        if self._reads_all:
            observed = observed_metrics(self._plain.sparkSession, self._observation)
        return numbers(self._plain.agg(*self._aggregates)) if observed is None else _without_null(observed)


class NamedObservations:
    """What a function observes by `observe()` with a name, in a plan that is no part of the query.

    Args:
        rows: What the function returned, not executed.
        names: The names of its observations.
    """

    def __init__(self, rows: "DataFrame", names: Collection[str]) -> None:
        self._spark = rows.sparkSession
        self._observations = named_observations(rows, names) if names else {}

    def values(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of each observation, after the rows were executed once; none of those left out."""
        observed = {
            name: observed_json(self._spark, observation) for name, observation in self._observations.items()
        }
        return {name: json_values(metrics) for name, metrics in observed.items() if metrics is not None}


def numbers(aggregates: "DataFrame") -> dict[str, Any]:
    """Return one row of counts by name; an aggregate over no rows counts 0."""
    row = aggregates.first()
    return _without_null(row.asDict() if row else {})


def _without_null(counts: dict[str, Any]) -> dict[str, Any]:
    return {name: number or 0 for name, number in counts.items()}
