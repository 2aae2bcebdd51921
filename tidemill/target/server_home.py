"""The folder of a target's warm server on this machine, and the lock that says whether a server lives.

```
<cache>/engine/<target>-<digest>/   mode 0700
    lock          held by the server as long as it lives; the system releases it, however the server ends
    server.json   the record: processes, ports and settings; written when the server is ready
    token         what a client must show; mode 0600
    server.log    output of the server; server.1.log is that of the one before
    attached/     one file per attached process, until its queries have stopped
```
"""

import fcntl
import hashlib
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemill.cache import cache_root
from tidemill.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ServerHome:
    """Where a target's warm server is.

    Attributes:
        root: The folder of tidemill.toml, the working folder of the server.
        folder: The server's folder.
    """

    target: str
    root: Path
    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    @classmethod
    def of(cls, *, target: str, config: Path, lake: str) -> "ServerHome":
        """Return the home of a target's server: another file, lake or host has another one."""
        identity = "\n".join((str(config.absolute()), target, lake, socket.gethostname()))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        name = re.sub(r"[^\w-]", "_", target)
        return cls(target, config.absolute().parent, cache_root() / "engine" / f"{name}-{digest}")

    @property
    def record_file(self) -> Path:
        """The record of the server."""
        return self.folder / "server.json"

    @property
    def token_file(self) -> Path:
        """The token."""
        return self.folder / "token"

    @property
    def log(self) -> Path:
        """The log of the server that runs, or ran last."""
        return self.folder / "server.log"

    @property
    def older_log(self) -> Path:
        """The log of the server before."""
        return self.folder / "server.1.log"

    @property
    def attached(self) -> Path:
        """The folder with a file per attached process."""
        return self.folder / "attached"

    @property
    def has_server(self) -> bool:
        """Whether a server lives, or is starting."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def lock(self) -> int | None:
        """Lock the folder for a server; return the descriptor that holds the lock, or None if a server has it.

        Raises:
            ConfigurationError: The folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"The folder of the warm server cannot be written: {error.strerror} ({self.folder}).",
                fix="Set TIDEMILL_CACHE to a folder that this user can write.",
                code="cache-not-writable",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def clear(self) -> None:
        """Remove what an earlier server left, and keep its log; the caller holds the lock."""
        self.record_file.unlink(missing_ok=True)
        self.token_file.unlink(missing_ok=True)
        self.attached.mkdir(exist_ok=True)
        for file in self.attached.iterdir():
            file.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            self.log.replace(self.older_log)

    def write_private(self, path: Path, content: str) -> None:
        """Write a file that only this user can read, visible as a whole or not at all."""
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        temporary.replace(path)
