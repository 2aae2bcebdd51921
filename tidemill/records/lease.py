"""The lease: one writer per stream, across processes, hosts and crashes.

`<control>/lease/<epoch>.json` is created exclusively, so exactly one process gets an epoch. The highest epoch
holds the lease. A lease whose process and JVM have ended on this boot is taken over at once, any other when its holder
has not written its file for a while, by the clock of the store: those of hosts may differ. The JVM of a warm server
outlives its clients: there their queries must have stopped. Before each write the holder checks that its epoch is still
the highest; Delta's transaction is the last line of defence.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import psutil

from tidemill.errors import NOTHING_LOST, ConfigurationError, LeaseHeldError, LeaseLostError, TransientError
from tidemill.storage.store import ChangedError, Store
from tidemill.text.durations import now_iso
from tidemill.text.names import StreamName

HEARTBEAT_SECONDS = 10.0
# Six missed heartbeats: longer than a long garbage collection or a stalled disk, short enough to wait for.
TIMEOUT_SECONDS = 60.0
# A JVM ends about half a second after the Python process that started it.
JVM_GRACE_SECONDS = 5.0
# A warm server stops the queries of a client that was killed; a commit in progress is not interrupted.
SERVER_GRACE_SECONDS = 30.0
# Written by who wants to know what time it is for the store.
_CLOCK = "clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease.

    Attributes:
        host: The host's name.
        boot_id: The boot of that host and the process namespace: a process id means something only within.
        pid: The Python process.
        pid_started: When that process started, seconds since the epoch.
        jvm_pid: The JVM that runs its queries, once there is one.
        jvm_started: When that JVM started, seconds since the epoch.
        attachment: With a warm server, whose JVM outlives the holder, the file that the server removes when the
            holder's queries have stopped.
        since: When the lease was taken, ISO-8601 UTC.
        beats: How often the holder has shown that it lives.
        released: Whether the holder has finished.
    """

    run_id: str
    host: str
    boot_id: str
    pid: int
    pid_started: float
    jvm_pid: int | None = None
    jvm_started: float | None = None
    attachment: str | None = None
    since: str
    beats: int = 0
    released: bool = False

    @property
    def is_this_process(self) -> bool:
        """Whether it is the process that asks."""
        return (self.boot_id, self.pid) == (boot_identity(), os.getpid())

    def __str__(self) -> str:
        return f"run {self.run_id} (process {self.pid} on {self.host}, since {self.since})"


