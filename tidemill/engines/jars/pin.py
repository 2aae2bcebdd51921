"""`python -m tidemill.engines.jars.pin [SET...]`: after an edit of an ivy.xml, write the checksums of its jars.

A set is named as its files are: `s3` is s3.ivy.xml. Without arguments all sets are pinned.
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tidemill.engines.jars.cache import write_checksums
from tidemill.engines.jars.ivy import retrieve
from tidemill.engines.jars.sets import SETS


def main() -> None:
    """Fetch the sets and rewrite their checksum files; review and commit the difference."""
    console = Console(stderr=True)
    names = sys.argv[1:] or list(SETS)
    for jar_set in (SETS[name] for name in names):
        with tempfile.TemporaryDirectory() as work, console.status(f"fetching for {jar_set.purpose}"):
            into = Path(work) / "jars"
            into.mkdir()
            retrieve(jar_set.ivy_file, into, Path(work), lambda _count: None)
            write_checksums(into, jar_set.checksum_file)
        console.print(f"{jar_set.checksum_file.name}: {len(jar_set.checksums())} jars pinned")


if __name__ == "__main__":
    main()
