"""The commands that replay, killed with SIGKILL after each of their steps, and then called again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.operations.test_backfill import arrive, expected, shop
from tests.support.small import small_target
from tidemill.operations.registry import OPERATIONS
from tidemill.records.stream_records import StreamRecords

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "rewind": ("--to-batch", "1"),
    "rebuild": (),
    "backfill": ("--from", "2026-01-02", "--to", "2026-01-03"),
    "reset": ("--from", "earliest", "--table", "replace"),
}
POINTS = [(command, step) for command in COMMANDS for step in ("begin", *OPERATIONS[command].steps)]


class Command:
    """A command in a process group of its own, so that the process and its JVM die in the same instant."""

    def __init__(self, folder, *arguments, pause=""):
        self.marker, self.log = folder / "reached", folder / "command.log"
        self.marker.unlink(missing_ok=True)
        environment = {
            "TIDEMILL_CONFIG": str(folder / "tidemill.toml"),
            "TIDEMILL_PAUSE_AT": pause,
            "TIDEMILL_PAUSE_FILE": str(self.marker),
            "PYTHONPATH": str(ROOT),
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from tidemill.cli import main; main()", *arguments],
                env=os.environ | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_at_the_point(self):
        """Kill when the command waits at its point."""
        deadline = time.monotonic() + 300
        try:
            while not self.marker.exists():
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.01)
        finally:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def succeed(self):
        """Wait until the command ends, and check that it succeeded."""
        assert self.process.wait(300) == 0, self.log.read_text()


@pytest.mark.parametrize(("command", "step"), POINTS)
def test_a_killed_command_is_finished_by_the_same_command(scratch, tmp_path, command, step):
    (tmp_path / "killed_shop.py").write_text(
        "from tests.operations.test_backfill import shop as declared\nshop = declared()\n"
    )
    (tmp_path / "tidemill.toml").write_text(small_target("killed_shop:shop"))
    orders = shop()["orders"]
    for day in range(3):
        arrive(scratch, day)
        scratch.run(orders)
    arguments = (command, "shop/orders", *COMMANDS[command], "--yes")
    Command(tmp_path, *arguments, pause=f"shop/orders:{command}-{step}").kill_at_the_point()
    arrive(scratch, 3)
    Command(tmp_path, *arguments).succeed()
    Command(tmp_path, "run", "shop/orders").succeed()
    assert scratch.rows(orders, "id", "amount") == expected(range(4))[0]
    records = StreamRecords(scratch.lake, orders.name)
    assert records.operation() is None
    assert [operation.kind for operation in records.operations()] == [command]
    assert scratch.checkpoint(orders.name, 1).exists(), "the old generation stays until it is pruned"
    Command(tmp_path, "check", "shop/orders").succeed()
