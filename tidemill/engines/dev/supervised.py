"""A command that does not outlive its owner, the process that started it, however that process ends.

Between the two runs a small supervisor: this file as a program. It reads its standard input, a pipe that only
the owner can write to. When the owner ends, also by SIGKILL, the system closes the pipe: the supervisor stops
the command and removes its scratch folder. It works the same on Linux and on macOS, which has no
PR_SET_PDEATHSIG. It needs only the standard library, so it starts in 20 ms.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

GRACE_SECONDS = 10
"""From SIGTERM to SIGKILL; a broker needs about 1 s to flush its logs."""


def start(command: Sequence[str], *, scratch: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start `command` under a supervisor; the returned process is the supervisor.

    The supervisor ends when the command ends, with its status. It then keeps `scratch`, so that the log can be
    read.

    Args:
        command: Program and arguments.
        scratch: A folder that is removed when this process ends.
        log: Standard output and error of the command.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(scratch), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in a terminal reaches only the owner, which decides
        )


def stop(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop the command; wait until it and its supervisor have ended and the scratch folder is removed."""
    if supervisor.stdin:
        supervisor.stdin.close()
    supervisor.wait(GRACE_SECONDS * 2)


def _supervise(scratch: str, command: Sequence[str]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    owner_ended = threading.Event()

    def stop_when_owner_ends() -> None:
        while os.read(0, 1024):  # not through sys.stdin: its lock, held here, would abort a normal exit
            pass
        owner_ended.set()
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=stop_when_owner_ends, daemon=True).start()
    status = child.wait()
    if owner_ended.is_set():
        shutil.rmtree(scratch, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1], sys.argv[2:]))
