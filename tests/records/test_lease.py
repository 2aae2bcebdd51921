"""The lease: one writer, whoever else comes, and whoever dies."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from threading import Event, Thread, Timer, current_thread

import pytest

from tests.support.leases import held
from tests.support.raising import raises
from tidemill.errors import LeaseHeldError
from tidemill.records import lease
from tidemill.storage.local_store import LocalStore
from tidemill.storage.memory_store import MemoryStore
from tidemill.storage.store import ChangedError
from tidemill.text.names import StreamName

STREAM = StreamName("shop", "orders")

HOLD = """
import sys
from pathlib import Path
from tidemill.text.names import StreamName
from tidemill.records import lease
from tidemill.storage.local_store import LocalStore
from tests.support.leases import held
held = lease.take(LocalStore(Path(sys.argv[1])), StreamName("shop", "orders"), "first")
attachment = Path(sys.argv[3]) if len(sys.argv) > 3 else None
if len(sys.argv) > 2: held.record_jvm(int(sys.argv[2]), attachment=attachment)
print("held", flush=True)
sys.stdin.read()
"""


def another_process(folder, *more):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def kill(process):
    process.kill()
    process.communicate()


def test_a_held_stream_is_refused_at_once_and_the_holder_is_named(tmp_path):
    holder = another_process(tmp_path)
    before = sorted(tmp_path.iterdir())
    started = time.monotonic()
    with raises("lease-held", "shop/orders", f"run first (process {holder.pid}"):
        lease.take(LocalStore(tmp_path), STREAM, "second")
    assert time.monotonic() - started < 1
    assert sorted(tmp_path.iterdir()) == before
    kill(holder)


def test_a_killed_holder_is_followed_at_once(tmp_path):
    kill(another_process(tmp_path))
    with held(tmp_path, STREAM, "second") as follower:
        assert follower.epoch == 2


def test_a_killed_holder_whose_jvm_lives_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "JVM_GRACE_SECONDS", 0.2)
    jvm = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    kill(another_process(tmp_path, str(jvm.pid)))
    with pytest.raises(LeaseHeldError):
        lease.take(LocalStore(tmp_path), STREAM, "second")
    kill(jvm)
    jvm.wait()
    lease.take(LocalStore(tmp_path), STREAM, "second").release()


def test_a_holder_elsewhere_is_followed_after_its_time_out(tmp_path, monkeypatch):
    elsewhere = replace(lease.this_process("first"), boot_id="another boot", host="far")
    path = tmp_path / "1.json"
    path.write_text(json.dumps(asdict(elsewhere)))
    with raises("lease-held", "on far"):
        lease.take(LocalStore(tmp_path), STREAM, "second")
    # By the clock of the store: that of this host is an hour behind.
    monkeypatch.setattr(lease.time, "time", lambda _now=time.time: _now() - 3600)
    written = path.stat().st_mtime - lease.TIMEOUT_SECONDS - 1
    os.utime(path, (written, written))
    lease.take(LocalStore(tmp_path), STREAM, "second").release()


def test_a_process_id_that_is_used_again_is_not_the_holder(tmp_path):
    reused = replace(lease.this_process("first"), pid_started=1.0)
    (tmp_path / "1.json").write_text(json.dumps(asdict(reused)))
    lease.take(LocalStore(tmp_path), STREAM, "second").release()


def test_a_released_lease_is_free(tmp_path):
    lease.take(LocalStore(tmp_path), STREAM, "first").release()
    assert lease.holder_of(LocalStore(tmp_path)) is None
    with held(tmp_path, STREAM, "second") as follower:
        assert follower.epoch == 2
        assert lease.holder_of(LocalStore(tmp_path)).run_id == "second"


def test_a_holder_that_was_followed_must_not_write(tmp_path):
    held = lease.take(LocalStore(tmp_path), STREAM, "first")
    held.check()
    (tmp_path / "2.json").write_text("{}")
    with raises("lease-lost", "shop/orders"):
        held.check()
    held.release()


def test_of_many_at_once_one_gets_it(tmp_path):
    code = HOLD.replace('print("held", flush=True)\nsys.stdin.read()', 'print("held")')
    code = code.replace("held = ", "import time; held = ") + "\ntime.sleep(1)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(6)
    ]
    outputs = [process.communicate()[0] for process in processes]
    # A later one may follow the first after it has ended; never do two hold one epoch.
    assert outputs.count("held\n") >= 1
    assert len({path.name for path in tmp_path.glob("*.json")}) == 1


def test_a_lake_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with raises("lake-not-writable"):
        lease.take(LocalStore(tmp_path / "file" / "lease"), STREAM, "first")


def test_a_slow_heartbeat_does_not_undo_what_the_run_has_written():
    files = SlowStore()
    taken = lease.take(files, STREAM, "first")
    heartbeat = Thread(target=taken._write, kwargs={"beats": 1}, name="slow")
    heartbeat.start()
    assert files.slow.wait(10)
    taken.record_jvm(os.getpid())
    heartbeat.join()
    assert lease.holder_of(files).jvm_pid == os.getpid()
    taken.release()


class SlowStore:
    """A store in memory, in which the thread `slow` takes a while to write."""

    def __init__(self):
        self.slow, self._files = Event(), MemoryStore()

    def __getattr__(self, name):
        return getattr(self._files, name)

    def replace(self, key, data, *, unchanged=None):
        if current_thread().name == "slow":
            self.slow.set()
            time.sleep(0.2)
        return self._files.replace(key, data, unchanged=unchanged)


def test_a_holder_that_slept_through_two_others_must_not_write(store, monkeypatch):
    sleeper = lease.take(store, STREAM, "first")
    for number, run_id in ((1, "second"), (2, "third")):
        abandon(store, number, monkeypatch)
        lease.take(store, STREAM, run_id).release()

    assert store.names() == ["3.json"]
    with raises("lease-lost"):
        sleeper.check()


def test_a_process_that_stood_still_before_its_file_while_others_came_and_went_is_no_holder(
    store, monkeypatch
):
    lease.take(store, STREAM, "first").release()
    stale, epochs = [lease._epochs(store)], lease._epochs
    lease.take(store, STREAM, "second").release()
    with held(store, STREAM, "third") as third:
        monkeypatch.setattr(lease, "_epochs", lambda files: stale.pop() if stale else epochs(files))
        with raises("lease-held", "run third"):
            lease.take(store, STREAM, "the sleeper")
        third.check()
        assert store.names() == ["3.json"]


def test_a_late_heartbeat_does_not_bring_a_lost_lease_back(store, monkeypatch):
    sleeper = lease.take(store, STREAM, "first")
    abandon(store, 1, monkeypatch)
    with held(store, STREAM, "second"):
        with pytest.raises(ChangedError):
            sleeper._write(beats=1)
        assert store.names() == ["2.json"]


def test_a_holder_that_was_followed_notices_at_its_next_beat(store, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
    first = lease.take(store, STREAM, "first")
    abandon(store, 1, monkeypatch)
    with held(store, STREAM, "second"):
        first._beat.join(timeout=10)
        assert not first._beat.is_alive()
        monkeypatch.setattr(type(store), "read", lambda *_: pytest.fail("it knows already"))
        with raises("lease-lost"):
            first.check()
        monkeypatch.undo()


def test_a_holder_that_beats_is_not_followed(store, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(lease, "TIMEOUT_SECONDS", 2.0)
    with held(store, STREAM, "first"):
        elsewhere = replace(lease.this_process("second"), boot_id="another boot")
        monkeypatch.setattr(lease, "boot_identity", lambda: elsewhere.boot_id)
        for _ in range(5):
            time.sleep(0.5)
            with raises("lease-held", "run first"):
                lease.take(store, STREAM, "second")
        assert store.names() == ["1.json"]
        monkeypatch.undo()


def test_the_check_before_a_write_lists_nothing(monkeypatch):
    files = MemoryStore()
    with held(files, STREAM, "first") as taken:
        monkeypatch.setattr(MemoryStore, "names", lambda *_, **__: pytest.fail("a listing before each write"))
        monkeypatch.setattr(MemoryStore, "list", lambda *_, **__: pytest.fail("a listing before each write"))
        taken.check()
        monkeypatch.undo()


def abandon(files, epoch, monkeypatch):
    """Let a holder look as if it had ended on another machine long ago."""
    monkeypatch.setattr(lease, "TIMEOUT_SECONDS", 0.0)
    holder = json.loads(files.read(f"{epoch}.json"))
    files.replace(f"{epoch}.json", json.dumps(holder | {"boot_id": "another boot"}).encode())


def test_another_process_with_the_pid_of_the_jvm_is_not_the_jvm(tmp_path):
    holder = another_process(tmp_path, str(os.getpid()))
    kill(holder)
    record = json.loads((tmp_path / "1.json").read_text())
    assert record["jvm_pid"] == os.getpid()
    record["jvm_started"] -= 1000
    (tmp_path / "1.json").write_text(json.dumps(record))
    assert lease.holder_of(LocalStore(tmp_path)) is None


def test_a_killed_client_of_a_warm_server_is_followed_when_its_queries_have_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "SERVER_GRACE_SECONDS", 0.2)
    folder, attachment = tmp_path / "lease", tmp_path / "attached"
    attachment.touch()
    holder = another_process(folder, str(os.getpid()), str(attachment))
    with raises("lease-held"):
        lease.take(LocalStore(folder), STREAM, "second")
    kill(holder)
    with raises("lease-held", "tidemill engine stop"):
        lease.take(LocalStore(folder), STREAM, "second")
    monkeypatch.setattr(lease, "SERVER_GRACE_SECONDS", 30.0)
    Timer(0.5, attachment.unlink).start()
    lease.take(LocalStore(folder), STREAM, "second").release()
    assert not attachment.exists()


def test_a_killed_client_of_a_killed_warm_server_is_followed_at_once(tmp_path):
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    attachment = tmp_path / "attached"
    attachment.touch()
    kill(another_process(tmp_path / "lease", str(server.pid), str(attachment)))
    kill(server)
    server.wait()
    lease.take(LocalStore(tmp_path / "lease"), STREAM, "second").release()
