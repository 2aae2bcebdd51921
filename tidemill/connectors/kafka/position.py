"""The position in topics, as Spark's Kafka source writes it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logfile import is_long, parse_object
from tidemill.checkpoint.format.source_log import initial_offset
from tidemill.checkpoint.positions import Position


@dataclass(frozen=True, slots=True)
class TopicPosition(Position):
    """The next record to read in each partition of some topics.

    Attributes:
        partitions: Topic -> partition -> offset.
    """

    kind = "kafka"
    partitions: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, offset: SourceOffset | None) -> Self | None:
        """Return the position in an offset; None where it is not one in topics."""
        value: Any = None if offset is None else offset.value
        if not isinstance(value, dict) or not value or not all(map(_is_topic, value.values())):
            return None
        return cls({topic: {int(p): int(at) for p, at in of.items()} for topic, of in value.items()})

    @property
    def by_partition(self) -> dict[tuple[str, int], int]:
        """The offsets by topic and partition."""
        return {(topic, number): at for topic, of in self.partitions.items() for number, at in of.items()}

    @property
    def parts(self) -> int:
        """The number of partitions."""
        return len(self.by_partition)

    def describe(self) -> str:
        """Return the next record of each partition."""
        topics = (
            f"{topic} ({len(partitions)} partitions: "
            + ", ".join(f"{number}→{offset}" for number, offset in sorted(partitions.items()))
            + ")"
            for topic, partitions in sorted(self.partitions.items())
        )
        return "; ".join(topics)

    def went_back(self, before: Position) -> str:
        """Describe the first partition that went back; empty if none did."""
        if isinstance(before, TopicPosition):
            for (topic, partition), offset in self.by_partition.items():
                previous = before.partitions.get(topic, {}).get(partition, offset)
                if offset < previous:
                    return f"from {previous} to {offset} in partition {partition} of {topic}"
        return ""

    def check_file(self, folder: Folder, path: str, name: str, *, full: bool) -> None:
        """Check the offsets that Spark resolved at the first start."""
        if name == "0":
            parse_object(path, initial_offset(folder, path))


def offsets_json(offsets: Mapping[tuple[str, int], int]) -> str:
    """Return offsets as Spark writes them."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), at in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = at
    return json.dumps(by_topic, separators=(",", ":"))


def _is_topic(value: Any) -> bool:
    return isinstance(value, dict) and all(
        partition.isascii() and partition.isdigit() and len(partition) < 10 and is_long(offset)  # noqa: PLR2004
        for partition, offset in value.items()
    )
