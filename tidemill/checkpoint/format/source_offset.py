"""One source's offset: a JSON string that only the kind of source understands."""

from dataclasses import dataclass
from typing import Any

from tidemill.checkpoint.format.logfile import parse_json


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The offset up to which a batch reads one source.

    Attributes:
        name: The source's name (offset log version 2); None where sources are identified by position.
        index: The source's position (version 1); None where sources have names.
        raw: The offset's JSON string; None if the source had no data yet.
        value: The parsed JSON; None if `raw` is None.
    """

    name: str | None
    index: int | None
    raw: str | None
    value: Any

    @classmethod
    def parse(cls, where: str, name: str | None, index: int | None, raw: str | None) -> "SourceOffset":
        """Parse the offset in one line of an offset log.

        Raises:
            CheckpointFormatError: The line is not JSON.
        """
        return cls(name, index, raw, None if raw is None else parse_json(where, raw))

    @property
    def key(self) -> str:
        """The name or the position: the source's folder below `sources/`."""
        return self.name if self.name is not None else str(self.index)
