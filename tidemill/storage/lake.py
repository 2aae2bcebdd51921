"""The folders of a lake: tables, checkpoints, control files and the ledger.

```
<lake>/tables/<pipeline>/<stream>/                       Delta; <stream>__quarantine next to it
<lake>/checkpoints/<pipeline>/<stream>/<generation>/     Spark's own files
<lake>/control/<pipeline>/<stream>/                      manifest.json, pins.json, lease/
<lake>/ledger/pipeline=<p>/stream=<s>/<run>.jsonl        one line per micro-batch
<lake>/staging/<pipeline>/<stream>/<operation>/          what an operation computes before it publishes
```
"""

from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.text.names import MAIN_SINK, StreamName, valid_rule_name


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake by its root folder.

    Attributes:
        root: An absolute path of a local (or mounted) file system.
    """

    root: Path

    @classmethod
    def at(cls, path: str | Path) -> "Lake":
        """Return the lake in a folder, as an absolute path.

        Raises:
            ConfigurationError: The path is the address of an object store; only file systems are supported.
        """
        text = str(path).removeprefix("file://")
        if "://" in text:
            scheme = text.split("://", 1)[0]
            raise ConfigurationError(
                f"The lake {text!r} is on {scheme}://, and its lease needs an exclusive create that is known "
                "to work there. Use a folder of a file system."
            )
        return cls(Path(text).expanduser().absolute())

    def table(self, name: StreamName, sink: str = MAIN_SINK) -> Path:
        """Return the folder of a Delta table: the main one has the stream's name, others `<stream>__<sink>`."""
        if sink == MAIN_SINK:
            return self.root / "tables" / name.pipeline / name.stream
        return self.root / "tables" / name.pipeline / f"{name.stream}__{valid_rule_name(sink, what='sink')}"

    def quarantine(self, name: StreamName) -> Path:
        """Return the folder of the Delta table that holds a stream's quarantined records."""
        return self.table(name, "quarantine")

    def checkpoint(self, name: StreamName, generation: int) -> Path:
        """Return the checkpoint folder of one generation."""
        return self.root / "checkpoints" / name.pipeline / name.stream / str(generation)

    def control(self, name: StreamName) -> Path:
        """Return the folder of a stream's control files."""
        return self.root / "control" / name.pipeline / name.stream

    def staging(self, name: StreamName) -> Path:
        """Return the folder in which the operations of a stream compute what they publish."""
        return self.root / "staging" / name.pipeline / name.stream

    def ledger(self, name: StreamName) -> Path:
        """Return the folder of a stream's ledger: a Hive-style partition that any engine reads as a table."""
        return self.root / "ledger" / f"pipeline={name.pipeline}" / f"stream={name.stream}"


@dataclass(frozen=True, slots=True)
class StagingLake(Lake):
    """What an operation computes before it publishes: tables, control files and a ledger in a folder of its own.

    Attributes:
        root: The staging folder.
        checkpoints: The root of the lake that has its checkpoints: state may keep the path of its checkpoint, so one
            that will be continued is written where it stays.
    """

    checkpoints: Path

    def checkpoint(self, name: StreamName, generation: int) -> Path:
        """Return the checkpoint folder of one generation."""
        return Lake(self.checkpoints).checkpoint(name, generation)
