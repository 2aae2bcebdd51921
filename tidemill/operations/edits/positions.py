"""The offsets of a checkpoint against those that other topics have: where a stream continues, and what it misses."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidemill.text.plurals import pluralize

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a stream continues in new topics.

    Attributes:
        offsets: The next offset by partition.
        effects: One sentence per partition.
        impossible: One sentence per partition that has fewer messages than the stream has read.
    """

    offsets: Mapping[Partition, int]
    effects: tuple[str, ...]
    impossible: tuple[str, ...]


def positions_in(
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    at: Mapping[Partition, int],
    *,
    again: Collection[str] = (),
) -> Positions:
    """Return where a stream continues in topics.

    Args:
        begins: The first offset of each partition.
        ends: The offset after the last message of each partition.
        at: The checkpoint's offsets, under the topics' new names.
        again: Topics that are read from their beginning.
    """
    offsets: dict[Partition, int] = {}
    effects, impossible = [], []
    for partition in sorted({*begins, *at}):
        name = f"{partition[0]}-{partition[1]}"
        if partition not in begins:
            effects.append(f"{name} does not exist: messages after offset {at[partition]} are not read.")
            continue
        begin, end = begins[partition], ends[partition]
        known = f"offset {at[partition]}" if partition in at else "no offset"
        both = f"{name}: the checkpoint has {known}, the topic has {begin} to {end}"
        wanted = begin if partition[0] in again else at.get(partition, begin)
        if wanted > end:
            impossible.append(both)
            continue
        offsets[partition] = max(wanted, begin)
        lost = f" Messages {wanted} to {begin - 1} are lost to this stream." if wanted < begin else ""
        effects.append(f"{both}: {pluralize(end - offsets[partition], 'message')} to read.{lost}")
    return Positions(offsets, tuple(effects), tuple(impossible))