def boot_identity() -> str:
    """Return what a process id is unique within: the boot of the host, and on Linux the process namespace."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    return str(psutil.boot_time())


def this_process(run_id: str) -> Holder:
    """Return this process as a holder."""
    return Holder(
        run_id=run_id,
        host=socket.gethostname(),
        boot_id=boot_identity(),
        pid=os.getpid(),
        pid_started=psutil.Process().create_time(),
        since=now_iso(),
    )


class Lease:
    """A held lease, created by `take`.

    Attributes:
        epoch: Its number; each lease of a stream has a higher one than the lease before.
    """

    def __init__(self, files: Store, stream: StreamName, epoch: int, version: str, holder: Holder) -> None:
        self.stream = stream
        self.epoch = epoch
        self._files = files
        self._version = version
        self._holder = holder
        self._stopped = Event()
        self._lost = Event()
        # The run's thread and the heartbeat both write the file.
        self._writing = Lock()
        self._beat = Thread(target=self._keep_alive, name=f"lease {stream}", daemon=True)
        self._beat.start()

    def check(self) -> None:
        """Check that this is still the highest epoch.

        Raises:
            LeaseLostError: Another run has taken over.
        """
        if self._lost.is_set():
            raise _lost_lease(self.stream)
        assert_highest(self._files, self.stream, self.epoch)

    def record_jvm(self, pid: int | None, *, attachment: Path | None = None) -> None:
        """Record the JVM that works for this run, so that others can see whether it has ended, too.

        Args:
            pid: The JVM.
            attachment: With a warm server, the file that it removes when the queries of this process have stopped.
        """
        started = None
        if pid is not None:
            with suppress(psutil.Error):
                started = psutil.Process(pid).create_time()
        self._write(
            jvm_pid=pid, jvm_started=started, attachment=None if attachment is None else str(attachment)
        )

    def release(self) -> None:
        """Release the lease. The stream's query must have stopped by then."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._beat.join()
        with suppress(OSError, TransientError):  # a lake that became unreadable ends by the time-out
            self._write(released=True)

    def _keep_alive(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            try:
                self._write(beats=self._holder.beats + 1)
            except ChangedError:
                self._lost.set()
                return
            except (OSError, TransientError):
                continue  # the next beat may succeed; until then the age of the last one decides

    def _write(self, **changes: Any) -> None:
        with self._writing:
            self._holder = replace(self._holder, **changes)
            # A run that has taken over removes the file, and nothing may bring it back.
            self._version = self._files.replace(
                _key(self.epoch), _content(self._holder), unchanged=self._version
            )


def assert_highest(files: Store, stream: StreamName, epoch: int) -> None:
    """Check that an epoch is the highest.

    Whoever takes over creates the next file before it removes this one, so one of two reads shows it.

    Raises:
        LeaseLostError: Another run has a higher one.
    """
    if _content_of(files, epoch + 1) is not None or _content_of(files, epoch) is None:
        raise _lost_lease(stream)


def _lost_lease(stream: StreamName) -> LeaseLostError:
    return LeaseLostError(
        "another run has taken this stream over, so this one stops before it writes.",
        stream=stream,
        fix="no action needed: the other run repeats what this one did not commit.",
    )


def holder_of(files: Store) -> Holder | None:
    """Return the holder of the lease; None when it is free."""
    epochs = _epochs(files)
    if not epochs:
        return None
    holder = _read(files, epochs[-1])

    def silence() -> float:  # who only asks writes nothing, and has the clock of this host
        return time.time() - _modified(files, _key(epochs[-1]))

    return holder if holder is not None and _alive(holder, silence) else None


def take(files: Store, stream: StreamName, run_id: str) -> Lease:
    """Take the lease of a stream.

    Raises:
        LeaseHeldError: Another run holds it; the error names that run.
        ConfigurationError: The lake cannot be written.
    """
    try:
        epochs = _epochs(files)
        if epochs and (holder := _read(files, epochs[-1])) is not None:
            silence = partial(_silence, files, epochs[-1])
            if _alive_after_grace(holder, silence):
                raise _held_by(stream, holder, silence)
        epoch = (epochs[-1] if epochs else 0) + 1
        holder = this_process(run_id)
        try:
            version = files.create(_key(epoch), _content(holder))
        except FileExistsError:
            winner = _read(files, epoch)
            raise _held_by(stream, winner or holder, lambda: 0.0) from None
        if (newest := _epochs(files)[-1]) > epoch:
            # This process stood still between its listing and its file, others came and went, and their files of this
            # epoch are deleted. The file with the highest epoch is always there, so this listing shows it.
            files.delete([_key(epoch)])
            raise _held_by(stream, _read(files, newest) or holder, lambda: 0.0)
        for old in epochs:  # one after the other: `assert_highest` relies on the order
            files.delete([_key(old)])
    except OSError as error:
        raise ConfigurationError(
            f"the lake cannot be written: {error.strerror} ({files.uri()}).",
            stream=stream,
            lost=NOTHING_LOST,
            fix="give this user the right to write there, or name another lake with --lake.",
            code="lake-not-writable",
        ) from error
    return Lease(files, stream, epoch, version, holder)


def _held_by(stream: StreamName, holder: Holder, silence: Callable[[], float]) -> LeaseHeldError:
    if holder.attachment is not None and not _python_alive(holder, silence):
        return LeaseHeldError(
            f"{holder} has ended, and the warm server (process {holder.jvm_pid}) has not stopped its query yet.",
            stream=stream,
            fix="wait a minute and run it again; or stop the server: tidemill engine stop.",
        )
    return LeaseHeldError(
        f"{holder} holds the lease of this stream.",
        stream=stream,
        fix="wait for that run to end, or stop it first.",
    )


def _alive_after_grace(holder: Holder, silence: Callable[[], float]) -> bool:
    """Return whether the holder is alive; a JVM that is ending with its process gets a moment."""
    grace = JVM_GRACE_SECONDS if holder.attachment is None else SERVER_GRACE_SECONDS
    deadline = time.monotonic() + grace
    while _alive(holder, silence):
        if _python_alive(holder, silence) or time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _alive(holder: Holder, silence: Callable[[], float]) -> bool:
    """Return whether a holder has not finished and lives.

    Args:
        holder: The holder.
        silence: Returns for how many seconds it has not written its file; asked about other hosts only.
    """
    if holder.released:
        return False
    if holder.boot_id != boot_identity():
        return silence() < TIMEOUT_SECONDS
    return _python_alive(holder, silence) or _jvm_alive(holder)


def _python_alive(holder: Holder, silence: Callable[[], float]) -> bool:
    """Return whether that very process lives: process ids are reused, start times are not."""
    if holder.boot_id != boot_identity():
        return silence() < TIMEOUT_SECONDS
    return _same_process(holder.pid, holder.pid_started)


def _jvm_alive(holder: Holder) -> bool:
    if holder.attachment is not None and not Path(holder.attachment).exists():
        return False
    return holder.jvm_pid is not None and _same_process(holder.jvm_pid, holder.jvm_started)


def _same_process(pid: int, started: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) < 1.0
    except psutil.NoSuchProcess:
        return False


def _silence(files: Store, epoch: int) -> float:
    """Return for how many seconds the holder of an epoch has not written its file, by the store's clock."""
    files.replace(_CLOCK, b"")
    written = {entry.key: entry.modified for entry in files.list()}
    files.delete([_CLOCK])
    # Another run that asks as well may have deleted it: then the holder counts as alive.
    return written.get(_CLOCK, 0.0) - written.get(_key(epoch), 0.0)


def _modified(files: Store, key: str) -> float:
    """Return when a file was written; 0 where it is missing."""
    return next((entry.modified for entry in files.list() if entry.key == key), 0.0)


def _key(epoch: int) -> str:
    return f"{epoch}.json"


def _content(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _content_of(files: Store, epoch: int) -> bytes | None:
    try:
        return files.read(_key(epoch))
    except FileNotFoundError:
        return None


def _epochs(files: Store) -> list[int]:
    names = files.names()
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def _read(files: Store, epoch: int) -> Holder | None:
    """Return the holder in a lease file; None where the file is missing, or has been damaged for a while."""
    content = _content_of(files, epoch)
    if content is None:
        return None
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        # Created a moment ago and not written yet, on a file system without hard links: its age decides.
        if time.time() - _modified(files, _key(epoch)) >= TIMEOUT_SECONDS:
            return None
        return Holder(
            run_id="unknown",
            host="unknown",
            boot_id="unknown",
            pid=0,
            pid_started=0.0,
            since="just now",
        )
