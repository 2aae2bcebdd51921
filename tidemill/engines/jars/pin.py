"""`python -m tidemill.engines.jars.pin`: after an edit of an ivy.xml, write the checksums of the jars that it names."""

import tempfile
from pathlib import Path

from rich.console import Console

from tidemill.engines.jars.cache import write_checksums
from tidemill.engines.jars.ivy import retrieve
from tidemill.engines.jars.sets import BROKER, SPARK


def main() -> None:
    """Fetch both sets and rewrite their checksum files; review and commit the difference."""
    console = Console(stderr=True)
    for jar_set in (SPARK, BROKER):
        with tempfile.TemporaryDirectory() as work, console.status(f"fetching for {jar_set.purpose}"):
            into = Path(work) / "jars"
            into.mkdir()
            retrieve(jar_set.ivy_file, into, Path(work), lambda _count: None)
            write_checksums(into, jar_set.checksum_file)
        console.print(f"{jar_set.checksum_file.name}: {len(jar_set.checksums())} jars pinned")


if __name__ == "__main__":
    main()
