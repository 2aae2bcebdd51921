"""The lease: one writer a stream, across processes, hosts and crashes.

`<control>/lease/<epoch>.json` is made by an exclusive create, so exactly one process gets an epoch. The
highest epoch is the holder. A holder whose process and JVM are gone on this very boot is followed at once,
any other after its heartbeat is too old. Before each write and publish the holder checks that its epoch is
still the highest; Delta's transaction is the last line behind that.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import psutil

from pipelines.streaming.errors import ConfigurationError, LeaseHeldError, LeaseLostError
from pipelines.streaming.names import StreamName

HEARTBEAT_SECONDS = 10.0
# Six missed heartbeats: longer than a long garbage collection or a stalled disk, short enough to wait for.
TIMEOUT_SECONDS = 60.0
# A JVM ends about half a second after the Python process that started it.
JVM_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease.

    Attributes:
        run_id: The run.
        host: The host's name.
        boot_id: The boot of that host and the process namespace: a process id means something only within.
        pid: The Python process.
        pid_started: When that process started, seconds since the epoch.
        jvm_pid: The JVM it started, once there is one.
        since: When the lease was taken, ISO-8601 UTC.
        heartbeat: The last sign of life, seconds since the epoch.
        released: Whether the holder is done.
    """

    run_id: str
    host: str
    boot_id: str
    pid: int
    pid_started: float
    jvm_pid: int | None = None
    since: str
    heartbeat: float
    released: bool = False

    def __str__(self) -> str:
        return f"run {self.run_id} (process {self.pid} on {self.host}, since {self.since})"


def boot_identity() -> str:
    """What a process id is unique within: the boot of the host, and on Linux the process namespace."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    return str(psutil.boot_time())


def this_process(run_id: str) -> Holder:
    """This process as a holder."""
    return Holder(
        run_id=run_id,
        host=socket.gethostname(),
        boot_id=boot_identity(),
        pid=os.getpid(),
        pid_started=psutil.Process().create_time(),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        heartbeat=time.time(),
    )


class Lease:
    """A held lease; made by `held`.

    Attributes:
        stream: The stream it is for.
        epoch: Its number; each holder of a stream has a higher one than the holder before.
    """

    def __init__(self, folder: Path, stream: StreamName, epoch: int, holder: Holder) -> None:
        self.stream = stream
        self.epoch = epoch
        self._folder = folder
        self._holder = holder
        self._stopped = Event()
        self._beat = Thread(target=self._keep_alive, name=f"lease {stream}", daemon=True)
        self._beat.start()

    def check(self) -> None:
        """Makes sure that this is still the highest epoch.

        Raises:
            LeaseLostError: another run has taken over.
        """
        assert_highest(self._folder, self.stream, self.epoch)

    def record_jvm(self, pid: int | None) -> None:
        """Notes the JVM that works for this run, so that a follower can see whether it is gone, too."""
        self._holder = replace(self._holder, jvm_pid=pid)
        self._write()

    def release(self) -> None:
        """Gives the stream free."""
        self._stopped.set()
        self._beat.join()
        self._holder = replace(self._holder, released=True)
        with suppress(OSError):  # a lake that became unreadable ends by the time-out
            self._write()

    def _keep_alive(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            self._holder = replace(self._holder, heartbeat=time.time())
            with suppress(OSError):  # the next beat may succeed; until then the age tells
                self._write()

    def _write(self) -> None:
        place = _file(self._folder, self.epoch)
        temporary = place.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(asdict(self._holder)), encoding="utf-8")
        temporary.replace(place)


def assert_highest(folder: Path, stream: StreamName, epoch: int) -> None:
    """Makes sure that an epoch is the highest of a lease folder.

    Raises:
        LeaseLostError: it is not.
    """
    if _epochs(folder)[-1:] != [epoch]:
        raise LeaseLostError(
            "another run has taken this stream over, so this one stops before it writes.",
            stream=stream,
            fix="Nothing is to be done: the other run repeats what this one did not commit.",
        )


def holder_of(folder: Path) -> Holder | None:
    """Who holds the lease now; None when nobody does."""
    epochs = _epochs(folder)
    if not epochs:
        return None
    holder = _read(_file(folder, epochs[-1]))
    return holder if holder is not None and _alive(holder) else None


@contextmanager
def held(folder: Path, stream: StreamName, run_id: str) -> Iterator[Lease]:
    """Holds the lease of a stream for a `with` block."""
    lease = take(folder, stream, run_id)
    try:
        yield lease
    finally:
        lease.release()


def take(folder: Path, stream: StreamName, run_id: str) -> Lease:
    """Takes the lease of a stream, or says at once who has it.

    Raises:
        LeaseHeldError: another run holds it.
        ConfigurationError: the lake cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        epochs = _epochs(folder)
        if epochs and (holder := _read(_file(folder, epochs[-1]))) is not None and _alive_after_grace(holder):
            raise _held_by(stream, holder)
        epoch = (epochs[-1] if epochs else 0) + 1
        holder = this_process(run_id)
        try:
            with _file(folder, epoch).open("x", encoding="utf-8") as file:
                json.dump(asdict(holder), file)
        except FileExistsError:
            winner = _read(_file(folder, epoch))
            raise _held_by(stream, winner or holder) from None
        for old in epochs:
            _file(folder, old).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the lake cannot be written: {error.strerror} ({folder}).",
            stream=stream,
            lost="Nothing was touched.",
            fix="Give this user the right to write there, or name another lake with --lake.",
        ) from error
    return Lease(folder, stream, epoch, holder)


