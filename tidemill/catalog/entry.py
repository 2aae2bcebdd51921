"""What a catalog says about a name, as Spark reports it: of any catalog that Spark is configured with."""

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from tidemill.text.catalog_name import sql_string

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row, SparkSession

    from tidemill.text.catalog_name import CatalogName

SESSION_CATALOG = "spark_catalog"
"""Spark's own catalog: a Hive metastore, or a catalog in memory that ends with Spark."""
_CALLED = "An error occurred while calling"  # what Py4J puts before an exception of Java
_CREATING = Lock()
_DETAILS = "# Detailed Table Information"
_NO_TABLE = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_DATABASE_EXCEPTION"})
# Of a name whose table cannot be opened at its location, such as one whose folder was moved.
_NOT_THERE = "DELTA_"
# Delta's error about a table with catalog-managed commits in a catalog that does not manage any.
_MANAGED = "commit coordinator"


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
        return _unopened(spark, name, error)
    except Exception as error:
        if _MANAGED not in str(error):
            raise
        return _unopened(spark, name, error)
    return _entry({str(row[0]): str(row[1]) for row in _after(rows, _DETAILS)})


def _after(rows: "Sequence[Row]", heading: str) -> "Sequence[Row]":
    """Return the rows after a heading: those before it are columns, which may have any name."""
    at = next((number for number, row in enumerate(rows) if row[0] == heading), None)
    return [] if at is None else rows[at + 1 :]


def _unopened(spark: "SparkSession", name: "CatalogName", error: Exception) -> Entry:
    """Return what the catalog has under the name of a table that cannot be opened.

    Args:
        error: The error of the attempt, which is raised where the catalog has nothing.
    """
    # A name has none of the characters of a pattern.
    shown = spark.sql(f"SHOW TABLE EXTENDED IN {name.sql_schema} LIKE {sql_string(name.table)}").collect()
    for row in shown:
        lines = (line.partition(":") for line in str(row["information"]).splitlines())
        return _entry({key.strip(): value.strip() for key, _, value in lines})
    raise error


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
    lines = (line.strip().removeprefix(": ") for line in str(error).splitlines())
    reasons = [line for line in lines if line and not line.startswith(_CALLED)]
    return (reasons[0] if reasons else type(error).__name__).rstrip(".")


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
