"""Measure what waits in a prefix with a million objects: `python -m bench.object_store.million [--objects 1000000]`.

The store is a server on this machine that answers listings only, each after 30 ms. All objects but one are read. The
script prints the rows of a table of docs/object-stores.md: each way to ask, in a process that asks for the first time.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.files.backlog import waiting_files
from tidemill.storage.lake import Lake
from tidemill.storage.s3_settings import S3Settings

_PAGE = 1_000
_SECONDS = 0.03
_BATCHES = 1_000
_TIME = "2026-01-01T00:00:00.000Z"


def _name(number: int) -> str:
    return f"in/2026-01-01T00-00-{number:09d}-0f8fad5b.json"


def _page(first: int, objects: int) -> bytes:
    """Return a page of the listing from an object on."""
    end = min(first + _PAGE, objects)
    files = "".join(
        f'<Contents><Key>{_name(number)}</Key><LastModified>{_TIME}</LastModified><ETag>"e"</ETag>'
        "<Size>1000</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for number in range(first, end)
    )
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < objects else ""
    truncated = "true" if more else "false"
    body = (
        '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>many</Name>'
        f"<Prefix>in/</Prefix><KeyCount>{end - first}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
        f"<IsTruncated>{truncated}</IsTruncated>{more}{files}</ListBucketResult>"
    ).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _serve(objects: int) -> None:
    async def answer(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked = parse_qs(urlsplit(head.split(b" ")[1].decode()).query)
                after = asked.get("start-after", [""])[0]
                first = int(asked.get("continuation-token", ["0"])[0])
                if after and not first:
                    first = int(after.split("-")[4]) + 1
                await asyncio.sleep(_SECONDS)
                writer.write(_page(first, objects))
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _read(folder: Path, bucket: str, objects: int) -> None:
    """Write the log of a source that has read all objects but the last, in batches of the same size."""
    log = folder / "sources" / "events"
    log.mkdir(parents=True)
    size = max(1, objects // _BATCHES)
    last = (objects - 2) // size
    with (log / f"{last}.compact").open("w", encoding="utf-8") as file:
        file.write("v1")
        for number in range(objects - 1):
            line = {"path": f"s3a://{bucket}/{_name(number)}", "timestamp": 1, "batchId": number // size}
            file.write(f"\n{json.dumps(line)}")


def _ask(port: int, checkpoint: str, objects: int, how: str) -> None:
    """Ask twice, and print the seconds of both and the memory of this process."""
    access = S3Settings(
        endpoint=f"http://127.0.0.1:{port}",
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",  # noqa: S106 - the server takes any
    )
    lake = Lake(Lake.at(checkpoint).store, access=access)
    entry = (objects - 2) // max(1, objects // _BATCHES)
    offset = SourceOffset.parse("", "events", None, f'{{"logOffset":{entry}}}')
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        backlog = waiting_files(
            "s3://many/in",
            offset,
            lake=lake,
            checkpoint=Path(checkpoint),
            name="events",
            what="the prefix",
            is_ordered=how == "ordered",
        )
        seconds.append(time.perf_counter() - begun)
        if backlog.count != 1:
            raise SystemExit(f"{backlog.count} files wait, not 1")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| {how} | {seconds[0]:.2f} s | {seconds[1]:.2f} s | {megabytes:,.0f} MB |")


def main() -> None:
    """Serve the listing, and ask in new processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(given.objects))
        return
    if given.ask:
        port, checkpoint, how = given.ask
        _ask(int(port), checkpoint, given.objects, how)
        return
    itself = [sys.executable, "-m", "bench.object_store.million", "--objects", str(given.objects)]
    with (
        tempfile.TemporaryDirectory(prefix="tidemill-million-") as folder,
        subprocess.Popen([*itself, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server,
    ):
        port = server.stdout.readline().decode().strip() if server.stdout else ""
        _read(Path(folder), "many", given.objects)
        print(
            f"{given.objects:,} objects\n\n| names | first question | second question | memory |\n|---|---|---|---|"
        )
        for how in ("detected", "ordered"):
            subprocess.run([*itself, "--ask", port, folder, how], check=True)
        if server.stdin:
            server.stdin.close()


if __name__ == "__main__":
    main()
