"""The base of all formats."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class Format(ABC):
    """How a record's text becomes columns.

    Attributes:
        kind: The name of the format.
        schema: The columns as DDL or as a `StructType`.
        options: Options of Spark's parser.
    """

    kind: ClassVar[str]
    schema: "str | StructType"
    options: Mapping[str, str] = field(default_factory=dict)

    @abstractmethod
    def parsed(self, text: "Column") -> "Column":
        """Return the text as a struct with the schema's columns, and possibly `_corrupt_record`."""

    @abstractmethod
    def unparsable(self, text: str, parsed: str) -> "Column":
        """Return whether a string does not have the format.

        Args:
            text: The column of the text, which is NULL in a tombstone.
            parsed: The column of what `parsed` returns for it.
        """

    @property
    def has_header(self) -> bool:
        """Whether a line that holds the names of the columns is no record."""
        return False

    def is_header(self, text: "Column", columns: Sequence[str]) -> "Column":
        """Return whether a line holds the names of the columns."""
        from pyspark.sql import functions as F

        return F.lit(False)

    def parser_options(self) -> dict[str, str]:
        """Return the options with those that keep an unparsable record."""
        return {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
