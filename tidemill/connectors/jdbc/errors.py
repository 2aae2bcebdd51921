"""Errors of Postgres's JDBC driver, as Spark reports them, as errors of Tidemill."""

import re

from tidemill.errors import TerminalError, TidemillError, TransientError
from tidemill.target.postgres import ACCESS_REFUSED
from tidemill.text.names import StreamName

_JDBC = "FAILED_JDBC.CONNECTION"
_RAISED = re.compile(r"org\.postgresql\.util\.PSQLException: ([^\n]+)")
_QUERY_REFUSED = re.compile(r"\[JDBC_EXTERNAL_ENGINE_SYNTAX_ERROR\.\w+\].*? ((?:ERROR|FATAL): [^\n]+)")
_OF_SERVER = ("ERROR:", "FATAL:")
_INTERRUPTED = re.compile(
    r"Connection to \S+ refused|connection attempt failed|I/O error|connection has been closed|terminating connection"
    r"|canceling statement|the database system is|too many (?:clients|connections)|remaining connection slots"
)


def database_error(text: str, stream: StreamName) -> TidemillError | None:
    """Return why Spark cannot read a Postgres database; None for any other error.

    Args:
        text: Spark's message, with its causes.
        stream: The stream that reads the database.
    """
    refused = _QUERY_REFUSED.search(text)
    reason = _sentence(refused[1] if refused else (_RAISED.findall(text) or [""])[-1])
    if ACCESS_REFUSED.search(reason):
        return _access_refused(reason, stream)
    if not refused and (_INTERRUPTED.search(reason) or _JDBC in text):
        return TransientError(
            f"a Postgres database does not answer: {reason or 'Spark cannot connect to it.'}",
            stream=stream,
            code="database-unavailable",
        )
    if not reason.startswith(_OF_SERVER):
        return None
    return TerminalError(
        f"Postgres refused what a JdbcSource reads: {reason}",
        stream=stream,
        fix="correct table= or query= of the source, or the table in the database.",
        code="database-query-refused",
    )


def _access_refused(reason: str, stream: StreamName) -> TerminalError:
    return TerminalError(
        f"a Postgres database refused access: {reason}",
        stream=stream,
        fix="correct the database in tidemill.toml, or the variables that it names, or grant the role the privilege.",
        code="database-access-refused",
    )


def _sentence(reason: str) -> str:
    """Return the first line of what Postgres says."""
    return f"{reason.strip().rstrip('.')}." if reason else ""
