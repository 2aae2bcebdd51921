"""How a Postgres database is reached: the table `[targets.<name>.postgres.<database>]`."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tidemill.target.secret import Secret, revealed

SslMode = Literal["disable", "prefer", "require", "verify-ca", "verify-full"]


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
