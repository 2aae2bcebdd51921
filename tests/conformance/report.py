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

from tests.conformance.gallery import ERRORS
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

What a user writes for each row of the [conformance table](conformance.md): a stream, a part of its declaration, a
command, or settings. The row's test runs it as it stands here. The streams need these definitions:

```python
{setup}
```
"""
_SETUP = """
import json
from pathlib import Path

from tidemill import *
from tidemill import functions as F


shop, air = Pipeline("shop"), Pipeline("air")
folder, archive, path, table, written = "in", "archive", "log.jsonl", "lake/events", "lake/written"
topic, format, ROW = "events", "parquet", "id STRING, n BIGINT"
feed = changes = Feed("changes", format=Json("id STRING, name STRING, op STRING, seq BIGINT"))
files = names = events = FileSource(path="in", format="json", schema="user STRING, name STRING, n BIGINT")
views = FileSource(path="views", format="json", schema="view_id STRING, user STRING, ad STRING, at TIMESTAMP")
views = views.with_watermark("at", "60 minutes")
clicks = FileSource(path="clicks", format="json", schema="click_id STRING, viewed STRING, clicked_at TIMESTAMP")
clicks = clicks.with_watermark("clicked_at", "60 minutes")
buys = FileSource(path="buys", format="json", schema="buyer STRING, amount BIGINT, bought_at TIMESTAMP")
buys = buys.with_watermark("bought_at", "60 minutes")
visits = FileSource(path="visits", format="json", schema="visit_id STRING, at TIMESTAMP")
SOON = "viewed = view_id AND clicked_at BETWEEN at AND at + INTERVAL 20 MINUTES"


def checked(rows, batch):
    print(batch.batch_id, rows.count())


pools = BatchSink(checked, name="pools")
""".strip()


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
    """Return what a user writes, as Markdown, by row: the streams of the tests, and the functions of gallery.py."""
    by_row: dict[str, list[str]] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and (row := row_of(f"test_{node.name}")) is not None:
                if path.stem == "gallery":
                    by_row.setdefault(row, []).append(_body(node, source))
                elif any("stream" in ast.unparse(decorator) for decorator in node.decorator_list):
                    lines = source.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno]
                    by_row.setdefault(row, []).append(_code(node.name, "\n".join(lines)))
    return by_row


def _body(node: ast.FunctionDef, source: str) -> str:
    """Return the docstring of a function and what follows it, without the word `return`."""
    docstring, *_, last = node.body
    assert isinstance(last, ast.Return)
    if isinstance(last.value, ast.Constant):
        string = str(last.value.value)
        language = {"tidemill": "sh", "SELECT": "sql"}.get(string.split(maxsplit=1)[0], "toml")
        code = f"```{language}\n{string}\n```"
    else:
        body = textwrap.dedent("\n".join(source.splitlines()[docstring.end_lineno : node.end_lineno]))
        code = _code(node.name, re.sub("^return ", "", body.strip("\n"), flags=re.MULTILINE))
    return f"{ast.get_docstring(node)}\n\n{code}"


def _code(name: str, text: str) -> str:
    """Return Python as a block, with the error below it where Tidemill refuses it.

    The tests of the pages run the blocks that begin with `python`, so one that is refused does not.
    """
    error = ERRORS.get(name)
    language = "python" if error is None else "py"
    return f"```{language}\n{textwrap.dedent(text)}\n```" + (f"\n\n```text\n{error}\n```" if error else "")


def gallery() -> str:
    """Return the page of all snippets."""
    written = snippets()
    parts = (
        f"\n## {row}\n\n{ROWS[row]}.\n\n" + "\n\n".join(written.get(row, ["**missing**"])) + "\n"
        for row in ROWS
    )
    return _GALLERY_HEAD.format(setup=_SETUP) + "".join(parts)


def main() -> int:
    """Write both pages, and return the exit status."""
    rows = results(Path(sys.argv[1]))
    passed = [row for row, counts in rows.items() if verdict(counts) == "passed"]
    summary = f"{len(passed)} of {len(ROWS)} rows passed."
    lines = (line(row, counts) for row, counts in rows.items())
    PAGE.write_text(_HEAD.format(summary=summary) + "\n".join(lines) + "\n")
    GALLERY.write_text(gallery())
    left = [row for row in ROWS if row not in passed]
    print(summary, f"Not passed: {', '.join(left)}." if left else "")  # noqa: T201 - a command
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
