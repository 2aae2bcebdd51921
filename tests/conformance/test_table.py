"""The table itself: every row is on its page, and a row that is missing or failed makes the report fail."""

import re
import sys

import pytest

from tests.conformance import gallery, report
from tests.conformance.rows import ROWS


def results_of(tmp_path, *cases):
    path = tmp_path / "results.xml"
    path.write_text(
        "<testsuites>"
        + "".join(f'<testcase name="{name}">{inner}</testcase>' for name, inner in cases)
        + "</testsuites>"
    )
    return path


@pytest.mark.parametrize(
    ("test", "row"),
    [
        ("test_row[win_tumbling-on_a_warm_server]", "WIN-TUMBLING"),
        ("test_row[dedup_key_time-killed_and_repeated]", "DEDUP-KEY-TIME"),
        ("test_row[op_agg_complete-killed_and_repeated]", "OP-AGG"),
        ("test_src_rate_mb", "SRC-RATE-MB"),
        ("test_src_file_rate", "SRC-FILE-RATE"),
        ("test_several_things", None),
    ],
)
def test_a_test_names_its_row(test, row):
    assert report.row_of(test) == row


def test_a_row_without_a_passing_test_makes_the_report_fail(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(report, "GALLERY", tmp_path / "gallery.md")
    every = [(f"test_{report.name_of(row)}", "") for row in ROWS]
    for cases, status in ((every, 0), (every[1:], 1), ([(every[0][0], "<skipped/>"), *every[1:]], 1)):
        monkeypatch.setattr(sys, "argv", ["report", str(results_of(tmp_path, *cases))])
        assert report.main() == status
    assert "SRC-FILE-FORMATS" in capsys.readouterr().out


def test_each_row_shows_what_a_user_writes():
    assert [row for row in ROWS if row not in report.snippets()] == []


def test_the_code_of_the_gallery_runs():
    blocks = re.findall(r"^```python\n(.*?)\n```$", report.gallery(), re.MULTILINE | re.DOTALL)
    exec(compile("\n\n".join(blocks), "gallery.md", "exec", dont_inherit=True), {"__name__": "gallery"})  # noqa: S102


def test_the_gallery_shows_each_error_below_its_declaration():
    page = report.gallery()
    assert [
        name for name, error in gallery.ERRORS.items() if f"```\n\n```text\n{error}\n```" not in page
    ] == []
