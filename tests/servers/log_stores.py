"""A JVM with Delta's log stores and S3A, and without Spark: what a driver is while it commits."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.servers.object_store import ObjectServer
from tidemill.engines.installed import pyspark_folder
from tidemill.engines.jars import log_store, spark_jars, store_jars
from tidemill.engines.java import require_java

OURS = log_store.CLASS
OF_DELTA = "io.delta.storage.S3SingleDriverLogStore"


class Driver:
    """A JVM that writes to a bucket.

    Attributes:
        gateway: The JVM.
        root: The URI of the bucket.
    """

    def __init__(self, gateway: JavaGateway, server: ObjectServer) -> None:
        self.gateway = gateway
        self.root = f"s3a://{server.bucket}"
        self._confs = {
            "fs.s3a.endpoint": server.endpoint,
            "fs.s3a.endpoint.region": server.region,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": server.access_key,
            "fs.s3a.secret.key": server.secret_key,
        }

    def configuration(self, **confs: str):
        """Return Hadoop's configuration; the names of confs have `_` for each dot."""
        configuration = self.gateway.jvm.org.apache.hadoop.conf.Configuration()
        more = {name.replace("_", "."): value for name, value in confs.items()}
        if more:
            more["fs.s3a.impl.disable.cache"] = "true"
        for name, value in (self._confs | more).items():
            configuration.set(name, value)
        return configuration

    def log_store(self, name: str = OURS, **confs: str) -> "LogStore":
        """Return a log store of a class."""
        return LogStore(self, name, self.configuration(**confs))


class LogStore:
    """A log store, with names below the root of the bucket."""

    def __init__(self, driver: Driver, name: str, configuration) -> None:
        self._jvm, self._root = driver.gateway.jvm, driver.root
        self.configuration = configuration
        self.java = (
            self._jvm.java.lang.Class.forName(name)
            .getConstructors()[0]
            .newInstance(self._arguments(driver.gateway))
        )

    def _arguments(self, gateway: JavaGateway):
        arguments = gateway.new_array(self._jvm.java.lang.Object, 1)
        arguments[0] = self.configuration
        return arguments

    def write(self, name: str, *actions: str, overwrite: bool = False) -> bool:
        """Write a file of the log; return False if there is one that must not be overwritten."""
        lines = self._jvm.java.util.ArrayList()
        for action in actions:
            lines.add(action)
        try:
            self.java.write(self.path(name), lines.iterator(), overwrite, self.configuration)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.nio.file.FileAlreadyExistsException":
                return False
            raise
        return True

    def read(self, name: str) -> list[str]:
        """Return the actions of a file."""
        lines = self.java.read(self.path(name), self.configuration)
        actions = []
        while lines.hasNext():
            actions.append(lines.next())
        lines.close()
        return actions

    def names(self, first: str) -> list[str]:
        """Return the names of the files from one on, in the order of the listing."""
        files = self.java.listFrom(self.path(first), self.configuration)
        names = []
        while files.hasNext():
            names.append(files.next().getPath().getName())
        return names

    def path(self, name: str):
        """Return a path below the root of the bucket."""
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{name}")


@contextmanager
def driver(server: ObjectServer) -> Iterator[Driver]:
    """Start a small JVM, which ends with the block or with this process."""
    (py4j,) = (pyspark_folder() / "jars").glob("py4j-*.jar")
    ours = (str(jar) for jar in (*spark_jars(), *store_jars("s3")))
    port, process = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join([*ours, str(pyspark_folder() / "jars" / "*")]),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
        java_path=str(require_java().path),
        die_on_exit=True,
        redirect_stderr=subprocess.DEVNULL,
        return_proc=True,
    )
    # py4j releases objects from the thread that collects garbage; on a busy machine that was one still in use.
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, enable_memory_management=False))
    try:
        yield Driver(gateway, server)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)
