"""The cache of jars: a set is there whole and verified, or it is not there.

A fetch works in a folder of its own beside the sets and checks every sum; then one rename makes the set
visible. Whatever interrupts it, no half set can be seen; the next fetch removes what was left.
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

from pipelines.streaming.errors import ConfigurationError, TerminalError
from resources.jars.ivy import retrieve
from resources.jars.sets import JarSet

WORK_PREFIX = ".fetch-"


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the cache has of a set, every file hashed.

    There is no stamp that would save the hashing: Spark's 22 MB take 0.02 s to 0.04 s, beside a JVM that
    takes seconds to start, and a stamp would not notice a disk that lost a page.

    Attributes:
        folder: Where the set lies, or would lie.
        state: `absent` is no fault: the set is fetched when it is needed.
        jars: The set's files, in the order of the sums file.
        size: Bytes of the files that are there.
        faults: What is wrong, one line a file; empty unless the state is `damaged`.
    """

    folder: Path
    state: Literal["ready", "absent", "damaged"]
    jars: tuple[Path, ...]
    size: int
    faults: tuple[str, ...]


def inspect(jar_set: JarSet) -> Inspection:
    """Compare the cached set with its sums; changes nothing, so a read-only cache will do."""
    folder = jar_set.folder()
    jars = tuple(folder / name for name in jar_set.sums())
    if not folder.is_dir():
        return Inspection(folder, "absent", jars, 0, ())
    faults = _faults(folder, jar_set.sums())
    size = sum(jar.stat().st_size for jar in jars if jar.is_file())
    return Inspection(folder, "damaged" if faults else "ready", jars, size, faults)


def jars_of(jar_set: JarSet) -> list[Path]:
    """The set's files, fetched first if they were never fetched.

    Raises:
        TerminalError: A cached file is not the pinned one. It is not replaced silently: somebody or some disk
            changed what the JVM would have run, and that should be known.
        TransientError: They had to be fetched, and could not be.
        ConfigurationError: They had to be fetched, and there is no Java or no cache to write to.
    """
    found = inspect(jar_set)
    if found.state == "damaged":
        raise TerminalError(
            f"The cached jars for {jar_set.purpose} are not the pinned ones: {'; '.join(found.faults)} "
            f"(in {found.folder}).",
            fix=f"`{jar_set.fetch_command}` replaces them.",
        )
    if found.state == "absent":
        found = fetch(jar_set)
    return list(found.jars)


def fetch(jar_set: JarSet, console: Console | None = None) -> Inspection:
    """Fetch the set unless a sound copy is there; a damaged copy is replaced.

    Raises:
        TerminalError: What came is not what is pinned.
        TransientError: It could not be fetched.
        ConfigurationError: There is no Java or no cache to write to.
    """
    console = console or Console(stderr=True)
    root = jar_set.folder().parent
    with _alone_in(root, console):
        found = inspect(jar_set)  # another process may have fetched it while we waited
        if found.state == "ready":
            return found
        for leftover in root.glob(f"{WORK_PREFIX}*"):
            rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=root, ignore_cleanup_errors=True) as work:
            _download(jar_set, Path(work), console)
            if found.state == "damaged":
                found.folder.rename(Path(work) / "damaged")
            (Path(work) / "jars").rename(found.folder)
    return inspect(jar_set)


def write_sums(folder: Path, sums_file: Path) -> None:
    """Pin what is in `folder`, in the format of `sha256sum`."""
    lines = [f"{_sha256(jar)}  {jar.name}\n" for jar in sorted(folder.iterdir())]
    sums_file.write_text("".join(lines), encoding="ascii")


def _download(jar_set: JarSet, work: Path, console: Console) -> None:
    into = work / "jars"
    into.mkdir()
    wanted = jar_set.sums()
    started = time.monotonic()
    what = f"Fetching {len(wanted)} jars for {jar_set.purpose}, once, into {jar_set.folder()}"
    console.print(what, soft_wrap=True, markup=False)  # brackets in a path are no markup
    with console.status("asking for them") as status:
        retrieve(jar_set.ivy_file, into, work, lambda count: status.update(f"{count} of {len(wanted)}"))
    if faults := _faults(into, wanted):
        raise TerminalError(
            f"What was fetched for {jar_set.purpose} is not what {jar_set.sums_file.name} pins: "
            f"{'; '.join(faults)}.",
            lost="Nothing of it was kept; the cache is as it was.",
            fix="Run it again. If it stays so, the mirror serves other files: do not use them.",
        )
    console.print(f"Fetched and verified in {time.monotonic() - started:.0f} s")


def _faults(folder: Path, sums: dict[str, str]) -> tuple[str, ...]:
    faults = []
    for name, expected in sums.items():
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
    """Hold the cache's lock; the system lets go of it when the holder dies, however it dies."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"The cache {root} cannot be written: {error.strerror}.",
            fix="Let TIDEMILL_CACHE name another folder.",
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
