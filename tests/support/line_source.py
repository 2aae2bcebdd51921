"""A Python data source: the lines of a file, two per batch. A module of its own, which workers import."""
# ruff: noqa: N802, ARG002 - the names of Spark's interface

from itertools import islice
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow


class LineSource(DataSource):
    @classmethod
    def name(cls):
        return "lines"

    def schema(self):
        return "line STRING"

    def streamReader(self, schema):
        return LineReader(Path(self.options["path"]))


class LineReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, path):
        self.path, self.end = path, None

    def _count(self):
        return len(self.path.read_text().splitlines())

    def initialOffset(self):
        return {"lines": 0}

    def prepareForTriggerAvailableNow(self):
        self.end = self._count()

    def getDefaultReadLimit(self):
        return ReadMaxRows(2)

    def latestOffset(self, start, limit):
        end = self._count() if self.end is None else self.end
        if not isinstance(limit, ReadAllAvailable):
            end = min(end, start["lines"] + limit.max_rows)
        return {"lines": end}

    def partitions(self, start, end):
        return [InputPartition((start["lines"], end["lines"]))]

    def read(self, partition):
        start, end = partition.value
        for line in islice(self.path.read_text().splitlines(), start, end):
            yield (line,)
