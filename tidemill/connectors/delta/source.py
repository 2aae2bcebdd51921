"""A Delta table as a source, by its path or by its name in a catalog."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Self

from tidemill.connectors.delta.first_version import time_of
from tidemill.connectors.known_options import DELTA_OPTIONS, known_options
from tidemill.definitions.arguments import ADDED_LATER
from tidemill.definitions.source import MAX_FILES_PER_BATCH, TableSource, positive
from tidemill.errors import DefinitionError
from tidemill.storage.local_store import scheme_of
from tidemill.storage.object_store import SCHEMES
from tidemill.text.catalog_name import CatalogName


@dataclass(frozen=True, kw_only=True)
class DeltaSource(TableSource):
    """A Delta table by its path, or by its name in a catalog, such as one that another system writes.

    Of a name, the first run asks the catalog for the location, and the manifest keeps it. A run refuses the source once
    the catalog has another location for the name: its offsets mean nothing in another table.

    Attributes:
        path: The table's folder, or its address on S3 such as `s3://bucket/orders`.
        table: Its name in a catalog, as `catalog.schema.table`, in place of the path.
        mode: `append` reads new rows, `changes` the change data feed, `static` a snapshot.
        max_files_per_batch: The most files per micro-batch.
        max_bytes_per_batch: About the most bytes of files per micro-batch, in addition.
        options: Further options of Delta's streaming source. The first run decides which version `startingVersion`
            `latest` or a `startingTimestamp` stands for, also where it finds no row.
    """

    path: str = ""
    table: str = field(default="", metadata=ADDED_LATER)
    max_files_per_batch: int = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    location: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.table:
            CatalogName.parse(self.table, field="DeltaSource: table")
        if not isinstance(self.path, str) or not (self.path or self.table):
            raise DefinitionError(
                f"DeltaSource: path is {self.path!r}; name a table's folder, or with table= a table of a catalog."
            )
        if self.path and self.table:
            raise DefinitionError(
                f"DeltaSource: path is {self.path!r} and table is {self.table!r}; give one of them.",
                code="arguments-conflict",
            )
        if (scheme := scheme_of(self.path)) and scheme not in SCHEMES:
            raise DefinitionError(
                f"DeltaSource {self.path!r}: the table is on {scheme}://; name a folder of a local or mounted file "
                "system, or an address on s3://.",
                code="store-not-supported",
            )
        where = f"DeltaSource {self._declared!r}"
        positive(self.max_files_per_batch, field=f"{where}: max_files_per_batch")
        positive(self.max_bytes_per_batch, field=f"{where}: max_bytes_per_batch")
        known_options(self.options, DELTA_OPTIONS, field=where)
        self._check_start()

    def _check_start(self) -> None:
        options = {option.lower(): value for option, value in self.options.items()}
        where = f"DeltaSource {self._declared!r}"
        if "readchangefeed" in options:
            raise DefinitionError(
                f"{where}: readChangeFeed is an argument here; use mode='changes'.", code="option-is-argument"
            )
        version, timestamp = options.get("startingversion"), options.get("startingtimestamp")
        if version is not None and timestamp is not None:
            raise DefinitionError(
                f"{where}: options has startingVersion and startingTimestamp; give one of them.",
                code="arguments-conflict",
            )
        if version is not None and not version.isdecimal() and version.lower() != "latest":
            raise DefinitionError(f"{where}: startingVersion is {version!r}; give a number or 'latest'.")
        try:
            time_of(timestamp or "2000-01-01")
        except ValueError:
            raise DefinitionError(
                f"{where}: startingTimestamp is {timestamp!r}; write it as '2026-01-31' or '2026-01-31T12:00:00Z'."
            ) from None

    def static(self) -> "DeltaSource":
        """Return a snapshot of the table, pinned for the run."""
        return replace(self, mode="static", watermark=None)

    def describe(self) -> str:
        """Return the table and how it is read."""
        return f"Delta table {self._declared} ({self.mode})"

    @property
    def catalog_table(self) -> CatalogName | None:
        """The table of a catalog that it reads by its name; None for one that it reads by its path."""
        return CatalogName.parse(self.table, field="DeltaSource: table") if self.table else None

    def at(self, location: str) -> Self:
        """Return the same source with the location that a catalog has for its table."""
        located = copy(self)
        object.__setattr__(located, "location", location)
        return located

    @property
    def folder(self) -> str | None:
        """The table's folder; None of a name whose location no run has asked for."""
        return self.path or self.location

    @property
    def _declared(self) -> str:
        return self.table or self.path
