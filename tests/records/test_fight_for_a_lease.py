"""Processes that take each other for those of other hosts fight for a lease: there is never more than one holder."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import lakes
from tidemill.storage.local_store import LocalStore
from tidemill.storage.store import Store

ROOT = Path(__file__).parents[2]
FIGHTERS, ROUNDS = 2, 200
FIGHT = """
import random, sys, time
from pathlib import Path
from tests.support import lakes
from tidemill.errors import LeaseHeldError
from tidemill.records import lease
from tidemill.storage.local_store import LocalStore
from tidemill.text.names import StreamName

_, name, address, rounds = sys.argv
store = lakes.bucket().below(address) if "/" not in address else LocalStore(Path(address))
lease.boot_identity = lambda: f"the boot of {name}"
stream, pick = StreamName("shop", "orders"), random.Random(name)
won = 0
while won < int(rounds):
    try:
        held = lease.take(store.below("lease"), stream, name)
    except LeaseHeldError:
        time.sleep(pick.random() / 200)
        continue
    held.check()
    store.create("held", name.encode())  # fails where another one is here as well
    time.sleep(pick.random() / 500)
    held.check()
    store.delete(["held"])
    held.release()
    won += 1
print(won)
"""


def fight(store: Store, address: str, rounds: int) -> None:
    """Let processes take the lease so often each; one fails where it holds the lease beside another one."""
    command = [sys.executable, "-c", FIGHT]
    processes = [
        subprocess.Popen(
            [*command, f"fighter {number}", address, str(rounds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(FIGHTERS)
    ]
    ended = [process.communicate(timeout=600) for process in processes]
    assert [out.strip() for out, _ in ended] == [str(rounds)] * FIGHTERS, [err for _, err in ended]
    assert store.names() == ["lease"]


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("rounds", [10, pytest.param(ROUNDS, marks=pytest.mark.campaign)])
def test_there_is_one_holder_at_a_time_on_s3(bucket, tmp_path, rounds):
    assert bucket == lakes.bucket()
    fight(bucket.below(f"{tmp_path.name}-{rounds}"), f"{tmp_path.name}-{rounds}", rounds)


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("rounds", [10, pytest.param(ROUNDS, marks=pytest.mark.campaign)])
def test_there_is_one_holder_at_a_time_in_a_folder(tmp_path, rounds):
    fight(LocalStore(tmp_path), str(tmp_path), rounds)
