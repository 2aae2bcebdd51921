"""The registration of a stream's tables, over a catalog without a JVM."""

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.catalogs import Catalog
from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.catalog.names import names_of
from tidemill.catalog.registrar import Registrar
from tidemill.checks.evaluation import check_names
from tidemill.errors import LeaseLostError
from tidemill.records.batch import BatchRecord
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake, StagingLake
from tidemill.target.catalog import CatalogSettings
from tidemill.target.target import Target

shop = Pipeline("shop")


@shop.stream(
    source=Feed("orders", Json("n INT")),
    sink=[DeltaAppend(table="other.sales.copy", name="copy"), DeltaAppend()],
)
def orders(events):
    """Every order."""
    return events


@shop.stream(source=orders, sink=DeltaAppend())
def plain(orders):
    return orders


NAMES = ["main.shop.orders", "other.sales.copy", "main.shop.orders__quarantine"]


@pytest.fixture
def target(tmp_path):
    return Target(name="dev", lake=Lake.at(tmp_path / "lake"), catalog=CatalogSettings("main"))


@pytest.fixture
def records(target):
    return StreamRecords(target.lake, orders.name)


def write(records, *sinks):
    for sink in sinks:
        write_deltalake(records.table(sink).uri, pa.table({"n": [1]}))


def registered(catalog, target, records):
    """Register the tables in a run, and return the states by name."""
    registrar = Registrar.of(orders, target, records, catalog, lambda: None)
    registrar.register()
    return {one.name: one.state for one in records.registrations().tables.values()}


def details(records):
    return " ".join(one.detail for one in records.registrations().tables.values())


def test_the_names_of_tables_come_from_the_sink_or_from_the_target(target):
    names = {sink: str(name) for sink, name in names_of(orders, target).items()}
    assert names == dict(zip(("main", "copy", "quarantine"), NAMES, strict=True))
    in_schema = replace(target, catalog=CatalogSettings("main", "ads"))
    assert str(names_of(orders, in_schema)["main"]) == "main.ads.orders"


def test_without_a_catalog_only_a_sink_with_a_name_has_one(target):
    without = replace(target, catalog=None)
    assert {sink: str(name) for sink, name in names_of(orders, without).items()} == {
        "copy": "other.sales.copy"
    }
    assert names_of(plain, without) == {}
    assert "in_catalog" in check_names(orders, without)
    assert "in_catalog" not in check_names(plain, without)
    assert (
        Registrar.of(plain, without, StreamRecords(target.lake, plain.name), Catalog(), lambda: None) is None
    )


def test_each_table_that_exists_is_registered_at_its_location(target, records):
    catalog = Catalog()
    write(records, "main", "copy")
    assert registered(catalog, target, records) == dict.fromkeys(NAMES[:2], "registered")
    assert catalog.tables == {NAMES[0]: records.table().uri, NAMES[1]: records.table("copy").uri}

    write(records, "quarantine")
    assert registered(catalog, target, records) == dict.fromkeys(NAMES, "registered")
    assert catalog.tables[NAMES[2]] == records.table("quarantine").uri
    assert sum(statement.startswith("CREATE TABLE") for statement in catalog.statements) == 3


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}/"])
def test_a_table_that_is_there_is_not_registered_again(target, records, spelling):
    write(records, "main")
    catalog = Catalog({NAMES[0]: spelling.format(records.table().uri)})
    assert registered(catalog, target, records) == {NAMES[0]: "registered"}
    assert len(catalog.statements) == 1


def test_a_dropped_table_is_registered_again_with_a_finding(target, records):
    catalog = Catalog()
    write(records, "main")
    registered(catalog, target, records)
    catalog.tables.clear()
    assert registered(catalog, target, records) == {NAMES[0]: "dropped"}
    assert catalog.tables == {NAMES[0]: records.table().uri}
    assert "somebody had dropped it" in details(records)
    assert registered(catalog, target, records) == {NAMES[0]: "registered"}
    assert details(records) == ""


