"""SQL in definitions, parsed without a JVM, so that a typo is reported at import.

sqlglot parses Spark's dialect. Loading it takes a tenth of a second, which an idle run does not have, so what
has been parsed once is remembered in the user's cache by its hash.
"""

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from tidemill.cache import cache_root
from tidemill.errors import DefinitionError
from tidemill.text.ddl import ddl_columns

_DIALECT = "databricks"  # Spark's, with its newest types
_MARKUP = re.compile(r"\x1b\[\d*m")


def valid_schema(schema: object, *, field: str) -> str:
    """Return a DDL schema on one line.

    Args:
        schema: Columns as DDL: `"ad_id STRING, cost_micros BIGINT"`, or a `StructType`.
        field: The field it is for, named in the error.

    Raises:
        DefinitionError: The schema is empty or cannot be parsed.
    """
    if not isinstance(schema, str) and hasattr(schema, "jsonValue"):
        schema = ", ".join(ddl_columns(schema.jsonValue(), " ", field=field))
    if not isinstance(schema, str) or not schema.strip():
        raise DefinitionError(
            f"{field} is {schema!r}: write the columns as DDL, such as 'id STRING', or give a StructType.",
            code="schema-invalid",
        )
    text = " ".join(schema.split()).rstrip(",")
    _remembered(f"schema {text}", lambda: _parse_schema(text, field))
    return text


def valid_condition(condition: object, *, field: str) -> str:
    """Return an SQL condition.

    Args:
        condition: A boolean expression over columns: `"amount > 0"`.
        field: The field it is for, named in the error.

    Raises:
        DefinitionError: The condition is empty or cannot be parsed.
    """
    if not isinstance(condition, str) or not condition.strip():
        raise DefinitionError(
            f"{field} is {condition!r}: write a condition in SQL, such as 'amount > 0'.",
            code="condition-invalid",
        )
    _remembered(f"condition {condition}", lambda: _parse_condition(condition, field))
    return condition


def tables_of(query: object, *, field: str) -> tuple[str, ...]:
    """Return the names of the tables that a query reads, in their order, without common table expressions.

    A table of a catalog has its whole name, `catalog.schema.name`.

    Args:
        query: A SELECT, or several that are combined.
        field: What it is, named in the error.

    Raises:
        DefinitionError: It cannot be parsed, or is another statement.
    """
    text = _given(query, field)
    return tuple(_remembered(f"tables {text}", lambda: " ".join(_parse_tables(text, field))).split())


def one_line_query(query: object, *, field: str) -> str:
    """Return a query of Postgres on one line, without comments, so that another query can contain it.

    Args:
        query: A SELECT, or several that are combined.
        field: What it is, named in the error.

    Raises:
        DefinitionError: It cannot be parsed, or is another statement.
    """
    text = _given(query, field)
    return _remembered(f"query {text}", lambda: _parse_query(text, field))


def _given(query: object, field: str) -> str:
    if not isinstance(query, str) or not query.strip():
        raise DefinitionError(f"{field} is {query!r}: write a SELECT.", code="sql-invalid")
    return query


def _parse_query(query: str, what: str) -> str:
    from sqlglot import TokenType, exp, parse, tokenize
    from sqlglot.errors import SqlglotError

    try:
        parsed = parse(query, dialect="postgres")
    except SqlglotError as error:
        raise DefinitionError(
            f"{what} cannot be parsed: {_reason(error)}. Correct it, or create a view and read that as table=.",
            code="sql-invalid",
        ) from None
    # A comment after the semicolon is a statement of sqlglot's.
    statements = [statement for statement in parsed if not isinstance(statement, exp.Semicolon | None)]
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise DefinitionError(f"{what} is not one SELECT.", code="sql-invalid")
    line, end = "", 0
    for token in tokenize(query, dialect="postgres"):
        if token.token_type is not TokenType.SEMICOLON:
            line += " " * (token.start > end) + query[token.start : token.end + 1]
            end = token.end + 1
    return line.strip()


def _parse_tables(query: str, what: str) -> list[str]:
    from sqlglot import exp, parse
    from sqlglot.errors import ParseError, SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    try:
        statements = parse(query, dialect=_DIALECT)
    except SqlglotError as error:
        details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        line = f"line {details['line']} of " if details.get("line") else ""
        near = f", near {details['highlight']!r}" if details.get("highlight") else ""
        raise DefinitionError(f"{line}{what}: {_reason(error)}{near}.", code="sql-invalid") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise DefinitionError(f"{what} is not one SELECT.", code="sql-invalid")
    relations = (source for scope in traverse_scope(statements[0]) for source in scope.sources.values())
    tables = [table for table in relations if isinstance(table, exp.Table) and table.name]
    if qualified := next((table for table in tables if table.db and not table.catalog), None):
        raise DefinitionError(unpinned(what, qualified.sql(_DIALECT)), code="sql-invalid")
    names = (".".join(part.name for part in table.parts) for table in tables)
    return list(dict.fromkeys(name.lower() for name in names))


def unpinned(what: str, table: str) -> str:
    """Return that a query reads a table that is not declared as a source, as a sentence."""
    return (
        f"{what} reads the table {table!r}, whose version no run would pin: declare it as a source, such as "
        'customers.static(), or DeltaSource(table="catalog.schema.name") for a table of a catalog.'
    )


def _parse_schema(schema: str, what: str) -> None:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    # Spark also takes `name: type` at the top level, where CREATE TABLE does not: a struct has both.
    try:
        tree = parse_one(f"CAST(x AS STRUCT<{schema}>)", dialect=_DIALECT)
    except SqlglotError as error:
        raise DefinitionError(
            f"{what} is {schema!r}, which is not a DDL schema: {_reason(error)}.", code="schema-invalid"
        ) from None
    columns = tree.find(exp.DataType)
    fields = [] if columns is None else columns.expressions
    if not fields or not all(isinstance(field, exp.ColumnDef) and field.args.get("kind") for field in fields):
        raise DefinitionError(
            f"{what} is {schema!r}, which is not a DDL schema: a column has no name or no type that Spark knows.",
            code="schema-invalid",
        )


def _parse_condition(condition: str, what: str) -> None:
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        parse_one(f"SELECT ({condition})", dialect=_DIALECT)
    except SqlglotError as error:
        raise DefinitionError(
            f"{what} is {condition!r}, which is not a condition in Spark SQL: {_reason(error)}.",
            code="condition-invalid",
        ) from None


def _reason(error: Exception) -> str:
    """Return sqlglot's first line, without its terminal markup."""
    return _MARKUP.sub("", str(error)).splitlines()[0].split(". Line ")[0].rstrip(".")


def _remembered(text: str, check: Callable[[], str | None]) -> str:
    """Return what a check returns, and run it only if the same text has not passed it before."""
    mark = cache_root() / "sql" / hashlib.sha256(f"1 {_DIALECT} {text}".encode()).hexdigest()
    with suppress(OSError):
        return mark.read_text()
    result = check() or ""
    with suppress(OSError):  # a cache that cannot be written costs time only
        mark.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=mark.parent, delete=False) as file:
            file.write(result)
        Path(file.name).replace(mark)
    return result
