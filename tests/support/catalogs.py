"""A catalog without a JVM: what Tidemill asks of a session of Spark, answered from a dict."""

import re
from dataclasses import dataclass, field
from types import SimpleNamespace

from pyspark.errors import AnalysisException

from tidemill.storage.table_ref import TableRef

_NAME = r"`(\w+)`\.`(\w+)`\.`([\w-]+)`"
_CREATE = re.compile(rf"CREATE TABLE IF NOT EXISTS {_NAME} USING delta.* LOCATION '(.*)'", re.DOTALL)


class NoTable(AnalysisException):
    """Spark's error about a name that leads nowhere."""

    def __init__(self, name: str) -> None:
        super().__init__(f"[TABLE_OR_VIEW_NOT_FOUND] The table or view {name} cannot be found.")

    def getCondition(self):  # noqa: N802 - Spark's name
        return "TABLE_OR_VIEW_NOT_FOUND"


@dataclass
class Catalog:
    """A session with a catalog.

    Attributes:
        tables: The location of each table by its name; a string without a slash is the text of a view.
        statements: What was asked.
        fails: What every statement raises.
        confs: The confs of the session.
    """

    tables: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    fails: Exception | None = None
    confs: dict[str, str] = field(default_factory=dict)

    @property
    def catalog(self):
        return SimpleNamespace(databaseExists=lambda _name: True)

    @property
    def conf(self):
        return SimpleNamespace(get=lambda name, default=None: self.confs.get(name, default))

    def sql(self, statement):
        self.statements.append(statement)
        if self.fails is not None:
            raise self.fails
        if (created := _CREATE.fullmatch(statement)) is not None:
            self.tables.setdefault(".".join(created.groups()[:3]), created[4])
        rows = self.described(statement) if statement.startswith("DESCRIBE") else []
        return SimpleNamespace(collect=lambda: rows)

    def described(self, statement):
        name = ".".join(re.search(_NAME, statement).groups())
        if name not in self.tables:
            raise NoTable(name)
        at = self.tables[name]
        details = [("Location", at), ("Provider", "delta"), ("Type", "EXTERNAL")]
        if "/" not in at:
            details = [("View Text", at)]
        return [
            ("Location", "string", ""),  # a column of the table
            ("", "", ""),
            ("# Detailed Table Information", "", ""),
            *((key, value, "") for key, value in details),
        ]


def comments_in(table: TableRef) -> tuple[str | None, dict[str, str]]:
    """Return the comment of a table and those of its columns, as its log has them."""
    opened = table.open()
    columns = ((column.name, (column.metadata or {}).get("comment")) for column in opened.schema().fields)
    return opened.metadata().description, {name: comment for name, comment in columns if comment}
