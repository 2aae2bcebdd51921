"""Checkpoints written by hand, in the formats that Spark writes: small, and quick to damage."""

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

QUERY_ID = "0c9ef9ac-6d9b-4f5f-8f5c-6a2d2a3d8f11"
EMPTY_STREAM = b"LZ4Block" + bytes([0x15]) + bytes(12)
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
}
"""What Spark 4.2 pins."""
OLDER_CONF = {key: value for key, value in CONF.items() if "rowChecksum" not in key}


def write(file: Path, data: str | bytes) -> Path:
    """Write a file with its Hadoop checksums, as Spark does on a local file system."""
    raw = data.encode() if isinstance(data, str) else data
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(raw)
    chunks = (raw[start : start + 512] for start in range(0, len(raw), 512))
    checksums = b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    sidecar(file).write_bytes(b"crc\0" + struct.pack(">I", 512) + checksums)
    return file


def sidecar(file: Path) -> Path:
    return file.parent / f".{file.name}.crc"


def remove(file: Path) -> None:
    """Delete a file and its checksums."""
    file.unlink()
    sidecar(file).unlink(missing_ok=True)


def offsets(
    checkpoint: Path,
    batch: int,
    *sources: str,
    watermark: int = 0,
    named: bool = False,
    conf: Mapping[str, str] | None = None,
) -> Path:
    header = {"batchWatermarkMs": watermark, "batchTimestampMs": 1_700_000_000_000 + batch}
    header["conf"] = dict(CONF if conf is None else conf)
    lines = ["v2" if named else "v1", json.dumps(header), *sources]
    return write(checkpoint / "offsets" / str(batch), "\n".join(lines))


def commit(
    checkpoint: Path, batch: int, watermark: int = 0, ids: dict[str, list[list[str]]] | None = None
) -> Path:
    fields: dict[str, object] = {"nextBatchWatermarkMs": watermark}
    if ids is not None:
        fields["stateUniqueIds"] = ids
    version = "v1" if ids is None else "v2"
    return write(checkpoint / "commits" / str(batch), f"{version}\n{json.dumps(fields)}")


def entry(
    checkpoint: Path, number: int, *, compact: bool = False, key: str = "0", batch: int | None = None
) -> Path:
    """Write one file of a file source's log: one input file per entry."""
    numbers = range(number + 1) if compact else [number if batch is None else batch]
    lines = [json.dumps({"path": f"file:///in/{n}.json", "timestamp": n, "batchId": n}) for n in numbers]
    name = f"{number}.compact" if compact else str(number)
    return write(checkpoint / "sources" / key / name, "\n".join(["v1", *lines]))


def operator(
    checkpoint: Path,
    number: int = 0,
    *,
    partitions: int = 2,
    name: str = "stateStoreSave",
    schema: Path | None = None,
) -> Path:
    """Write the metadata of an operator; of version 2, which names the schema, if there is a schema."""
    store: dict[str, object] = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
    fields = {"operatorInfo": {"operatorId": number, "operatorName": name}, "stateStoreInfo": [store]}
    folder = checkpoint / "state" / str(number) / "_metadata"
    if schema is None:
        return write(folder / "metadata", "v1\n" + json.dumps(fields))
    store["stateSchemaFilePaths"] = [f"file:{schema}"]
    return write(folder / "v2" / "0", "v2\n" + json.dumps(fields))


def schema(checkpoint: Path, *key_types: str, partition: int = 0) -> Path:
    """Write the schema of operator 0: keys with fields of these types, values of one number."""
    fields = [{"name": f"key{number}", "type": name} for number, name in enumerate(key_types)]
    parts = ("v2", {"type": "struct", "fields": fields}, {"type": "struct", "fields": []})
    version, key, value = (part if isinstance(part, str) else json.dumps(part) for part in parts)
    chunk = struct.pack(">I", 1)
    data = java_string(version) + chunk + java_string(key) + chunk + java_string(value)
    return write(checkpoint / "state" / "0" / str(partition) / "_metadata" / "schema", data)


def java_string(value: str) -> bytes:
    """Return a string as DataOutputStream.writeUTF writes it."""
    return struct.pack(">H", len(value)) + value.encode()


def delta(checkpoint: Path, version: int, *, partition: int = 0, suffix: str = "delta") -> Path:
    return write(checkpoint / "state" / "0" / str(partition) / f"{version}.{suffix}", EMPTY_STREAM)


def stateless(checkpoint: Path, batches: int = 4) -> Path:
    """Write the checkpoint of a file source that was read in that many batches, all committed."""
    write(checkpoint / "metadata", json.dumps({"id": QUERY_ID}))
    for batch in range(batches):
        entry(checkpoint, batch)
        offsets(checkpoint, batch, json.dumps({"logOffset": batch}))
        commit(checkpoint, batch)
    return checkpoint


def stateful(checkpoint: Path, batches: int = 4) -> Path:
    """Add one operator of two partitions, and a watermark that moves by 10 ms per batch except the last."""
    stateless(checkpoint, batches)
    for batch in range(batches):
        offsets(checkpoint, batch, json.dumps({"logOffset": batch}), watermark=10 * batch)
        commit(checkpoint, batch, 10 * min(batch + 1, batches - 1))
    operator(checkpoint)
    for partition in (0, 1):
        for version in range(1, batches + 1):
            delta(checkpoint, version, partition=partition)
    return checkpoint
