"""Where tables, checkpoints and control files are in a lake, and nothing else.

```
<lake>/tables/<pipeline>/<stream>/                       Delta; <stream>__quarantine beside it
<lake>/checkpoints/<pipeline>/<stream>/<generation>/     Spark's own files
<lake>/control/<pipeline>/<stream>/                      manifest.json, pins.json, lease/
<lake>/ledger/pipeline=<p>/stream=<s>/<run>.jsonl        one line a micro-batch
```
"""

from dataclasses import dataclass
from pathlib import Path

from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.names import StreamName, valid_rule_name

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake by its root folder.

    Attributes:
        root: An absolute path of a local (or mounted) file system.
    """

    root: Path

    @classmethod
    def at(cls, place: str | Path) -> "Lake":
        """The lake in a folder, made absolute.

        Raises:
            ConfigurationError: the place is an address of an object store; only file systems are known.
        """
        text = str(place).removeprefix("file://")
        if "://" in text:
            scheme = text.split("://", 1)[0]
            raise ConfigurationError(
                f"The lake {text!r} is on {scheme}://, and its lease needs an exclusive create that is known "
                "to work there. Use a folder of a file system."
            )
        return cls(Path(text).expanduser().absolute())

    def table(self, name: StreamName, target: str = MAIN) -> Path:
        """The folder of a Delta table: the main table has the stream's name, others `<stream>__<target>`."""
        if target == MAIN:
            return self.root / "tables" / name.pipeline / name.stream
        return (
            self.root / "tables" / name.pipeline / f"{name.stream}__{valid_rule_name(target, what='target')}"
        )

    def quarantine(self, name: StreamName) -> Path:
        """The folder of the Delta table that holds a stream's quarantined records."""
        return self.table(name, "quarantine")

    def checkpoint(self, name: StreamName, generation: int) -> Path:
        """The checkpoint folder of one generation."""
        return self.root / "checkpoints" / name.pipeline / name.stream / str(generation)

    def control(self, name: StreamName) -> Path:
        """The folder of a stream's control files."""
        return self.root / "control" / name.pipeline / name.stream

    def ledger(self, name: StreamName) -> Path:
        """The folder of a stream's ledger: a Hive-style partition that any engine reads as a table."""
        return self.root / "ledger" / f"pipeline={name.pipeline}" / f"stream={name.stream}"
