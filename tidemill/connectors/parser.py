"""Parsers: how the text of a feed's record becomes columns, and which strings do not have the format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tidemill.connectors.known_options import FORMAT_OPTIONS, known_options
from tidemill.errors import DefinitionError
from tidemill.text.sql_parsing import valid_schema

if TYPE_CHECKING:
    from pyspark.sql import Column

CORRUPT = "_corrupt_record"
_QUOTE = '"'


@dataclass(frozen=True, slots=True)
class Parser:
    """How a record's text becomes columns; created by `from_json`, `from_csv` or `raw`.

    Attributes:
        format: The format.
        schema: The columns as DDL; empty for `raw`.
        options: Options of Spark's parser.
        header: Whether a line that holds the names of the columns is no record.
    """

    format: Literal["json", "csv", "raw"]
    schema: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    header: bool = False

    def parsed(self, text: "Column") -> "Column":
        """Return the text as a struct with the schema's columns and `_corrupt_record`."""
        from pyspark.sql import functions as F

        schema = f"{self.schema}, {CORRUPT} STRING"
        options = {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        if self.format == "json":
            return F.from_json(text, schema, options)
        return F.from_csv(text, F.lit(schema), options)

    def unparsable(self, text: str, parsed: str) -> "Column":
        """Return whether a string does not have the format.

        Args:
            text: The column of the text, which is NULL in a tombstone.
            parsed: The column of what `parsed` returns for it.
        """
        from pyspark.sql import functions as F

        corrupt = F.expr(f"{parsed} IS NULL OR {parsed}.{CORRUPT} IS NOT NULL")
        if self.format == "json":
            corrupt = corrupt | _has_more(text, self.options)
        return F.expr(f"{text} IS NOT NULL") & corrupt

    def is_header(self, text: "Column", columns: Sequence[str]) -> "Column":
        """Return whether a line holds the names of the columns, in any case, with or without quotes."""
        from pyspark.sql import functions as F

        options = {name.lower(): value for name, value in self.options.items()}
        separator = options.get("sep", options.get("delimiter", ","))
        around = f"[\\s{_exactly(options.get('quote', _QUOTE))}]*"
        names = _exactly(separator).join(f"{around}{_exactly(column)}{around}" for column in columns)
        return F.coalesce(F.rlike(text, F.lit(f"(?iu)^\\ufeff?{names}$")), F.lit(False))


def from_json(schema: str, options: Mapping[str, str] | None = None) -> Parser:
    """Parse one JSON object per record; a record with more than one value is unparsable.

    Args:
        schema: The columns as DDL: `"ad_id STRING, cost_micros BIGINT"`.
        options: Options of Spark's `from_json`.

    Raises:
        DefinitionError: The schema cannot be parsed.
    """
    known_options(options or {}, FORMAT_OPTIONS["json"], what="from_json")
    return Parser("json", valid_schema(schema, what="from_json: schema"), dict(options or {}))


def from_csv(schema: str, options: Mapping[str, str] | None = None, *, header: bool = False) -> Parser:
    """Parse one CSV line per record.

    Args:
        schema: The columns as DDL.
        options: Options of Spark's `from_csv`.
        header: Whether files begin with the names of the columns. Every line that holds these names, in this
            order, is left out; upper and lower case, quotes and spaces around a name do not matter.

    Raises:
        DefinitionError: The schema cannot be parsed, or an option is not one of Spark's.
    """
    known_options(options or {}, FORMAT_OPTIONS["csv"], what="from_csv")
    if any(option.lower() == "header" for option in options or {}):
        raise DefinitionError("from_csv: header is an argument here; use header=True.")
    return Parser("csv", valid_schema(schema, what="from_csv: schema"), dict(options or {}), header)


def raw() -> Parser:
    """Keep the record's text as it is, in the column `value`."""
    return Parser("raw")


def _has_more(text: str, options: Mapping[str, str]) -> "Column":
    """Return whether a column has more than one JSON value: `from_json` ignores what follows the first."""
    from pyspark.sql import functions as F

    # Nothing can follow where the first brace that closes is the last character. It is so in most records, and
    # this needs no second parse. (`substring_index` would do, and compares byte by byte, which takes far longer.)
    before_last = f"CAST(substring(CAST({text} AS BINARY), 1, octet_length({text}) - 1) AS STRING)"
    whole = f"endswith({text}, '}}') AND NOT contains({before_last}, '}}')"
    # One value is the only element of an array, and the first of two; a string that closes the array itself,
    # which takes a bracket, is not both.
    alone, first = (f"concat('[', {text}, '{end}')" for end in ("\n]", "\n,0]"))
    strict = f"json_array_length({alone}) <=> 1 AND (NOT contains({text}, ']') OR json_array_length({first}) <=> 2)"
    # `from_json` takes more than strict JSON does, such as NaN, and comments where an option allows them.
    options = {**options, "mode": "PERMISSIVE"}
    elements = [F.size(F.from_json(F.expr(array), "array<string>", options)) for array in (alone, first)]
    lenient = elements[0].eqNullSafe(1) & elements[1].eqNullSafe(2)
    false = F.lit(False)
    return F.when(F.expr(whole), false).when(F.expr(strict), false).otherwise(~lenient)


def _exactly(text: str) -> str:
    """Return a regular expression of Java for exactly this text."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)
