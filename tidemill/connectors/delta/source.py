"""A Delta table as a source, by its path."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemill.connectors.delta.first_version import time_of
from tidemill.connectors.known_options import DELTA_OPTIONS, known_options
from tidemill.definitions.source import MAX_FILES_PER_BATCH, TableSource, positive
from tidemill.errors import DefinitionError
from tidemill.storage.local_store import scheme_of
from tidemill.storage.object_store import SCHEMES


@dataclass(frozen=True, kw_only=True)
class DeltaSource(TableSource):
    """A Delta table by its path, such as one that another system writes.

    Attributes:
        path: The table's folder, or its address on S3 such as `s3://bucket/orders`.
        mode: `append` reads new rows, `changes` the change data feed, `static` a snapshot.
        max_files_per_batch: The most files per micro-batch.
        max_bytes_per_batch: About the most bytes of files per micro-batch, in addition.
        options: Further options of Delta's streaming source. The first run decides which version `startingVersion`
            `latest` or a `startingTimestamp` stands for, also where it finds no row.
    """

    path: str
    max_files_per_batch: int = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise DefinitionError(f"DeltaSource: path is {self.path!r}; name a table's folder.")
        if (scheme := scheme_of(self.path)) and scheme not in SCHEMES:
            raise DefinitionError(
                f"DeltaSource {self.path!r}: the table is on {scheme}://; name a folder of a local or mounted file "
                "system, or an address on s3://.",
                code="store-not-supported",
            )
        positive(self.max_files_per_batch, field=f"DeltaSource {self.path!r}: max_files_per_batch")
        positive(self.max_bytes_per_batch, field=f"DeltaSource {self.path!r}: max_bytes_per_batch")
        known_options(self.options, DELTA_OPTIONS, field=f"DeltaSource {self.path!r}")
        self._check_start()

    def _check_start(self) -> None:
        options = {option.lower(): value for option, value in self.options.items()}
        where = f"DeltaSource {self.path!r}"
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
        return f"Delta table {self.path} ({self.mode})"
