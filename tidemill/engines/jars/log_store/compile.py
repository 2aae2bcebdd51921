"""`python -m tidemill.engines.jars.log_store.compile`: after an edit of the source, write the jar. Needs a JDK 17.

Equal sources give equal bytes: the entries have a fixed order and time, and they are stored, not deflated, because the
libraries of zlib differ. Compilers differ as well, so the manifest names the major version of the one that was used.
"""

import re
import subprocess
import tempfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from rich.console import Console

from tidemill.engines.installed import pyspark_folder
from tidemill.engines.jars.cache import jars_of
from tidemill.engines.jars.log_store import JAR, SOURCE
from tidemill.engines.jars.sets import S3, SPARK

RELEASE = 17
"""The oldest Java that Spark runs on."""
MANIFEST = "META-INF/MANIFEST.MF"


def compiler_version(javac: Path) -> int:
    """Return the major version of a Java compiler."""
    shown = subprocess.run([str(javac), "-version"], capture_output=True, text=True, check=True)
    version = re.match(r"javac (\d+)", shown.stdout)
    if version is None:
        raise ValueError(f"{javac} is not a Java compiler: {shown.stdout!r}")
    return int(version[1])


def compile_jar(javac: Path) -> bytes:
    """Return the content of the jar, compiled from the source against the pinned jars.

    Raises:
        subprocess.CalledProcessError: The source does not compile; the compiler has printed the reason.
    """
    hadoop = (pyspark_folder() / "jars").glob("hadoop-client-*.jar")
    class_path = ":".join(str(jar) for jar in (*sorted(hadoop), *jars_of(SPARK), *jars_of(S3)))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--release", str(RELEASE), "-g:source,lines", "-proc:none", "-implicit:none", "-nowarn"]
        subprocess.run([str(javac), *options, "-cp", class_path, "-d", folder, str(SOURCE)], check=True)
        classes = sorted(Path(folder).rglob("*.class"))
        entries = {path.relative_to(folder).as_posix(): path.read_bytes() for path in classes}
    version = compiler_version(javac)
    manifest = f"Manifest-Version: 1.0\r\nBuild-Jdk-Spec: {version}\r\n\r\n"
    jar = BytesIO()
    with ZipFile(jar, "w") as archive:
        for name, content in ((MANIFEST, manifest.encode()), *entries.items()):
            entry = ZipInfo(name)  # of 1980-01-01, and not compressed
            entry.create_system = 3  # Unix, also on Windows
            archive.writestr(entry, content)
    return jar.getvalue()


def main() -> None:
    """Write the jar next to its source."""
    from tidemill.engines.java import require_java

    javac = require_java().path.resolve().with_name("javac")
    JAR.write_bytes(compile_jar(javac))
    Console(stderr=True).print(f"{JAR.name}: {JAR.stat().st_size} bytes, by Java {compiler_version(javac)}")


if __name__ == "__main__":
    main()
