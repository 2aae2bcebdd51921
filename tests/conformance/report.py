"""The conformance table as a page, from the results of the tests: `python -m tests.conformance.report RESULTS`.

It fails where a row has no test, or one that did not pass.
"""

import ast
import re
import sys
import textwrap
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.conformance.rows import ROWS, name_of

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PAGE, GALLERY = ROOT / "docs" / "conformance.md", ROOT / "docs" / "gallery.md"
_HEAD = """# Conformance

Each row is a part of Structured Streaming, as the guides of Spark describe it, with the tests that show it on streams
declared through Tidemill: rows that arrive in several runs are compared with a computation in plain Python over all of
them. Rows with state ran through five runs whose inputs took turns, with a run that was killed with SIGKILL in the
middle of each stream's batch and repeated, and again on a warm server. A row without a test is missing.

{summary}

| id | what | result | tests | engine |
|---|---|---|---|---|
"""
_GALLERY_HEAD = """# Gallery

What a user writes for each row of the [conformance table](conformance.md), as its test has it. `views`, `clicks` and
`buys` are sources with a watermark.
"""


def row_of(test: str) -> str | None:
    """Return the row that a test shows, by its name: the longest id that is a part of it."""
    by_row = [row for row in ROWS if re.search(rf"(?:test_|\[){name_of(row)}(?![a-z0-9])", test)]
    return max(by_row, key=len, default=None)


def results(path: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return the number of tests of each row by result and engine."""
    rows: dict[str, Counter[tuple[str, str]]] = {row: Counter() for row in ROWS}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - our own file
        name = case.get("name", "")
        if (row := row_of(name)) is None:
            continue
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        rows[row][next(iter(kinds), "passed"), "warm" if "warm" in name else "local"] += 1
    return rows


def line(row: str, counts: Counter[tuple[str, str]]) -> str:
    """Return a line of the table."""
    engines = ", ".join(sorted({engine for _, engine in counts}))
    return f"| {row} | {ROWS[row]} | {verdict(counts)} | {counts.total()} | {engines} |"


def verdict(counts: Counter[tuple[str, str]]) -> str:
    """Return the result of a row."""
    if not counts:
        return "**missing**"
    return "passed" if {result for result, _ in counts} == {"passed"} else "**failed**"


def snippets() -> dict[str, list[str]]:
    """Return the streams that the tests declare, by the row in their name."""
    by_row: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and any(
                "stream" in ast.unparse(d) for d in node.decorator_list
            ):
                row = row_of(f"test_{node.name}")
                if row is not None:
                    lines = source.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno]
                    by_row.setdefault(row, []).append(textwrap.dedent("\n".join(lines)))
    return by_row


def main() -> int:
    """Write both pages, and return the exit status."""
    rows = results(Path(sys.argv[1]))
    passed = [row for row, counts in rows.items() if verdict(counts) == "passed"]
    summary = f"{len(passed)} of {len(ROWS)} rows passed."
    lines = (line(row, counts) for row, counts in rows.items())
    PAGE.write_text(_HEAD.format(summary=summary) + "\n".join(lines) + "\n")
    parts = [
        f"\n## {row}\n\n{ROWS[row]}.\n\n"
        + "\n\n".join(f"```python\n{text}\n```" for text in snippets_of_row)
        + "\n"
        for row in ROWS
        if (snippets_of_row := snippets().get(row))
    ]
    GALLERY.write_text(_GALLERY_HEAD + "".join(parts))
    left = [row for row in ROWS if row not in passed]
    print(summary, f"Not passed: {', '.join(left)}." if left else "")  # noqa: T201 - a command
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