def _held_by(stream: StreamName, holder: Holder) -> LeaseHeldError:
    return LeaseHeldError(
        f"{holder} works on this stream.",
        stream=stream,
        lost="Nothing was touched.",
        fix="Wait for it to end, or stop it first.",
    )


def _alive_after_grace(holder: Holder) -> bool:
    """Whether the holder is alive; a JVM that is just ending with its process gets a moment."""
    deadline = time.monotonic() + JVM_GRACE_SECONDS
    while _alive(holder):
        if _python_alive(holder) or time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _alive(holder: Holder) -> bool:
    if holder.released:
        return False
    if holder.boot_id != boot_identity():
        return time.time() - holder.heartbeat < TIMEOUT_SECONDS
    return _python_alive(holder) or (holder.jvm_pid is not None and _is_java(holder.jvm_pid))


def _python_alive(holder: Holder) -> bool:
    """Whether that very process lives: a process id is used again, a start time is not."""
    if holder.boot_id != boot_identity():
        return time.time() - holder.heartbeat < TIMEOUT_SECONDS
    try:
        process = psutil.Process(holder.pid)
        return (
            process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - holder.pid_started) < 1.0
        )
    except psutil.NoSuchProcess:
        return False


def _is_java(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and "java" in process.name()
    except psutil.NoSuchProcess:
        return False


def _file(folder: Path, epoch: int) -> Path:
    return folder / f"{epoch}.json"


def _epochs(folder: Path) -> list[int]:
    try:
        names = [place.name for place in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def _read(place: Path) -> Holder | None:
    """The holder in a lease file; None where the file is half written or gone."""
    try:
        fields = json.loads(place.read_text(encoding="utf-8"))
        return Holder(**fields)
    except (FileNotFoundError, ValueError, TypeError):
        # Made by an exclusive create a moment ago and not yet filled: its age decides.
        with suppress(OSError):
            if time.time() - place.stat().st_mtime < TIMEOUT_SECONDS:
                return Holder(
                    run_id="unknown",
                    host="unknown",
                    boot_id="unknown",
                    pid=0,
                    pid_started=0.0,
                    since="just now",
                    heartbeat=place.stat().st_mtime,
                )
        return None
