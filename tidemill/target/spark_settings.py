"""Where Spark runs and with which confs, as a target decides it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from tidemill.storage.s3_settings import S3Settings
from tidemill.target.server_home import ServerHome
from tidemill.text.secret import Secret, is_secret, literal_fault

SparkMode = Literal["local", "warm", "connect", "cluster"]
IDLE_TIMEOUT = timedelta(minutes=10)
DERIVED: Mapping[str, bool] = {"derived": True}
"""The metadata of a field that follows from other settings of a target and is not shown."""

# The parameters of a Connect address: sc://host:15002/;token=...;user_id=me
_PARAMETER = re.compile(r"(?<=;)([^=;]+)=([^;]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where Spark runs.

    Attributes:
        mode: `local` (a JVM inside this process), `warm` (a server on this machine that later runs share), `connect`
            (a Spark Connect server elsewhere) or `cluster`. A master that is not `local...` is a cluster.
        master: The master of `local`, `warm` and `cluster`: `local[*]`, `spark://host:7077`, `yarn`, `k8s://...`.
        remote: The server of `connect`: `sc://host:15002`.
        driver_memory: Memory of the driver's JVM; None: 1g on this machine, and otherwise what the cluster's Spark has.
        shuffle_partitions: Partitions of new stateful queries; None: one per core, 2 to 8, on this machine, and
            otherwise what the cluster's Spark has.
        parallel: How many streams of a run are side by side; None: one per core on this machine, at most 4.
        idle_timeout: How long the server of `warm` waits for the next run; None: 10 minutes.
        server: Where the server of `warm` is; None in all other modes.
        conf: Further Spark confs of the whole application.
        store: How addresses on S3 are reached, for which Spark has jars and confs of their own; None where a target has
            none.
        has_lake_on_store: Whether the lake, and with it the checkpoints, are there.
    """

    mode: SparkMode = "local"
    master: str = "local[*]"
    remote: str | Secret | None = None
    driver_memory: str | None = None
    shuffle_partitions: int | None = None
    parallel: int | None = None
    idle_timeout: timedelta | None = None
    server: ServerHome | None = None
    conf: Mapping[str, str | Secret] = field(default_factory=dict)
    store: S3Settings | None = field(default=None, metadata=DERIVED)
    has_lake_on_store: bool = field(default=False, metadata=DERIVED)

    @property
    def is_on_this_machine(self) -> bool:
        """Whether all of Spark runs on this machine."""
        return self.mode in ("local", "warm") and mode_of(self.master) == "local"


def mode_of(master: str | None) -> SparkMode:
    """Return the mode that a master has where none is given."""
    return "local" if master is None or master.startswith("local") else "cluster"


def remote_fault(remote: str) -> str | None:
    """Return why an address cannot be the server of `connect`; None if it can. It does not repeat the address."""
    for name, value in _PARAMETER.findall(remote):
        if is_secret(name) and literal_fault(name, value):
            return f"has a {name} in it; write {name}=${{SPARK_{name.upper()}}} and set the variable"
    return None
