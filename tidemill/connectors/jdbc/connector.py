"""How Spark reads rows of a Postgres database."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemill.connectors.answers import SOURCE, ExternalData
from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.external_keys import query_key, table_key
from tidemill.connectors.jdbc.source import JdbcSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.target.target import Target

_READING = {
    "fetchsize": "10000",  # Postgres's driver otherwise has all rows in memory
    "preferTimestampNTZ": "true",  # a timestamp without a time zone is no moment
    "pushDownPredicate": "false",  # strings have another order there
}


class JdbcConnector(Connector[JdbcSource]):
    """Tables and queries of Postgres (Spark guide "Data Sources", "JDBC To Other Databases")."""

    kind = "jdbc"

    def external(self, source: JdbcSource, target: "Target | None") -> Iterator[ExternalData]:
        """Yield the table, or the query."""
        database = source.database
        if source.query is None:
            path, original = table_key(database, str(source.table)), str(source.table)
        else:
            path, original = query_key(database, source.query), source.query
        yield ExternalData(
            path=path, kind="postgres", description=f"{source.describe()}.", metadata={SOURCE: original}
        )

    def load(self, source: JdbcSource, context: SourceContext, name: str) -> "DataFrame":
        """Return the rows, which each batch reads.

        Raises:
            ConfigurationError: The target has no such database, or a variable that holds a credential is not set.
        """
        options = context.target.database(source.database).jdbc_options()
        options |= _READING | source.partitioning | {"dbtable": source.relation}
        return context.spark.read.format("jdbc").options(**options).load()
