"""`python -m resources.jars.pin`: after an ivy.xml was edited, write down the sums of what it names now."""

import tempfile
from pathlib import Path

from rich.console import Console

from resources.jars.cache import write_sums
from resources.jars.ivy import retrieve
from resources.jars.sets import BROKER, SPARK


def main() -> None:
    """Fetch both sets afresh and rewrite their sums files; the difference is then reviewed and committed."""
    console = Console(stderr=True)
    for jar_set in (SPARK, BROKER):
        with tempfile.TemporaryDirectory() as work, console.status(f"fetching for {jar_set.purpose}"):
            into = Path(work) / "jars"
            into.mkdir()
            retrieve(jar_set.ivy_file, into, Path(work), lambda _count: None)
            write_sums(into, jar_set.sums_file)
        console.print(f"{jar_set.sums_file.name}: {len(jar_set.sums())} jars pinned")


if __name__ == "__main__":
    main()
