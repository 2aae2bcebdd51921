"""A Spark standalone cluster on loopback, from the pyspark package: a master, two workers, executors of their own."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from tests.servers.connect import HOME
from tests.support.waiting import free_port, listens, wait_for
from tidemill.engines.dev import supervised

if TYPE_CHECKING:
    import subprocess

READY_SECONDS = 120
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Standalone:
    """A master and its workers, for the length of a `with` block.

    Args:
        folder: An empty folder for logs and the workers' folders.
        workers: The number of workers.
        cores: The cores that each of them gives to executors.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1) -> None:
        self.folder, self._count, self._cores = folder, workers, cores
        self.port = free_port()
        self.address = f"spark://127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._start("master", "master.Master", "--port", str(self.port))
        wait_for(lambda: listens(self.port), READY_SECONDS, self.log("master"))
        for number in range(self._count):
            self.start_worker(number)
        return self

    def __exit__(self, *_error: object) -> None:
        for process in reversed(self._processes.values()):
            supervised.stop(process)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start_worker(self, number: int) -> None:
        name = f"worker-{number}"
        folder = self.folder / name
        resources = ["--cores", str(self._cores), "--memory", f"{2 * self._cores}g"]
        flags = [*resources, "--work-dir", str(folder), "--port", "0"]
        self._start(name, "worker.Worker", *flags, self.address)
        wait_for(
            lambda: "registered with master" in self.log(name).read_text(), READY_SECONDS, self.log(name)
        )

    def stop_worker(self, number: int) -> None:
        """Stop a worker, and with it its executors."""
        name = f"worker-{number}"
        supervised.stop(self._processes.pop(name))
        self.log(name).unlink()

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors of this cluster."""
        executors = []
        for process in psutil.process_iter():
            try:
                if _EXECUTOR in process.cmdline() and Path(process.cwd()).is_relative_to(self.folder):
                    executors.append(process)
            except psutil.Error:  # it has just ended
                continue
        return executors

    def kill_an_executor(self) -> None:
        executor = wait_for(self.executors, READY_SECONDS)[0]
        executor.send_signal(signal.SIGKILL)
        executor.wait(30)

    def _start(self, name: str, daemon: str, *arguments: str) -> None:
        scratch = self.folder / f"{name}-scratch"
        scratch.mkdir(exist_ok=True)
        environment = {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",  # also of the web interfaces, which cannot be turned off
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        os.environ.update(environment)
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
        self._processes[name] = supervised.start(command, scratch=scratch, log=self.log(name))
