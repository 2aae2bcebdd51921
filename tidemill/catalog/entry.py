"""What a catalog says about a name, as Spark reports it: of any catalog that Spark is configured with."""

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row, SparkSession

    from tidemill.text.catalog_name import CatalogName

SESSION_CATALOG = "spark_catalog"
"""Spark's own catalog: a Hive metastore, or a catalog in memory that ends with Spark."""
_CREATING = Lock()
_DETAILS = "# Detailed Table Information"
_NO_TABLE = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_DATABASE_EXCEPTION"})
# Of a name whose table cannot be opened at its location, such as one whose folder was moved.
_NOT_THERE = "DELTA_"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a catalog has under a name.

    Attributes:
        location: Where the table is; None of a view.
        provider: Its format, in lower case: `delta`, `parquet`; empty where Spark does not report it.
        kind: `EXTERNAL`, `MANAGED` or `VIEW`.
    """

    location: str | None
    provider: str = ""
    kind: str = ""

    def __str__(self) -> str:
        if self.location is None:
            return f"a {self.kind.lower() or 'view'}"
        return f"{'a table' if self.provider in ('delta', '') else f'a table of {self.provider}'} at {self.location}"


def entry_of(spark: "SparkSession", name: "CatalogName") -> Entry | None:
    """Return what a catalog has under a name; None where it has nothing.

    Raises:
        Exception: What Spark or the catalog raises where it cannot be asked, such as for a user without permission.
    """
    from pyspark.errors import AnalysisException

    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    except AnalysisException as error:
        condition = error.getCondition() or ""
        if condition in _NO_TABLE:
            return None
        if not condition.startswith(_NOT_THERE):
            raise
        entry = _unopened(spark, name)
        if entry is None:
            raise
        return entry
    return _entry({str(row[0]): str(row[1]) for row in _after(rows, _DETAILS)})


def _after(rows: "Sequence[Row]", heading: str) -> "Sequence[Row]":
    """Return the rows after a heading: those before it are columns, which may have any name."""
    at = next((number for number, row in enumerate(rows) if row[0] == heading), None)
    return [] if at is None else rows[at + 1 :]


def _unopened(spark: "SparkSession", name: "CatalogName") -> Entry | None:
    """Return what the catalog has under the name of a table that cannot be opened."""
    pattern = name.table.lower()
    shown = spark.sql(f"SHOW TABLE EXTENDED IN {name.sql_schema} LIKE {_literal(pattern)}").collect()
    for row in shown:
        lines = (line.partition(":") for line in str(row["information"]).splitlines())
        return _entry({key.strip(): value.strip() for key, _, value in lines})
    return None


def _literal(value: str) -> str:
    return f"'{value}'"  # a name has neither quotes nor the characters of a pattern


def _entry(details: dict[str, str]) -> Entry:
    kind = details.get("Type", "").upper()
    location = details.get("Location") or None
    return Entry(
        location=None if "VIEW" in kind else location,
        provider=details.get("Provider", "").lower(),
        kind=kind,
    )


def reason_of(error: BaseException) -> str:
    """Return why Spark or a catalog refused something, on one line."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def forgets_tables(spark: "SparkSession", name: "CatalogName") -> bool:
    """Return whether a name is in Spark's own catalog and that is in memory: nobody else would ever see it."""
    if name.catalog.lower() != SESSION_CATALOG:
        return False
    implementation = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    own = spark.conf.get(f"spark.sql.catalog.{SESSION_CATALOG}", "") or ""
    return implementation == "in-memory" and own.endswith(".DeltaCatalog")


def create_schema(spark: "SparkSession", name: "CatalogName") -> None:
    """Create the schema of a name where it does not exist.

    A Hive metastore logs an error with its stack where a schema exists, so it is asked first, by one stream at a time.
    """
    with _CREATING:
        if not spark.catalog.databaseExists(name.sql_schema):
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {name.sql_schema}")
