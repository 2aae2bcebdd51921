"""The speed of the checkpoint reader: 10,000 batches, a million files in the source's log.

`python bench/checkpoint_reader.py [--batches N] [--files N] [--rounds N]` creates such a checkpoint in a temporary
folder (offsets and commits, a source log with a compact entry of all files, a checksum file beside every file, 100
versions of state in four partitions) and prints a Markdown table. `inspect` and `verify --quick` are timed in a
fresh process each, after its imports; `verify` is the wall time of its whole process.
"""

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

CONF = {"spark.sql.shuffle.partitions": "4", "spark.sql.streaming.stateStore.compression.codec": "lz4"}
EMPTY_STATE = b"LZ4Block" + bytes([0x15]) + bytes(12)
VERSIONS = 100
PARTITIONS = 4
CALLS = {
    "inspect": "inspect_document(inspect(sys.argv[1], recognize))",
    "verify --quick": "verify_document(verify(sys.argv[1], level='quick', recognize=recognize))",
}


def write(file: Path, data: bytes) -> None:
    """Write a file and its Hadoop checksums."""
    file.write_bytes(data)
    chunks = (data[start : start + 512] for start in range(0, len(data), 512))
    checksums = b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + struct.pack(">I", 512) + checksums)


def make(checkpoint: Path, batches: int, files: int) -> None:
    """Create a sound checkpoint with that many batches and source files."""
    for folder in ("offsets", "commits", "sources/0"):
        (checkpoint / folder).mkdir(parents=True)
    write(checkpoint / "metadata", b'{"id":"5b1a9d0e-6f0c-4d7f-9c1a-0f6e2d3c4b5a"}')
    files_per_batch = files // batches
    lines: list[bytes] = []
    for batch in range(batches):
        header = {"batchWatermarkMs": batch, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": CONF}
        offsets = f'v1\n{json.dumps(header)}\n{{"logOffset":{batch}}}'
        write(checkpoint / "offsets" / str(batch), offsets.encode())
        write(checkpoint / "commits" / str(batch), f'v1\n{{"nextBatchWatermarkMs":{batch + 1}}}'.encode())
        entry = [
            f'{{"path":"file:///landing/ad-impressions/part-{batch:06}-{number:04}.json",'
            f'"timestamp":{1_700_000_000_000 + batch},"batchId":{batch}}}'.encode()
            for number in range(files_per_batch)
        ]
        lines += entry
        compact = (batch + 1) % 10 == 0
        if not compact:
            write(checkpoint / "sources/0" / str(batch), b"\n".join([b"v1", *entry]))
    last = batches - batches % 10 - 1
    write(checkpoint / "sources/0" / f"{last}.compact", b"\n".join([b"v1", *lines]))
    info = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": PARTITIONS}
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "dedupe"}, "stateStoreInfo": [info]}
    (checkpoint / "state/0/_metadata").mkdir(parents=True)
    write(checkpoint / "state/0/_metadata/metadata", f"v1\n{json.dumps(operator)}".encode())
    for partition in range(PARTITIONS):
        store = checkpoint / "state/0" / str(partition)
        store.mkdir()
        oldest = max(1, batches - VERSIONS)
        write(store / f"{oldest}.snapshot", EMPTY_STATE)
        for version in range(oldest, batches + 1):
            write(store / f"{version}.delta", EMPTY_STATE)


def milliseconds(call: str, checkpoint: Path) -> tuple[float, float]:
    """Return the wall and CPU time of one call and its JSON in a fresh process, after its imports."""
    code = (
        "import json, sys, time\n"
        "from tidemill.checkpoint import inspect\n"
        "from tidemill.checkpoint.document import inspect_document\n"
        "from tidemill.checkpoint.verify import verify\n"
        "from tidemill.connectors.registry import recognize\n"
        "from tidemill.checkpoint.verify.document import verify_document\n"
        "wall, cpu = time.perf_counter(), time.process_time()\n"
        f"json.dumps({call})\n"
        "print((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)\n"
    )
    command = [sys.executable, "-c", code, str(checkpoint)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


def peak_megabytes(checkpoint: Path) -> tuple[float, float]:
    """Return the wall seconds and the peak resident memory of a full verification."""
    code = (
        "import resource, sys; from tidemill.checkpoint.verify import verify; "
        "from tidemill.connectors.registry import recognize; "
        "assert verify(sys.argv[1], level='full', recognize=recognize).sound; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(checkpoint)], check=True, capture_output=True, text=True
    )
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return time.perf_counter() - started, int(done.stdout) * unit / 1e6


def main() -> None:
    """Create the checkpoint, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        make(checkpoint, options.batches, options.files)
        print(f"| {options.batches:,} batches, {options.files:,} files | measured | goal |\n|---|---|---|")
        for name, call in CALLS.items():
            rounds = [milliseconds(call, checkpoint) for _ in range(options.rounds)]
            wall, cpu = (statistics.median(times) for times in zip(*rounds, strict=True))
            print(
                f"| `checkpoint {name}`, beyond process start | {wall:.0f} ms ({cpu:.0f} ms of CPU) | 150 ms |"
            )
        seconds, megabytes = peak_megabytes(checkpoint)
        print(f"| `checkpoint verify` (full) | {seconds:.1f} s | 60 s |")
        print(f"| peak memory of it | {megabytes:.0f} MB | 500 MB |")


if __name__ == "__main__":
    main()
