"""A Hive metastore of Spark's own: tables are registered and stay so, and sources are read by name.

The runs are in a process of their own (hive.py), because its Spark has a metastore.
"""

import pytest

from tests.catalog import hive
from tests.servers.object_store import object_store
from tests.support.script_result import script_result
from tidemill.catalog.comments import OWN_COLUMNS, QUARANTINE_COLUMNS

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

COPY, VIEWS, REFUSED, NAMED = (
    f"spark_catalog.{name}"
    for name in ("extra.views_copy", "shop.views", "shop.views__quarantine", "shop.named")
)
GOOD = {"outcome": "updated", "code": None, "warnings": []}
WARM = pytest.param("warm", marks=pytest.mark.campaign)


def runs(part, folder, where, **environment):
    return script_result(hive.__file__, folder, part, where, **environment)


@pytest.fixture(scope="module", params=["local", WARM])
def names(request, tmp_path_factory):
    return runs("names", tmp_path_factory.mktemp("hive") / "hive", request.param)


@pytest.fixture(scope="module", params=["local", WARM, pytest.param("s3", marks=pytest.mark.campaign)])
def tables(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hive") / "hive"
    if request.param != "s3":
        return runs("tables", folder, request.param)
    with object_store() as server:
        return runs("tables", folder, "s3", TEST_STORE_AT=server.endpoint)


def failed(code):
    return {"outcome": "failed", "code": code, "warnings": []}


def test_tables_that_are_read_by_name_are_read_once_and_pinned(names):
    assert (names["first"], names["idle"]["outcome"]) == (GOOD, "idle")
    assert names["rows"] == [["a", "Ann"], ["b", "Bob"], ["d", "Di"]]


def test_a_table_is_registered_with_its_comments_and_read_by_its_name(names):
    comments = ["Events with names.", {"name": "In full."}]
    assert names["after_first"] == {
        NAMED: {"leads_home": True, "rows": ["a"], "comments": comments, "columns": {"name": "In full."}}
    }


def test_a_dropped_name_is_registered_again_and_a_taken_one_is_left(names):
    assert names["dropped_states"] == {NAMED: "dropped"}
    assert "somebody had dropped it" in names["second"]["warnings"][0]
    assert names["moved_states"] == {NAMED: "moved"}
    assert "it was left as it is" in names["rebound"]["warnings"][0]


def test_a_source_that_the_catalog_has_elsewhere_is_refused_until_it_is_rebound(names):
    assert names["missing"] == failed("catalog-table-missing")
    assert names["changed"] == failed("catalog-location-changed")
    assert "reading continues at version 2" in names["plan"]
    assert names["rebound"]["outcome"] == "updated"


def test_what_is_no_delta_table_is_refused(names):
    assert names["view"] == failed("catalog-table-unsuitable")
    assert names["nothing"] == failed("catalog-table-missing")
    assert names["absent"]["code"] == "upstream-table-missing"


def test_a_table_with_catalog_managed_commits_is_refused_however_it_is_read(names):
    assert names["managed"] == ["catalog-managed-commits"] * 3


@pytest.mark.campaign
def test_each_table_of_a_stream_is_registered_with_its_comments(tables):
    assert tables["first"] == tables["second"] == GOOD
    output = {**OWN_COLUMNS, "id": "Of the view.", "twice": "Two times n."}
    output = {column: output[column] for column in ("id", "twice", "_origin", "_batch")}
    assert tables["after_first"] == {
        VIEWS: shown("a", comments=["Every view, it's said.", output]),
        COPY: shown("a", comments=["copy of shop/views. Every view, it's said.", output]),
        REFUSED: shown(
            '{"id": "b", "n": 0}',
            comments=["Records and rows that the rules of shop/views refused.", dict(QUARANTINE_COLUMNS)],
            columns={"raw": QUARANTINE_COLUMNS["raw"]},
        ),
    }
    assert tables["commits_of_second"] == 1, "comments that are there are not written again"


def shown(*rows, comments, columns=None):
    columns = columns or {"id": "Of the view."}
    return {"leads_home": True, "rows": sorted(rows), "comments": comments, "columns": columns}


@pytest.mark.campaign
def test_a_run_without_data_asks_no_catalog_and_the_next_one_notices_the_drop(tables):
    assert tables["idle"] == {"outcome": "idle", "code": None, "warnings": []}
    assert tables["dropped_states"] == {COPY: "dropped", VIEWS: "registered", REFUSED: "registered"}


@pytest.mark.campaign
def test_a_name_of_somebody_else_stays_theirs_until_they_drop_it(tables):
    assert tables["moved_states"] == {COPY: "registered", VIEWS: "moved", REFUSED: "registered"}
    assert tables["left"] == [["theirs"]]
    assert tables["registered_states"] == dict.fromkeys((COPY, VIEWS, REFUSED), "registered")


@pytest.mark.campaign
def test_a_reader_passes_commits_that_only_change_comments(tables):
    assert tables["reader"] == [GOOD, GOOD, GOOD]
    assert tables["read"] == ["a", "c", "d", "e"]


@pytest.mark.campaign
def test_operations_leave_a_registration_as_it_is(tables):
    before = tables["after_first"]
    kept = {name: {**one, "rows": None} for name, one in before.items()}
    kept[COPY]["comments"] = [None, kept[COPY]["comments"][1]]
    for moment, rows in (("after_rebuild", "acde"), ("after_reset", "acde"), ("after_prune", "acdefg")):
        after = tables[moment]
        assert {name: one["rows"] for name, one in after.items()} == {
            **{name: [*rows] for name in (VIEWS, COPY)},
            REFUSED: before[REFUSED]["rows"],
        }
        for one in after.values():
            one["rows"] = None
        after[COPY]["comments"][0] = None  # it has the description of the code of the moment
        assert after == kept
    good = ("run_after_reset", "run_after_rename", "run_after_prune")
    assert [tables[moment] for moment in good] == [GOOD, GOOD, GOOD]
    assert tables["last_states"] == dict.fromkeys((COPY, VIEWS, REFUSED), "registered")


@pytest.mark.campaign
def test_a_backfill_needs_the_recorded_table_and_a_rebuild_reads_the_one_of_today(tmp_path):
    facts = runs("again", tmp_path / "hive", "local")
    assert (facts["run"], facts["backfilled"], facts["planned"]) == (GOOD, ["a"], "nothing")
    assert (facts["backfilled_elsewhere"], facts["planned_elsewhere"]) == ("catalog-location-changed",) * 2
    assert facts["rebuilt"] == ["b"]
    assert (facts["run_after"], facts["rows"]) == (GOOD, ["b", "c"])
