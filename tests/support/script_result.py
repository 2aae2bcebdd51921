"""The result of a script that runs in a process of its own and prints it as `RESULT <JSON>`."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def script_result(script, *arguments, cwd=None, **environment):
    """Runs a script with the repository importable; without a result, its errors are shown."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr
    return json.loads(lines[0].removeprefix("RESULT "))
