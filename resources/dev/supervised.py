"""A command that does not outlive the process that asked for it, however that process ends.

Between the two stands a small supervisor, this file run as a program. It reads its standard input, a pipe
that only the asking process writes to. When that process ends, also by SIGKILL, the system closes the pipe:
the supervisor stops the command and removes its scratch folder. It works the same on Linux and macOS, which
has no PR_SET_PDEATHSIG. Standard library only: it starts in 20 ms.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

GRACE_SECONDS = 10
"""From SIGTERM to SIGKILL; a broker needs about 1 s to write down where it is."""


def start(command: Sequence[str], *, scratch: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start `command` under a supervisor; the returned process is the supervisor.

    It ends when the command ends, with its status; `scratch` is then still there, for a look at the log.

    Args:
        command: Program and arguments.
        scratch: A folder that is removed when this process is gone.
        log: Standard output and error of the command.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(scratch), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in a terminal reaches only the asking process, which decides
        )


def stop(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop the command and wait until it, its scratch folder and its supervisor are gone."""
    if supervisor.stdin:
        supervisor.stdin.close()
    supervisor.wait(GRACE_SECONDS * 2)


def _supervise(scratch: str, command: Sequence[str]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    asker_gone = threading.Event()

    def stop_when_asker_is_gone() -> None:
        while os.read(0, 1024):  # not through sys.stdin: its lock, held here, would abort a normal exit
            pass
        asker_gone.set()
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=stop_when_asker_is_gone, daemon=True).start()
    status = child.wait()
    if asker_gone.is_set():
        shutil.rmtree(scratch, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1], sys.argv[2:]))
