"""JSON: one object per record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.connectors.formats.format import CORRUPT, Format
from tidemill.connectors.known_options import FORMAT_OPTIONS, known_options
from tidemill.text.sql_parsing import valid_schema

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Json(Format):
    """One JSON object per record; a record with more than one value is unparsable.

    Attributes:
        schema: The columns as DDL, `"ad_id STRING, cost_micros BIGINT"`, or as a `StructType`.
        options: Options of Spark's `from_json`.
    """

    kind = "json"

    def __post_init__(self) -> None:
        known_options(self.options, FORMAT_OPTIONS["json"], field="Json")
        object.__setattr__(self, "schema", valid_schema(self.schema, field="Json: schema"))

    def parsed(self, text: "Column") -> "Column":
        """Return the text as a struct with the schema's columns and `_corrupt_record`."""
        from pyspark.sql import functions as F

        return F.from_json(text, f"{self.schema}, {CORRUPT} STRING", self.parser_options())

    def unparsable(self, text: str, parsed: str) -> "Column":
        """Return whether a string is not one JSON object with values of the schema's types."""
        from pyspark.sql import functions as F

        corrupt = F.expr(f"{parsed} IS NULL OR {parsed}.{CORRUPT} IS NOT NULL")
        return F.expr(f"{text} IS NOT NULL") & (corrupt | _has_more(text, self.options))


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
