"""How a Postgres database is reached: the table `[targets.<name>.postgres.<database>]`."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode

from tidemill.errors import DefinitionError
from tidemill.text.secret import Secret, revealed

SslMode = Literal["disable", "prefer", "require", "verify-ca", "verify-full"]
CONNECT_SECONDS = 10
"""A server on another continent answers within two seconds; a schedule retries."""
ACCESS_REFUSED = re.compile(
    r"authentication failed|no password (?:supplied|was provided)|pg_hba\.conf|(?:role|database) .* does not exist"
    r"|is not permitted to log in|permission denied|SSL|certificate"
)
"""What a client of Postgres says about a connection that fails, which has no SQLSTATE, where retrying does not help."""
LONGEST_NAME = 63
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST_NAME - 1}}}")


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """How to reach a Postgres database.

    Attributes:
        host: The server.
        database: The database.
        port: The server's port.
        username: The role; by default the one that libpq takes, which is the user of the operating system.
        password: Its password; never shown. Without one, libpq uses what it has itself, such as `~/.pgpass`.
        sslmode: `disable`, `prefer`, `require`, `verify-ca` or `verify-full`, as libpq names them.
        ca_file: A PEM file of the authorities to trust, for `verify-ca` and `verify-full`.
    """

    host: str
    database: str
    port: int = 5432
    username: str | Secret | None = None
    password: str | Secret | None = field(default=None, repr=False)
    sslmode: SslMode = "prefer"
    ca_file: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    def connect_arguments(self) -> dict[str, Any]:
        """Return the arguments of a connection, with the secrets.

        Raises:
            ConfigurationError: A variable that holds a credential is not set.
        """
        arguments = {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": revealed(self.username),
            "password": revealed(self.password),
            "sslmode": self.sslmode,
            "sslrootcert": self.ca_file,
        }
        return {name: value for name, value in arguments.items() if value}

    def jdbc_options(self) -> dict[str, str]:
        """Return the options of Spark's JDBC reader for a connection that only reads, with the secrets.

        The address has no secret, because Spark may show it.

        Raises:
            ConfigurationError: A variable that holds a credential is not set.
        """
        properties = {
            "sslmode": self.sslmode,
            "sslrootcert": self.ca_file,
            "connectTimeout": CONNECT_SECONDS,
            "ApplicationName": "tidemill",
            "readOnly": "true",
            "prepareThreshold": 0,  # a pooler may give each transaction another session
        }
        given = {name: value for name, value in properties.items() if value is not None}
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = {
            "driver": "org.postgresql.Driver",
            "url": f"jdbc:postgresql://{host}:{self.port}/{quote(self.database, safe='')}?{urlencode(given)}",
            "user": revealed(self.username),
            "password": revealed(self.password),
        }
        return {name: value for name, value in options.items() if value}


def schema_and_name(table: object, *, field: str) -> tuple[str, str]:
    """Return the two parts of the name of a table.

    Args:
        table: `schema.name`.
        field: The field it is for, named in the error.

    Raises:
        DefinitionError: It is not such a name.
    """
    parts = table.split(".") if isinstance(table, str) else []
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):  # noqa: PLR2004 - a schema and a name
        raise DefinitionError(
            f"{field} is {table!r}; write it as 'schema.name', with letters, digits and '_', each at most "
            f"{LONGEST_NAME} long."
        )
    schema, name = parts
    return schema, name
