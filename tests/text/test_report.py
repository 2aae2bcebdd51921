"""A report: one value, rendered as a table and as JSON."""

import json

import pytest

from tidemill.cli.shared.output import print_report
from tidemill.text.report import Column, Report, rows_of

ITEMS = [
    {
        "stream": "shop/orders",
        "parts": [{"kind": "table", "bytes": 1_500_000}, {"kind": "[copies]", "bytes": 0}],
    },
    {"stream": "shop/unique", "parts": []},
]
COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Kind", "kind", styles={"table": "red"}),
    Column("Bytes", "bytes", right=True),
)


def printed(capsys, report, *, as_json=False):
    print_report(report, as_json=as_json, target="dev")
    return capsys.readouterr().out


def test_json_has_the_items_and_nothing_of_the_table(capsys):
    report = Report(items=ITEMS, head={"changed": True}, columns=COLUMNS, rows=[], lines=["1 stream."])
    assert json.loads(printed(capsys, report, as_json=True)) == {
        "schema_version": 1,
        "target": "dev",
        "changed": True,
        "streams": ITEMS,
    }


def test_a_report_of_one_object_is_that_object(capsys):
    report = Report(items=[{"running": True}], key="", lines=["It runs."])
    assert json.loads(printed(capsys, report, as_json=True)) == {
        "schema_version": 1,
        "target": "dev",
        "running": True,
    }
    assert printed(capsys, report) == "It runs.\n"


def test_the_table_has_a_row_per_part_and_then_the_lines(capsys):
    report = Report(items=ITEMS, columns=COLUMNS, rows=rows_of(ITEMS, "parts"), lines=["[2] streams"])
    lines = [line.split() for line in printed(capsys, report).splitlines()]
    assert lines == [
        ["Stream", "Kind", "Bytes"],
        ["shop/orders", "table", "1,500,000"],
        ["shop/orders", "[copies]", "0"],
        ["[2]", "streams"],
    ]


@pytest.mark.parametrize(
    ("flags", "streams"),
    [
        ({}, ["shop/orders", "shop/orders"]),
        ({"repeat": False}, ["shop/orders", ""]),
        ({"keep_empty": True}, ["shop/orders", "shop/orders", "shop/unique"]),
    ],
)
def test_the_rows_of_items_with_lists(flags, streams):
    assert [COLUMNS[0].of(row) for row in rows_of(ITEMS, "parts", **flags)] == streams
