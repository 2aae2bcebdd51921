"""The development broker is a real one, and it never outlives whoever started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.raising import raises
from tidemill.engines.dev import broker as broker_module
from tidemill.engines.dev import supervised
from tidemill.engines.dev.broker import Broker, Credentials, Ports, server_properties


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def end_of(broker: Broker, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1]
    finally:
        consumer.close()


def admin(bootstrap: str, **more: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **more})


@pytest.mark.kafka
def test_a_broker_serves_topics_and_credentials_and_leaves_nothing_behind():
    with Broker(Credentials("alice", "right-one")) as broker:
        scratch = broker._scratch
        with pytest.raises(KafkaException, match="UNKNOWN_"):
            end_of(broker, "never-created")
        broker.create_topic("events", partitions=4)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            # older than any default retention would keep
            producer.produce("events", str(number), partition=number % 4, timestamp=1_000_000_000_000)
        assert producer.flush(30) == 0
        assert [end_of(broker, "events", partition) for partition in range(4)] == [25, 25, 25, 25]

        with pytest.raises(KafkaException, match="already exists"):
            broker.create_topic("events")

        sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        right = admin(broker.sasl_bootstrap, **sasl, **{"sasl.password": "right-one"})
        assert "events" in right.list_topics(timeout=10).topics
        wrong = admin(broker.sasl_bootstrap, **sasl, **{"sasl.password": "wrong-one"})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)
    assert scratch is not None
    assert not scratch.exists()


@pytest.mark.campaign
@pytest.mark.kafka
def test_a_taken_port_is_given_up_for_another(monkeypatch):
    free = Ports.free
    with Broker() as first:
        taken = int(first.bootstrap.rpartition(":")[2])
        offered = iter([replace(free(), clients=taken)])
        monkeypatch.setattr(Ports, "free", lambda: next(offered, None) or free())

        with Broker() as second:
            assert list(offered) == []
            assert second.bootstrap != first.bootstrap


def test_a_broker_that_does_not_start_says_what_it_said(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho x >> starts\necho 'ERROR: the disk is on fire'\nexit 3\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(broker_module, "broker_jars", list)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with raises("broker-not-ready", "exit status 3", "the disk is on fire"):
        Broker().__enter__()
    assert not list(tmp_path.glob("tidemill-broker-*"))
    assert len((tmp_path / "starts").read_text().split()) == broker_module.ATTEMPTS


def test_asking_for_an_address_needs_a_started_broker():
    with raises("broker-not-started"):
        _ = Broker().bootstrap
    with raises("broker-without-credentials"):
        _ = Broker().sasl_bootstrap


@pytest.mark.parametrize("bad", ['a"b', "", "a b", "x;y", "ä"])
def test_credentials_cannot_break_out_of_the_configuration(bad):
    with raises("argument-invalid"):
        Credentials("alice", bad)
    with raises("argument-invalid"):
        Credentials(bad, "secret")


def test_a_topic_that_the_broker_never_lists_is_an_error(monkeypatch):
    class Forgetful:
        def __init__(self, settings):
            assert settings == {"bootstrap.servers": "127.0.0.1:1"}

        def create_topics(self, topics):
            return {topic.topic: SimpleNamespace(result=lambda: None) for topic in topics}

        def list_topics(self, **_):
            return SimpleNamespace(topics={"another": None})

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", Forgetful)
    monkeypatch.setattr(broker_module, "READY_SECONDS", 0.1)
    monkeypatch.setattr(Broker, "bootstrap", "127.0.0.1:1")
    with raises("broker-topic-not-listed", "'events'") as raised:
        Broker().create_topic("events")
    assert raised.value.transient
    Broker().create_topic("another")


def test_every_listener_is_on_loopback():
    text = server_properties(Ports(1, 2, 3), Path("/data"), Credentials("alice", "secret"))
    settings = dict(line.split("=", 1) for line in text.splitlines())

    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2,SASL://127.0.0.1:3"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,SASL://127.0.0.1:3"
    assert 'user_alice="secret";' in settings["listener.name.sasl.plain.sasl.jaas.config"]
    assert "SASL" not in server_properties(Ports(1, 2, 3), Path("/data"), None)


ASKER = """
import sys, time
from pathlib import Path
from tidemill.engines.dev import supervised
scratch = Path(sys.argv[1])
command = ["/bin/sh", "-c", f"echo $$ > {scratch}.pid; exec sleep 600"]
supervisor = supervised.start(command, scratch=scratch, log=scratch / "log")
print(supervisor.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_and_its_folder_go_when_the_asking_process_dies(tmp_path, end):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    pid_file = tmp_path / "scratch.pid"
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(scratch)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(supervised.__file__).parents[3])},
    )
    with asker:
        supervisor = psutil.Process(int(asker.stdout.readline()))
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
        command = psutil.Process(int(pid_file.read_text()))
        assert command.is_running()

        asker.send_signal(end)

    wait_until(lambda: not command.is_running())
    wait_until(lambda: not supervisor.is_running())
    assert not scratch.exists()


def test_a_command_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = Path(supervised.__file__).read_text().replace("GRACE_SECONDS = 10", "GRACE_SECONDS = 0.2")
    impatient = tmp_path / "impatient.py"
    impatient.write_text(source)
    monkeypatch.setattr(supervised, "__file__", str(impatient))
    pid_file = tmp_path / "pid"
    stubborn = f"trap '' TERM; echo $$ > {pid_file}; exec sleep 600"  # an ignored signal stays so after exec

    supervisor = supervised.start(["/bin/sh", "-c", stubborn], scratch=scratch, log=scratch / "log")
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    command = psutil.Process(int(pid_file.read_text()))
    supervised.stop(supervisor)

    assert not command.is_running()
    assert not scratch.exists()


def test_the_supervisor_ends_with_the_commands_own_status(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    supervisor = supervised.start(["/bin/sh", "-c", "echo why; exit 7"], scratch=scratch, log=scratch / "log")

    assert supervisor.wait(30) == 7
    supervised.stop(supervisor)
    assert (scratch / "log").read_text() == "why\n"
