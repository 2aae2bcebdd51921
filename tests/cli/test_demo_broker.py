"""`tidemill demo broker`, for real: it prints its address, serves, and ends with Ctrl-C."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.kafka
COMMAND = [str(Path(sys.executable).with_name("tidemill")), "demo", "broker"]


def stopped(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt the command; its output from now on, once all its processes have ended."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, err = process.stdout.read(), process.stderr.read()
    assert not psutil.wait_procs(children, timeout=30)[1]
    return out, err


def test_it_prints_its_address_for_programs_and_stays_until_it_is_interrupted():
    with subprocess.Popen(
        [*COMMAND, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        document = json.loads(process.stdout.readline())
        topics = AdminClient({"bootstrap.servers": document["bootstrap"]}).list_topics(timeout=30).topics

        out, err = stopped(process)

    assert document.keys() == {"schema_version", "bootstrap"}
    assert document["schema_version"] == 1
    assert topics is not None
    assert (process.returncode, out, err) == (0, "", "")


def test_it_tells_a_person_how_to_use_it_and_reports_a_broker_that_ends():
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        bootstrap = first.split(" listens on ")[1].split()[0]
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()

        out, err = process.stdout.read(), process.stderr.read()

    assert f"tidemill run ads --kafka {bootstrap} --lake" in out
    assert process.returncode == 1
    assert "The development Kafka broker ended" in err
    assert "Traceback" not in err
