"""The folders of a lake: tables, checkpoints, control files and the ledger.

```
<lake>/tables/<pipeline>/<stream>/                       Delta; <stream>__quarantine next to it
<lake>/checkpoints/<pipeline>/<stream>/<generation>/     Spark's own files
<lake>/control/<pipeline>/<stream>/                      manifest.json, pins.json, lease/
<lake>/ledger/pipeline=<p>/stream=<s>/<run>.jsonl        one line per micro-batch
<lake>/staging/<pipeline>/<stream>/<operation>/          what an operation computes before it publishes
```
"""

from dataclasses import dataclass, field
from pathlib import Path

from tidemill.errors import NOTHING_LOST, ConfigurationError
from tidemill.storage.local_store import LocalStore, local_path, scheme_of
from tidemill.storage.locations import spelled
from tidemill.storage.object_store import SCHEMES, ObjectStore
from tidemill.storage.s3_settings import S3Settings
from tidemill.storage.store import Store
from tidemill.storage.table_ref import TableRef
from tidemill.text.names import MAIN_SINK, StreamName, valid_rule_name


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake.

    Attributes:
        store: Its files.
        access: How addresses on S3 outside of it are reached; None where the target does not say.
    """

    store: Store
    access: S3Settings | None = field(default=None, kw_only=True)

    @classmethod
    def at(cls, path: str | Path) -> "Lake":
        """Return the lake in a folder.

        Raises:
            ConfigurationError: The path is the address of an object store; only file systems are supported.
        """
        return cls(LocalStore(local_path(path, field="The lake")))

    @property
    def uri(self) -> str:
        """The lake's address."""
        return self.store.uri()

    def elsewhere(self, address: str) -> ObjectStore:
        """Return the files below an address on S3 outside of it.

        Raises:
            ConfigurationError: The address is wrong, or the target does not say how a bucket is reached.
        """
        if self.access is None:
            raise ConfigurationError(
                f"{address} is on S3, and the target does not say how it is reached.",
                lost=NOTHING_LOST,
                fix="add [targets.<name>.store] to tidemill.toml; without settings in it, the credentials come from "
                "the environment or the machine.",
                code="store-not-configured",
            )
        return ObjectStore.at(address, self.access)

    def files_at(self, path: str) -> Store:
        """Return the files below a folder, or below an address on S3.

        Raises:
            ConfigurationError: As `elsewhere` raises.
        """
        return (
            self.elsewhere(path)
            if scheme_of(path) in SCHEMES
            else LocalStore(local_path(path, field="The folder"))
        )

    def table_at(self, path: str) -> TableRef:
        """Return a table that no stream writes, by its folder or its address on S3, as people and catalogs write it.

        Raises:
            ConfigurationError: As `elsewhere` raises.
        """
        path = spelled(path)
        if scheme_of(path) not in SCHEMES:
            return TableRef.at(local_path(path, field="The table"))
        folder, _, name = path.rpartition("/")
        return TableRef(self.elsewhere(folder), name)

    def table(self, name: StreamName, sink: str = MAIN_SINK) -> TableRef:
        """Return a Delta table: the main one has the stream's name, others `<stream>__<sink>`."""
        suffix = "" if sink == MAIN_SINK else f"__{valid_rule_name(sink, field='sink')}"
        return TableRef(self.store, f"tables/{name.pipeline}/{name.stream}{suffix}")

    def quarantine(self, name: StreamName) -> TableRef:
        """Return the Delta table that holds a stream's quarantined records."""
        return self.table(name, "quarantine")

    def checkpoints(self, name: StreamName) -> str:
        """Return the key of the folder with the checkpoints of a stream, one per generation."""
        return f"checkpoints/{name.pipeline}/{name.stream}"

    def checkpoint(self, name: StreamName, generation: int) -> Store:
        """Return the files of the checkpoint of one generation."""
        return self.store.below(f"{self.checkpoints(name)}/{generation}")

    def staging(self, name: StreamName) -> str:
        """Return the key of the folder in which the operations of a stream compute what they publish."""
        return f"staging/{name.pipeline}/{name.stream}"

    def records(self, name: StreamName) -> Store:
        """Return the files of a stream's records, which are its control files."""
        return self.store.below(f"control/{name.pipeline}/{name.stream}")

    def ledger(self, name: StreamName) -> Store:
        """Return the files of a stream's ledger: a Hive-style partition that any engine reads as a table."""
        return self.store.below(f"ledger/pipeline={name.pipeline}/stream={name.stream}")


@dataclass(frozen=True, slots=True)
class StagingLake(Lake):
    """What an operation computes before it publishes: tables, control files and a ledger in a folder of its own.

    Attributes:
        store: The files of the staging folder.
        of_checkpoints: The files of the lake that has its checkpoints: state may keep the path of its checkpoint, so
            one that will be continued is written where it stays.
    """

    of_checkpoints: Store

    def checkpoint(self, name: StreamName, generation: int) -> Store:
        """Return the files of the checkpoint of one generation."""
        return Lake(self.of_checkpoints).checkpoint(name, generation)
