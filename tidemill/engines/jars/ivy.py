"""Apache Ivy, from the jar that every pyspark contains: it fetches the jars that the JVM needs.

Ivy has the public repository as its default; TIDEMILL_IVY_SETTINGS names a standard ivysettings.xml for users
behind a mirror. No repository is named in our files.
"""

import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tidemill.engines.installed import pyspark_folder
from tidemill.engines.java import require_java
from tidemill.errors import ConfigurationError, TransientError

CONNECT_SECONDS = 15
"""Ivy waits without end by default; a mirror that needs longer to accept a connection is down."""
READ_SECONDS = 60
TOTAL_SECONDS = 900
"""Enough for 66 MB over a slow line; a fetch that takes longer never ends."""

REASONS = (
    r"(Host \S+ not found)",
    r"(java(?:x)?\.[\w.]*(?:Exception|Error)[^)]*)",
    r"unresolved dependency: (.*)",
    r"(.*not found.*)",
)
"""Patterns of Ivy's output that give the reason, the nearest to the cause first."""


def retrieve(ivy_file: Path, into: Path, scratch: Path, on_jar: Callable[[int], None]) -> None:
    """Download the jars that `ivy_file` names into `into`, as `<artifact>-<revision>.jar`.

    Args:
        ivy_file: A standard ivy.xml.
        into: An existing folder inside `scratch`.
        scratch: The folder of Ivy's caches; the caller removes it, so that a bad download is never reused.
        on_jar: Called with the number of jars so far, as each arrives.

    Raises:
        ConfigurationError: There is no Java, no Ivy, or no file of settings.
        TransientError: Ivy could not fetch all jars.
    """
    command = [
        str(require_java().path),
        "-Xmx256m",
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_SECONDS * 1000}",
        f"-Dsun.net.client.defaultReadTimeout={READ_SECONDS * 1000}",
        f"-Divy.default.ivy.user.dir={scratch / 'ivy-home'}",
        *proxy_options(urllib.request.getproxies()),
        *("-cp", str(ivy_jar()), "org.apache.ivy.Main"),
        *("-ivy", str(ivy_file), "-cache", str(scratch / "ivy-cache")),
        *_settings(os.environ),
        # Relative to the working directory: brackets in a path would be read as part of the pattern.
        *("-retrieve", f"{into.relative_to(scratch)}/[artifact]-[revision].[ext]"),
        *("-types", "jar", "bundle"),  # a bundle is a jar with OSGi headers (snappy-java)
    ]
    lines: list[str] = []
    arrived = 0
    with subprocess.Popen(
        command,
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline = threading.Timer(TOTAL_SECONDS, process.kill)
        deadline.start()
        try:
            for line in process.stdout or ():
                lines.append(line)
                if "[SUCCESSFUL ]" in line and ".jar" in line:
                    arrived += 1
                    on_jar(arrived)
            process.wait()
        finally:
            deadline.cancel()
            process.kill()  # only an interrupted fetch still runs here
    if process.returncode != 0:
        raise TransientError(
            f"Ivy could not fetch the jars of {ivy_file.name}: {reason(lines)}.",
            lost="The cache is unchanged.",
            fix="Check the network or the proxy (HTTPS_PROXY); behind a mirror, set TIDEMILL_IVY_SETTINGS to an "
            "ivysettings.xml. Then run the command again.",
            code="jars-not-fetched",
        )


def ivy_jar() -> Path:
    """Return Ivy's jar in the installed pyspark, which is located and not imported.

    Raises:
        ConfigurationError: pyspark is not installed.
    """
    for jar in (pyspark_folder() / "jars").glob("ivy-*.jar"):
        return jar
    raise ConfigurationError(
        "pyspark's jars are not installed here: no jars/ivy-*.jar.",
        fix="Run: pip install --force-reinstall pyspark",
        code="pyspark-missing",
    )


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """Return the user's proxies as Java's system properties; Java does not read HTTPS_PROXY by itself.

    Args:
        proxies: As `urllib.request.getproxies()` gives them, from the environment or the system's settings.
    """
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            if proxy.port:
                options.append(f"-D{scheme}.proxyPort={proxy.port}")
    direct = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and direct:
        hosts = (f"*{host}" if host.startswith(".") else host for host in direct)
        options.append("-Dhttp.nonProxyHosts=" + "|".join(hosts))
    return options


def reason(lines: Iterable[str]) -> str:
    """Return the part of Ivy's output that gives the reason."""
    output = [line.strip() for line in lines]
    for pattern in REASONS:
        for line in output:
            if match := re.search(pattern, line):
                return match[1].rstrip(" .")
    return next((line for line in reversed(output) if line), "it ended without any output").rstrip(".")


def _settings(environ: Mapping[str, str]) -> list[str]:
    chosen = environ.get("TIDEMILL_IVY_SETTINGS")
    if not chosen:
        return []
    path = Path(chosen).expanduser().absolute()
    if not path.is_file():
        raise ConfigurationError(
            f"TIDEMILL_IVY_SETTINGS names {path}, which is not a file.",
            fix="Correct or unset the variable.",
            code="ivy-settings-missing",
        )
    return ["-settings", str(path)]
