"""The name of a table in a catalog: `catalog.schema.table`."""

import re
from dataclasses import dataclass
from typing import Self

from tidemill.errors import DefinitionError
from tidemill.text.names import sql_identifier

# Hive, Glue and Unity Catalog accept these; what one of them refuses beyond that, its own error names.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_LONGEST = 128  # of Hive; the others allow 255
_PARTS = 3


@dataclass(frozen=True, slots=True)
class CatalogName:
    """The name of a table in a catalog.

    Attributes:
        catalog: The catalog, as Spark calls it: `spark_catalog` for a Hive metastore.
        schema: The schema, which Hive calls a database.
    """

    catalog: str
    schema: str
    table: str

    @classmethod
    def parse(cls, name: object, *, field: str) -> Self:
        """Return the name that a string such as `main.ads.clicks` stands for.

        Raises:
            DefinitionError: It has not three parts, or one of them has other characters.
        """
        parts = name.split(".") if isinstance(name, str) else []
        if len(parts) != _PARTS or not all(map(is_part, parts)):
            raise DefinitionError(
                f"{field} is {name!r}: write catalog.schema.table, each of letters, digits, '_' and '-', at most "
                f"{_LONGEST} characters.",
                code="name-invalid",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return f"{self.sql_schema}.{sql_identifier(self.table)}"

    @property
    def sql_schema(self) -> str:
        """The name of its schema in SQL."""
        return f"{sql_identifier(self.catalog)}.{sql_identifier(self.schema)}"

    def is_same(self, other: "CatalogName") -> bool:
        """Return whether a catalog takes both for the same table: it does not distinguish cases."""
        return str(self).lower() == str(other).lower()


def is_part(value: str) -> bool:
    """Return whether a string can be the name of a catalog, a schema or a table."""
    return bool(_PART.fullmatch(value)) and len(value) <= _LONGEST


def sql_string(value: str) -> str:
    """Return a string as SQL writes it, whatever characters it has."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
