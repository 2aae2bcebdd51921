"""Raw: the record's text as it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.connectors.formats.format import Format

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Raw(Format):
    """The record's text as it is, in the column `value`."""

    kind = "raw"
    schema: str = field(default="value STRING", init=False)
    options: Mapping[str, str] = field(default_factory=dict, init=False)

    def parsed(self, text: "Column") -> "Column":
        """Return the text as a struct with the column `value`."""
        from pyspark.sql import functions as F

        return F.struct(text.alias("value"))

    def unparsable(self, text: str, parsed: str) -> "Column":
        """Return false: any string is a record."""
        from pyspark.sql import functions as F

        return F.lit(False)