@pytest.mark.parametrize("elsewhere", ["/somewhere/else", "VIEW"])
def test_a_name_that_leads_elsewhere_is_never_changed(target, records, elsewhere):
    catalog = Catalog({NAMES[0]: elsewhere})
    write(records, "main")
    for _ in range(2):
        assert registered(catalog, target, records) == {NAMES[0]: "moved"}
    assert catalog.tables == {NAMES[0]: elsewhere}
    assert not [one for one in catalog.statements if not one.startswith("DESCRIBE")]
    assert "tidemill register shop/orders" in details(records)

    catalog.tables.clear()  # its owner has removed it
    assert registered(catalog, target, records) == {NAMES[0]: "registered"}


def test_a_name_that_somebody_takes_at_the_same_moment_is_theirs(target, records):
    catalog = Catalog()
    write(records, "main")
    asked = catalog.described

    def taken(statement):
        try:
            return asked(statement)
        finally:
            catalog.tables[NAMES[0]] = "/somewhere/else"

    catalog.described = taken
    assert registered(catalog, target, records) == {NAMES[0]: "moved"}


def test_a_catalog_that_does_not_answer_fails_no_run(target, records):
    write(records, "main")
    catalog = Catalog(fails=RuntimeError("no connection\n  at line 7"))
    assert registered(catalog, target, records) == {NAMES[0]: "unknown"}
    assert "no connection. The rows are in" in details(records)


def test_a_catalog_in_memory_is_refused_because_it_forgets(target, records):
    write(records, "main")
    target = replace(target, catalog=CatalogSettings("spark_catalog"))
    confs = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
    catalog = Catalog(confs=confs)
    assert registered(catalog, target, records) == {"spark_catalog.shop.orders": "unknown"}
    assert "spark.sql.catalogImplementation" in details(records)
    confs["spark.sql.catalogImplementation"] = "hive"
    assert registered(catalog, target, records) == {"spark_catalog.shop.orders": "registered"}


def test_another_name_is_registered_and_the_former_one_is_named(target, records):
    catalog = Catalog()
    write(records, "main")
    registered(catalog, target, records)
    target = replace(target, catalog=CatalogSettings("main", "ads"))
    assert registered(catalog, target, records) == {"main.ads.orders": "registered"}
    assert "DROP TABLE `main`.`shop`.`orders`" in details(records)
    assert catalog.tables.keys() == {"main.shop.orders", "main.ads.orders"}


def test_the_tables_of_an_operation_are_not_registered(target):
    staging = StagingLake(target.lake.store.below("staging/x"), target.lake.store)
    assert Registrar.of(orders, target, StreamRecords(staging, orders.name), Catalog(), lambda: None) is None


def test_a_run_whose_lease_is_lost_registers_nothing(target, records):
    def lost():
        raise LeaseLostError("taken")

    catalog = Catalog()
    write(records, "main")
    registrar = Registrar.of(orders, target, records, catalog, lost)
    for write_something in (registrar.register, registrar.comment):
        with pytest.raises(LeaseLostError):
            write_something()
    assert catalog.statements == []


def test_a_run_asks_once_after_its_first_batch_and_again_for_a_quarantine(target, records):
    catalog = Catalog()
    write(records, "main", "copy")
    registrar = Registrar.of(orders, target, records, catalog, lambda: None)
    line = partial(BatchRecord, run_id="r", generation=1, query_id="q", started_at="")
    registrar.take([line(batch_id=0)])
    asked = len(catalog.statements)
    registrar.take([line(batch_id=1)])
    write(records, "quarantine")
    registrar.take([line(batch_id=2)])
    assert (len(catalog.statements), len(catalog.tables)) == (asked, 2)
    registrar.take([line(batch_id=3, rows_quarantined=1)])
    assert set(catalog.tables) == set(NAMES)


def test_comments_that_are_refused_are_a_warning(target, records):
    write(records, "main")
    catalog = Catalog(fails=RuntimeError("not allowed"))
    registrar = Registrar.of(orders, target, records, catalog, lambda: None)
    registrar.comment()
    catalog.fails = None
    registrar.register()
    assert [one.state for one in registrar.tables.values()] == ["registered"]
    assert registrar.warnings == ("The comments of main.shop.orders were not written: not allowed.",)
