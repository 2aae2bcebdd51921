"""The catalog of a target, in which the tables of its streams are registered."""

from dataclasses import dataclass

from tidemill.text.catalog_name import CatalogName
from tidemill.text.names import MAIN_SINK, StreamName


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Where the tables of streams are registered.

    Attributes:
        catalog: The catalog, as Spark calls it.
        schema: The schema; None: the name of the pipeline.
    """

    catalog: str
    schema: str | None = None

    def name_of(self, stream: StreamName, sink: str = MAIN_SINK) -> CatalogName:
        """Return the name of a table of a stream: the main one has the stream's name, others `<stream>__<sink>`."""
        suffix = "" if sink == MAIN_SINK else f"__{sink}"
        return CatalogName(self.catalog, self.schema or stream.pipeline, f"{stream.stream}{suffix}")
