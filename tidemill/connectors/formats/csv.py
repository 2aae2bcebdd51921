"""CSV: one line per record."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.connectors.formats.format import CORRUPT, Format
from tidemill.connectors.known_options import FORMAT_OPTIONS, known_options
from tidemill.errors import DefinitionError
from tidemill.text.sql_parsing import valid_schema

if TYPE_CHECKING:
    from pyspark.sql import Column

_QUOTE = '"'


@dataclass(frozen=True)
class Csv(Format):
    """One CSV line per record.

    Attributes:
        schema: The columns as DDL or as a `StructType`.
        options: Options of Spark's `from_csv`.
        header: Whether files begin with the names of the columns. Every line that holds these names, in this
            order, is left out; upper and lower case, quotes and spaces around a name do not matter.
    """

    kind = "csv"
    header: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        known_options(self.options, FORMAT_OPTIONS["csv"], field="Csv")
        if any(option.lower() == "header" for option in self.options):
            raise DefinitionError(
                "Csv: header is an argument here; use header=True.", code="option-is-argument"
            )
        object.__setattr__(self, "schema", valid_schema(self.schema, field="Csv: schema"))

    def parsed(self, text: "Column") -> "Column":
        """Return the text as a struct with the schema's columns and `_corrupt_record`."""
        from pyspark.sql import functions as F

        return F.from_csv(text, F.lit(f"{self.schema}, {CORRUPT} STRING"), self.parser_options())

    def unparsable(self, text: str, parsed: str) -> "Column":
        """Return whether a line does not have the schema's columns."""
        from pyspark.sql import functions as F

        return F.expr(f"{text} IS NOT NULL AND ({parsed} IS NULL OR {parsed}.{CORRUPT} IS NOT NULL)")

    @property
    def has_header(self) -> bool:
        """Whether a line that holds the names of the columns is no record."""
        return self.header

    def is_header(self, text: "Column", columns: Sequence[str]) -> "Column":
        """Return whether a line holds the names of the columns, in any case, with or without quotes."""
        from pyspark.sql import functions as F

        options = {name.lower(): value for name, value in self.options.items()}
        separator = options.get("sep", options.get("delimiter", ","))
        around = f"[\\s{_exactly(options.get('quote', _QUOTE))}]*"
        names = _exactly(separator).join(f"{around}{_exactly(column)}{around}" for column in columns)
        return F.coalesce(F.rlike(text, F.lit(f"(?iu)^\\ufeff?{names}$")), F.lit(False))


def _exactly(text: str) -> str:
    """Return a regular expression of Java for exactly this text."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)
