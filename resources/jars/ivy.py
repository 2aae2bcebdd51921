"""Apache Ivy, from the jar that every pyspark carries: the JVM's own tool to fetch what the JVM needs.

It knows the public repository by itself; TIDEMILL_IVY_SETTINGS names a standard ivysettings.xml for those
who must go through a mirror. No repository is named in our files.
"""

import importlib.util
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.streaming.errors import ConfigurationError, TransientError
from resources.engine.java import require_java

CONNECT_SECONDS = 15
"""Ivy waits without end by default; a mirror that needs longer to accept a connection is down."""
READ_SECONDS = 60
TOTAL_SECONDS = 900
"""66 MB over a slow line, with room; a fetch that hangs longer than this never ends."""

REASONS = (
    r"(Host \S+ not found)",
    r"(java(?:x)?\.[\w.]*(?:Exception|Error)[^)]*)",
    r"unresolved dependency: (.*)",
    r"(.*not found.*)",
)
"""What says why, the nearest to the cause first."""


def retrieve(ivy_file: Path, into: Path, scratch: Path, on_jar: Callable[[int], None]) -> None:
    """Put the jars that `ivy_file` names into `into`, as `<artifact>-<revision>.jar`.

    Args:
        ivy_file: A standard ivy.xml.
        into: An existing folder inside `scratch`.
        scratch: Ivy's caches go here; whoever calls removes it, so that a bad download is never reused.
        on_jar: Called with the number of jars so far, as each arrives.

    Raises:
        ConfigurationError: No Java, no Ivy, or settings that are not there.
        TransientError: Ivy could not fetch them all.
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
            f"Ivy could not fetch what {ivy_file.name} names: {reason(lines)}.",
            lost="The cache is as it was.",
            fix="Check the network or the proxy (HTTPS_PROXY); behind a mirror, let TIDEMILL_IVY_SETTINGS "
            "name an ivysettings.xml. Then run it again.",
        )


def ivy_jar() -> Path:
    """Ivy's jar inside the installed pyspark, which is located and not imported."""
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for jar in Path(folder, "jars").glob("ivy-*.jar"):
            return jar
    raise ConfigurationError(
        "pyspark's jars are not installed here: no jars/ivy-*.jar.", fix="Run `make venv`."
    )


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """The user's proxies as Java's system properties; Java does not read HTTPS_PROXY by itself.

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
    """The part of Ivy's output that says why."""
    texts = [line.strip() for line in lines]
    for pattern in REASONS:
        for text in texts:
            if found := re.search(pattern, text):
                return found[1].rstrip(" .")
    return next((text for text in reversed(texts) if text), "it ended without a word").rstrip(".")


def _settings(environ: Mapping[str, str]) -> list[str]:
    chosen = environ.get("TIDEMILL_IVY_SETTINGS")
    if not chosen:
        return []
    path = Path(chosen).expanduser().absolute()
    if not path.is_file():
        raise ConfigurationError(f"TIDEMILL_IVY_SETTINGS names {path}, which is not a file.")
    return ["-settings", str(path)]
