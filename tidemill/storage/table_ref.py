"""One Delta table: its log, and how Spark and delta-rs address it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tidemill.storage.delta_log import DeltaLog
from tidemill.storage.local_store import LocalStore
from tidemill.storage.managed_commits import managed_commits, managing_feature
from tidemill.storage.store import Store
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

_LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A Delta table by where it is; whether it exists is another question.

    Attributes:
        store: Where its files are.
        key: The key of its folder.
    """

    store: Store
    key: str

    @classmethod
    def at(cls, path: str | Path) -> "TableRef":
        """Return the table in a folder of a file system, which may be outside of a lake."""
        folder = Path(str(path).removeprefix("file://")).absolute()
        return cls(LocalStore(folder.parent), folder.name)

    def __str__(self) -> str:
        return self.uri

    @property
    def uri(self) -> str:
        """The address that Spark and delta-rs take."""
        return self.store.uri(self.key)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.key.rpartition("/")[2]

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return f"delta.{sql_identifier(self.uri)}"

    @property
    def log(self) -> DeltaLog:
        """Its log."""
        return DeltaLog(self.store, f"{self.key}/{_LOG}")

    def exists(self) -> bool:
        """Return whether anything is in its folder, such as the start of a table that a kill interrupted."""
        return self.store.has_files(self.key)

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Return those of some data files that are not there.

        Args:
            paths: Their paths in the log's actions, URL-encoded and below the table.
        """
        listed: dict[str, frozenset[str]] = {}
        missing = []
        for path in paths:
            folder, _, name = f"{self.key}/{unquote(path)}".rpartition("/")
            if folder not in listed:
                listed[folder] = frozenset(self.store.names(folder))
            if name not in listed[folder]:
                missing.append(path)
        return missing

    def read(self, spark: "SparkSession", **options: str) -> "DataFrame":
        """Return its rows.

        Args:
            spark: The session.
            **options: Options of Delta's reader, such as `versionAsOf`.
        """
        return spark.read.format("delta").options(**options).load(self.uri)

    def write(self, rows: "DataFrame") -> "DataFrameWriter":
        """Return a writer of rows to it: call its `save()`."""
        return rows.write.format("delta").option("path", self.uri)

    def delete(self) -> None:
        """Delete its files."""
        self.store.delete_folder(self.key)

    def open(self, version: int | None = None) -> "DeltaTable | None":
        """Return its state of a version, the newest if None; None where there is no table.

        Raises:
            TerminalError: A catalog manages its commits.
        """
        if not self.store.has_files(f"{self.key}/{_LOG}"):
            return None
        from deltalake import DeltaTable  # a tenth of a second, which definitions do not have
        from deltalake.exceptions import DeltaError, TableNotFoundError

        options: Any = dict(self.store.delta_options()) or None
        try:
            return DeltaTable(self.uri, version=version, storage_options=options)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            if (feature := managing_feature(self.log)) is not None:
                raise managed_commits(self, feature) from error
            raise

    def dataset(self, opened: "DeltaTable") -> "Dataset":
        """Return the rows of its state.

        By default delta-rs lets Arrow read through a file system in Python. Arrow reads ahead in threads of C++, and
        one that enters Python while the interpreter shuts down ends the process with "terminate called without an
        active exception", or leaves it waiting forever. Arrow's own file systems never enter Python.

        Args:
            opened: What `open` has returned.
        """
        from pyarrow.fs import SubTreeFileSystem

        files, path = self.store.arrow_files()
        return opened.to_pyarrow_dataset(filesystem=SubTreeFileSystem(f"{path}/{self.key}", files))
