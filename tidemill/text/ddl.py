"""A schema of Spark as DDL, from its JSON: pyspark's own way needs a JVM."""

from collections.abc import Iterator
from typing import Any

from tidemill.errors import DefinitionError
from tidemill.text.names import sql_identifier

_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def ddl_columns(schema: Any, separator: str, *, field: str) -> Iterator[str]:
    """Yield the columns of a struct as DDL.

    Args:
        schema: The JSON of a `StructType`.
        separator: What stands between a name and its type: a colon within another column.
        field: The field it is for, named in the error.

    Raises:
        DefinitionError: It is not a struct, or has a type without DDL.
    """
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        raise DefinitionError(
            f"{field} is {schema!r}: write the columns as DDL, such as 'id STRING', or give a StructType.",
            code="schema-invalid",
        )
    for column in schema["fields"]:
        needed = "" if column["nullable"] else " NOT NULL"
        kind = _type(column["type"], field=f"{field}, column {column['name']!r}")
        yield f"{sql_identifier(column['name'])}{separator}{kind}{needed}"


def _type(kind: Any, *, field: str) -> str:
    match kind:
        case str():
            return _NAMES.get(kind, kind)
        case {"type": "array", "elementType": element}:
            return f"array<{_type(element, field=field)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{_type(key, field=field)}, {_type(value, field=field)}>"
        case {"type": "struct"}:
            return f"struct<{', '.join(ddl_columns(kind, ': ', field=field))}>"
        case _:
            raise DefinitionError(f"{field} has a type that DDL does not have.", code="schema-invalid")
