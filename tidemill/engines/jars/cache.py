"""The cache of jars: a set is complete and verified, or it is absent.

A fetch works in a temporary folder next to the sets and checks every checksum; then one rename makes the set
visible. Whatever interrupts it, an incomplete set is never visible; the next fetch removes the remains.
"""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Literal

from rich.console import Console

from tidemill.engines.jars.ivy import retrieve
from tidemill.engines.jars.sets import JarSet
from tidemill.errors import ConfigurationError, TerminalError

WORK_PREFIX = ".fetch-"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state of a set in the cache, every file hashed.

    No stamp saves the hashing: Spark's 24 MB take 0.02 s to 0.04 s, next to a JVM that takes seconds to start,
    and a stamp would not notice a disk that lost a page.

    Attributes:
        folder: The folder of the set, whether it exists or not.
        state: `absent` is no fault: the set is fetched when it is needed.
        jars: The set's files, in the order of the checksum file.
        size: Bytes of the files that exist.
        faults: One line per faulty file; empty unless the state is `damaged`.
    """

    folder: Path
    state: Literal["ready", "absent", "damaged"]
    jars: tuple[Path, ...]
    size: int
    faults: tuple[str, ...]


def inspect(jar_set: JarSet) -> Inspection:
    """Compare the cached set with its checksums; change nothing, so that a read-only cache works."""
    folder = jar_set.folder()
    jars = tuple(folder / name for name in jar_set.checksums())
    if not folder.is_dir():
        return Inspection(folder, "absent", jars, 0, ())
    faults = _faults(folder, jar_set.checksums())
    size = sum(jar.stat().st_size for jar in jars if jar.is_file())
    return Inspection(folder, "damaged" if faults else "ready", jars, size, faults)


def jars_of(jar_set: JarSet) -> list[Path]:
    """Return the set's files, fetched first if the cache does not have them.

    Raises:
        TerminalError: A cached file is not the pinned one. It is not replaced silently: a person or a disk
            changed code that the JVM would have run, and that should be known.
        TransientError: The fetch failed.
        ConfigurationError: A fetch is needed, and there is no Java or no cache that can be written.
    """
    cached = inspect(jar_set)
    if cached.state == "damaged":
        raise TerminalError(
            f"The cached jars for {jar_set.purpose} are not the pinned ones: {'; '.join(cached.faults)} "
            f"(in {cached.folder}).",
            fix=f"Replace them with `{jar_set.fetch_command}`.",
            code="jars-not-pinned",
        )
    if cached.state == "absent":
        cached = fetch(jar_set)
    return list(cached.jars)


def fetch(jar_set: JarSet, console: Console | None = None) -> Inspection:
    """Fetch the set unless a sound copy is there; a damaged copy is replaced.

    Raises:
        TerminalError: A fetched file is not the pinned one.
        TransientError: The fetch failed.
        ConfigurationError: There is no Java, or no cache that can be written.
    """
    console = console or Console(stderr=True)
    root = jar_set.folder().parent
    with _alone_in(root, console):
        cached = inspect(jar_set)  # another process may have fetched it in the meantime
        if cached.state == "ready":
            return cached
        for leftover in root.glob(f"{WORK_PREFIX}*"):
            rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=root, ignore_cleanup_errors=True) as work:
            _download(jar_set, Path(work), console)
            if cached.state == "damaged":
                cached.folder.rename(Path(work) / "damaged")
            (Path(work) / "jars").rename(cached.folder)
    return inspect(jar_set)


def write_checksums(folder: Path, checksum_file: Path) -> None:
    """Pin the files of a folder, in the format of `sha256sum`."""
    lines = [f"{_sha256(jar)}  {jar.name}\n" for jar in sorted(folder.iterdir())]
    checksum_file.write_text("".join(lines), encoding="ascii")


def _download(jar_set: JarSet, work: Path, console: Console) -> None:
    into = work / "jars"
    into.mkdir()
    wanted = jar_set.checksums()
    started = time.monotonic()
    announcement = f"Fetching {len(wanted)} jars for {jar_set.purpose}, once, into {jar_set.folder()}"
    console.print(announcement, soft_wrap=True, markup=False)  # brackets in a path are no markup
    with console.status("requesting the jars") as status:
        retrieve(jar_set.ivy_file, into, work, lambda count: status.update(f"{count} of {len(wanted)}"))
    if faults := _faults(into, wanted):
        raise TerminalError(
            f"The jars that were fetched for {jar_set.purpose} are not those that "
            f"{jar_set.checksum_file.name} pins: {'; '.join(faults)}.",
            lost="No file was kept; the cache is unchanged.",
            fix="Run the command again. If the error stays, the mirror serves other files: do not use them.",
            code="jars-not-pinned",
        )
    console.print(f"Fetched and verified in {time.monotonic() - started:.0f} s")


def _faults(folder: Path, checksums: dict[str, str]) -> tuple[str, ...]:
    faults = []
    for name, expected in checksums.items():
        try:
            actual = _sha256(folder / name)
        except FileNotFoundError:
            faults.append(f"{name} is missing")
        except OSError as error:
            faults.append(f"{name} cannot be read ({error.strerror})")
        else:
            if actual != expected:
                faults.append(f"{name} has sha256 {actual[:12]}..., not {expected[:12]}...")
    return tuple(faults)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone_in(root: Path, console: Console) -> Iterator[None]:
    """Hold the cache's lock; the system releases it when the holder dies, however it dies."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"The cache {root} cannot be written: {error.strerror}.",
            fix="Set TIDEMILL_CACHE to another folder.",
            code="cache-not-writable",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("Another process is fetching; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
