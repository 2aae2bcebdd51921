"""Rows of a Postgres database as a snapshot."""

from dataclasses import dataclass
from datetime import date, datetime

from tidemill.definitions.source import Source, positive
from tidemill.errors import DefinitionError
from tidemill.target.postgres import schema_and_name
from tidemill.text.sql_parsing import one_line_query

_BOUNDS = (int, date, datetime)


@dataclass(frozen=True, kw_only=True)
class JdbcSource(Source):
    """The rows of a table or a query of a Postgres database, as a snapshot next to a source that streams.

    ```python
    from tidemill import DeltaAppend, DeltaSource, JdbcSource, Pipeline

    shop = Pipeline("shop")
    orders = DeltaSource(path="/data/orders")
    customers = JdbcSource(query="SELECT id AS customer_id, country FROM crm.customers WHERE NOT deleted")


    @shop.stream(source={"orders": orders, "customers": customers}, sink=DeltaAppend())
    def orders_by_country(orders, customers):
        return orders.join(customers, "customer_id", "left")
    ```

    The target names the database, `[targets.<name>.postgres.<database>]`, and how it is reached. Spark reads it with
    Postgres's JDBC driver, in transactions that only read. New rows trigger nothing.

    The columns are those that the table has when a query starts. The rows are read in each batch, as they are then: two
    batches of one run may see different rows, and so does a batch that is repeated after a kill. Each row of the
    streaming sources still arrives exactly once. All columns that the function uses are read without a filter, because
    Postgres and Spark do not compare strings in the same way: leave rows out with `query`.

    A large table is read by several connections at once where `partition_column`, `lower_bound`, `upper_bound` and
    `num_partitions` are given. The bounds only decide how the rows are divided, and no row is left out. Each connection
    reads in a transaction of its own.

    Attributes:
        table: The table or view as `schema.name`, as it is written, with its case.
        query: A SELECT in Postgres's SQL instead.
        database: A Postgres database's name in the target.
        partition_column: A column with numbers, dates or timestamps, by which the rows are divided.
        lower_bound: The approximate value at which the second part begins: a number, a date or a datetime.
        upper_bound: The approximate value at which the last part begins.
        num_partitions: The number of parts. Each is read by its own connection.
    """

    kind = "jdbc"
    table: str | None = None
    query: str | None = None
    database: str = "default"
    partition_column: str | None = None
    lower_bound: int | date | None = None
    upper_bound: int | date | None = None
    num_partitions: int | None = None

    def __post_init__(self) -> None:
        if (self.table is None) == (self.query is None):
            raise DefinitionError(
                "JdbcSource: name one table=, or write one query=.", code="arguments-conflict"
            )
        if self.query is None:
            schema_and_name(self.table, field="JdbcSource: table")
        else:
            object.__setattr__(self, "query", one_line_query(self.query, field="JdbcSource: query"))
        if not isinstance(self.database, str) or not self.database:
            raise DefinitionError(
                f"JdbcSource: database is {self.database!r}; name a Postgres database of the target."
            )
        self._check_parts()

    def _check_parts(self) -> None:
        parts = (self.partition_column, self.lower_bound, self.upper_bound, self.num_partitions)
        if parts == (None,) * len(parts):
            return
        if None in parts:
            raise DefinitionError(
                f"{self._field}: partition_column, lower_bound, upper_bound and num_partitions need each other; give "
                "all of them, or none.",
                code="arguments-conflict",
            )
        if not isinstance(self.partition_column, str) or not self.partition_column:
            raise DefinitionError(
                f"{self._field}: partition_column is {self.partition_column!r}; name a column."
            )
        positive(self.num_partitions, field=f"{self._field}: num_partitions")
        lower, upper = self.lower_bound, self.upper_bound
        if type(lower) not in _BOUNDS or type(lower) is not type(upper) or not lower < upper:  # type: ignore[operator]
            raise DefinitionError(
                f"{self._field}: lower_bound is {lower!r} and upper_bound is {upper!r}; give two numbers, dates or "
                "datetimes, the lower one first."
            )

    @property
    def _field(self) -> str:
        return f"JdbcSource {self.table or self.query!r}"

    @property
    def streaming(self) -> bool:
        """A database is read as a snapshot only."""
        return False

    @property
    def never_streams(self) -> str:
        """Spark's JDBC reader knows no position in a table."""
        return (
            f"{self.describe()} can only be a snapshot, because a table of a database has no log that Spark could read "
            "from a position on. To stream it, write its changes to a Kafka topic (change data capture) or its new "
            "rows to files, and read those."
        )

    @property
    def relation(self) -> str:
        """What Spark reads, as it stands in the FROM of its own queries."""
        if self.query is not None:
            return f"({self.query}) AS tidemill"
        return ".".join(f'"{part}"' for part in schema_and_name(self.table, field="JdbcSource: table"))

    @property
    def partitioning(self) -> dict[str, str]:
        """The options of Spark's reader that divide the rows; none where one connection reads them."""
        if self.partition_column is None:
            return {}
        return {
            "partitionColumn": self.partition_column,
            "lowerBound": str(self.lower_bound),
            "upperBound": str(self.upper_bound),
            "numPartitions": str(self.num_partitions),
        }

    def describe(self) -> str:
        """Return the table, or the beginning of the query, and the database."""
        rows = f"table {self.table}" if self.query is None else "a query"
        return f"{rows} of the Postgres database {self.database!r} (static)"
