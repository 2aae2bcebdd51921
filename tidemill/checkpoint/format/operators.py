"""`state/<operator>/`: the stateful operators, their stores and their partitions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidemill.checkpoint.format.errors import CheckpointFormatError, FileAbsentError
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logfile import excerpt, parse_object, versioned_lines
from tidemill.checkpoint.format.schema_file import parse_schema

DEFAULT_STORE = "default"
KNOWN_VERSION = 2
_MAX_PARTITIONS = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One state store of an operator.

    Attributes:
        name: Its name; `default` is the only store of most operators.
        partitions: Its number of partitions, pinned at the first start; 1 if all rows have the same key.
        schema_files: The absolute addresses of its schemas (transformWithState, joins of version 3).
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
        metadata: The metadata file, relative to the checkpoint; None if the folders were used instead.
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
        """Yield each store and partition with its folder."""
        for store in self.stores:
            for partition in range(store.partitions):
                yield store, partition, store_folder(self.id, partition, store.name)


def store_folder(operator: int, partition: int, store: str) -> str:
    """Return the folder of one store in one partition."""
    folder = f"state/{operator}/{partition}"
    return folder if store == DEFAULT_STORE else f"{folder}/{store}"


def operator_ids(folder: Folder) -> list[int]:
    """Return the operators that have a folder, ascending."""
    return folder.numbers("state")


def read_operator(folder: Folder, operator: int) -> Operator:
    """Return one operator from its metadata (the newest file of version 2: one per run), or from its folders.

    Raises:
        CheckpointFormatError: The metadata is damaged or of an unsupported version.
    """
    metadata = f"state/{operator}/_metadata"
    batches = folder.numbers(f"{metadata}/v2")
    where = f"{metadata}/v2/{max(batches)}" if batches else f"{metadata}/metadata"
    try:
        described = parse_operator(operator, folder.read(where), where)
    except FileAbsentError:
        return operator_from_folders(folder, operator)
    if not batches and not any(folder.names(store) for _, _, store in described.folders()):
        raise CheckpointFormatError(where, "None of the stores it names has a folder.", code="wrong-operator")
    return _used_partitions(folder, described)


def _used_partitions(folder: Folder, operator: Operator) -> Operator:
    """Return the operator with one partition if all its rows have the same key.

    Measured with Spark 4.2: the metadata of a global aggregation or a global limit has the number of shuffle
    partitions, and only partition 0 is ever written.
    """
    if [store.name for store in operator.stores] != [DEFAULT_STORE]:
        return operator
    path = f"{store_folder(operator.id, 0, DEFAULT_STORE)}/_metadata/schema"
    try:
        schema = parse_schema(path, folder.read(path))
    except CheckpointFormatError:
        return operator
    return (
        replace(operator, stores=(replace(operator.stores[0], partitions=1),)) if schema.one_key else operator
    )


def parse_operator(operator: int, data: bytes, where: str) -> Operator:
    """Parse operator metadata of version 1 or 2.

    Raises:
        CheckpointFormatError: The file is damaged, of an unsupported version, or of another operator.
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
        raise CheckpointFormatError(
            where, "stateStoreInfo is not a list of objects.", code="unparseable-file"
        )
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
            f"A store is named {excerpt(name)} and has {partitions} partitions.",
            code="unparseable-file",
        )
    paths = fields.get("stateSchemaFilePaths", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise CheckpointFormatError(
            where, "stateSchemaFilePaths is not a list of strings.", code="unparseable-file"
        )
    return StoreInfo(name, partitions, tuple(paths))


def _field(where: str, fields: dict[str, Any], name: str, kind: type[T]) -> T:
    value: Any = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CheckpointFormatError(where, f"{name} is {excerpt(repr(value))}.", code="unparseable-file")
    return value


def operator_from_folders(folder: Folder, operator: int) -> Operator:
    """Return an operator from its folders: the highest partition, and the stores of all partitions."""
    parent = f"state/{operator}"
    numbers = folder.numbers(parent)
    partitions = max(numbers, default=-1) + 1
    named = {
        item.name
        for number in numbers
        for item in folder.items(f"{parent}/{number}")
        if item.kind == "folder" and item.name not in {"SSTs", "_metadata"}
    }
    names = sorted(named) or [DEFAULT_STORE]
    stores = tuple(StoreInfo(name, min(partitions, _MAX_PARTITIONS)) for name in names) if partitions else ()
    return Operator(operator, None, stores, None)
