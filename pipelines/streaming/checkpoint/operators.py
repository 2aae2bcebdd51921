"""`state/<operator>/`: which stateful operators there are, with which stores, over how many partitions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines.streaming.checkpoint.errors import CheckpointFormatError, FileAbsentError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.logfile import (
    parse_object,
    shown,
    versioned_lines,
)

DEFAULT_STORE = "default"
KNOWN_VERSION = 2
_MAX_PARTITIONS = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One state store of an operator.

    Attributes:
        name: Its name; `default` is the only store of most operators.
        partitions: In how many partitions it is kept, pinned at the first start.
        schema_files: Where its schemas lie, as absolute addresses (transformWithState, joins of version 3).
    """

    name: str
    partitions: int
    schema_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """One stateful operator.

    Attributes:
        id: Its number in the plan, and the name of its folder.
        name: Spark's name for it, such as `stateStoreSave`; None without metadata (before Spark 3.5).
        stores: Its stores.
        metadata: The file that says so, relative to the checkpoint; None where the folders had to say it.
    """

    id: int
    name: str | None
    stores: tuple[StoreInfo, ...]
    metadata: str | None

    @property
    def partitions(self) -> int:
        """The highest number of partitions of its stores."""
        return max((store.partitions for store in self.stores), default=0)

    def folders(self) -> Iterator[tuple[StoreInfo, int, str]]:
        """Each store and partition with its folder."""
        for store in self.stores:
            for partition in range(store.partitions):
                yield store, partition, store_folder(self.id, partition, store.name)


def store_folder(operator: int, partition: int, store: str) -> str:
    """The folder of one store in one partition."""
    place = f"state/{operator}/{partition}"
    return place if store == DEFAULT_STORE else f"{place}/{store}"


def operator_ids(folder: Folder) -> list[int]:
    """The operators that have a folder, ascending."""
    return folder.numbers("state")


def read_operator(folder: Folder, operator: int) -> Operator:
    """One operator, from its metadata (of version 2, the newest: there is one for each run), or its folders.

    Raises:
        CheckpointFormatError: the metadata is damaged or of an unknown version.
    """
    place = f"state/{operator}/_metadata"
    batches = folder.numbers(f"{place}/v2")
    where = f"{place}/v2/{max(batches)}" if batches else f"{place}/metadata"
    try:
        described = parse_operator(operator, folder.read(where), where)
    except FileAbsentError:
        return operator_from_folders(folder, operator)
    if not batches and not any(folder.names(place) for _, _, place in described.folders()):
        raise CheckpointFormatError(where, "None of the stores it names has a folder.", code="wrong-operator")
    return described


def parse_operator(operator: int, data: bytes, where: str) -> Operator:
    """Operator metadata of version 1 or 2.

    Raises:
        CheckpointFormatError: damaged, of an unknown version, or of another operator.
    """
    _, lines = versioned_lines(where, data, known=KNOWN_VERSION)
    fields = parse_object(where, "\n".join(lines))
    info: dict[str, Any] = _field(where, fields, "operatorInfo", dict)
    number = _field(where, info, "operatorId", int)
    if number != operator:
        raise CheckpointFormatError(
            where,
            f"It describes operator {number}.",
            code="wrong-operator",
            fix="Restore the file of this operator.",
        )
    stores: list[Any] = _field(where, fields, "stateStoreInfo", list)
    if not all(isinstance(store, dict) for store in stores):
        raise CheckpointFormatError(where, "stateStoreInfo is no list of objects.", code="unparseable-file")
    return Operator(
        id=operator,
        name=_field(where, info, "operatorName", str),
        stores=tuple(_store(where, store) for store in stores),
        metadata=where,
    )


def _store(where: str, fields: dict[str, Any]) -> StoreInfo:
    name = _field(where, fields, "storeName", str)
    partitions = _field(where, fields, "numPartitions", int)
    if not name or name in {".", ".."} or "/" in name or not 0 < partitions <= _MAX_PARTITIONS:
        raise CheckpointFormatError(
            where,
            f"A store is named {shown(name)} and has {partitions} partitions.",
            code="unparseable-file",
        )
    paths = fields.get("stateSchemaFilePaths", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise CheckpointFormatError(
            where, "stateSchemaFilePaths is no list of texts.", code="unparseable-file"
        )
    return StoreInfo(name, partitions, tuple(paths))


def _field(where: str, fields: dict[str, Any], name: str, kind: type[T]) -> T:
    value: Any = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CheckpointFormatError(where, f"{name} is {shown(repr(value))}.", code="unparseable-file")
    return value


def operator_from_folders(folder: Folder, operator: int) -> Operator:
    """What the folders tell of an operator: the highest partition, and the stores of all partitions."""
    place = f"state/{operator}"
    numbers = folder.numbers(place)
    partitions = max(numbers, default=-1) + 1
    named = {
        item.name
        for number in numbers
        for item in folder.items(f"{place}/{number}")
        if item.kind == "folder" and item.name not in {"SSTs", "_metadata"}
    }
    names = sorted(named) or [DEFAULT_STORE]
    stores = tuple(StoreInfo(name, min(partitions, _MAX_PARTITIONS)) for name in names) if partitions else ()
    return Operator(operator, None, stores, None)
