"""A connection to a Postgres database, whose errors are errors of Tidemill."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigurationError, TerminalError, TidemillError, TransientError
from tidemill.target.postgres import ACCESS_REFUSED, CONNECT_SECONDS, PostgresDatabase
from tidemill.text.secret import MASK, revealed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

LOCK_SECONDS = 60
"""How long a batch waits for a row that another transaction holds, before it is interrupted."""

# Classes of SQLSTATE: connection, transaction rolled back, resources, operator intervention; and a lock that is held.
_INTERRUPTED = ("08", "40", "53", "57", "55P03")
_DENIED = ("28", "42501", "3D000")


@contextmanager
def transaction(database: PostgresDatabase) -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
    """Open a connection with one transaction, which commits at the end of the block.

    Raises:
        ConfigurationError: psycopg is not installed, or a variable that holds a credential is not set.
        TransientError: The database does not answer, or another transaction is in the way.
        TerminalError: It refuses the role, or a statement.
    """
    try:
        import psycopg
    except ImportError:
        raise ConfigurationError(
            "A JdbcSink needs the package psycopg, which is not installed.",
            fix="pip install 'tidemill[postgres]'",
            code="postgres-not-installed",
        ) from None
    arguments = database.connect_arguments()
    try:
        connection = psycopg.connect(
            **arguments,
            connect_timeout=CONNECT_SECONDS,
            application_name="tidemill",
            client_encoding="UTF8",
            prepare_threshold=None,  # a pooler may give each transaction another session
        )
    except psycopg.Error as error:
        raise _not_connected(error, database) from None
    try:
        with connection:
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            yield connection
    except psycopg.Error as error:
        raise _refused(error, database) from None


def server_version(database: PostgresDatabase) -> str:
    """Return the version of the server, such as `17.6`; raise as `transaction` does."""
    with transaction(database) as connection:
        (version,) = connection.execute("SHOW server_version").fetchone() or ("",)
    return str(version).partition(" ")[0]


def _not_connected(error: Exception, database: PostgresDatabase) -> TidemillError:
    reason = _one_line(error, database)
    if ACCESS_REFUSED.search(reason):
        return _access_refused(reason, database)
    return TransientError(
        f"the Postgres database {database} does not answer: {reason}.", code="database-unavailable"
    )


def _refused(error: "psycopg.Error", database: PostgresDatabase) -> TidemillError:
    state, reason = error.sqlstate or "", _one_line(error, database)
    if state.startswith(_INTERRUPTED) or (not state and _is_connection_lost(error)):
        return TransientError(
            f"the Postgres database {database} interrupted the transaction: {reason}.",
            code="database-unavailable",
        )
    if state.startswith(_DENIED):
        return _access_refused(reason, database)
    return TerminalError(
        f"the Postgres database {database} refused the rows: {reason}.",
        lost="No data was lost, and no row of the batch was written.",
        fix="correct the function or the table; the next run repeats the batch.",
        code="sink-write-refused",
    )


def _access_refused(reason: str, database: PostgresDatabase) -> TerminalError:
    return TerminalError(
        f"the Postgres database {database} refused access: {reason}.",
        fix="correct the database in tidemill.toml, or the variables that it names, or grant the role the privilege.",
        code="database-access-refused",
    )


def _is_connection_lost(error: "psycopg.Error") -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError)


def _one_line(error: Exception, database: PostgresDatabase) -> str:
    """Return the first line of a message, without values of rows, which follow it, and without the password."""
    line = str(error).strip().partition("\n")[0].strip().rstrip(".")
    password = revealed(database.password)
    return line.replace(password, MASK) if password else line
