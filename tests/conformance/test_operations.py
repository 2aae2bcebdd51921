"""Rows of the table: what needs no state, and static sides."""

from datetime import UTC, datetime

import pytest

from tests.servers.postgres import PASSWORD, VARIABLE
from tidemill import DeltaAppend, Feed, FileSource, JdbcSource, Json, Pipeline
from tidemill import functions as F
from tidemill.testing import multiset

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def views_of(shop, schema="user STRING, tags ARRAY<STRING>, n BIGINT"):
    return shop.stream(source=Feed("views", format=Json(schema)), sink=DeltaAppend(), name="views")(
        lambda rows: rows
    )


VIEWS = [
    [{"user": f"u{n % 3}", "tags": [f"t{k}" for k in range(n % 3)], "n": n} for n in run]
    for run in ((0, 1), (2,), (3, 4, 5))
]


def test_op_stateless(scratch):
    shop = Pipeline("shop")
    views = views_of(shop)

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def op_stateless(views):
        """One row for each tag of a view with an even number."""
        from pyspark.sql.functions import pandas_udf, udf

        exclaimed = udf(lambda text: text + "!", "string")

        @pandas_udf("bigint")
        def squared(numbers):
            return numbers * numbers

        tags = views.where("n % 2 = 0").select("user", F.explode("tags").alias("tag"), "n")
        return tags.select(
            F.upper("user").alias("user"), exclaimed("tag").alias("tag"), squared("n").alias("n")
        )

    text = "SELECT upper(user) AS user, n FROM views WHERE n > 1"
    sql = shop.sql("op_stateless_sql", text, source={"views": views}, sink=DeltaAppend())
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(op_stateless)
        scratch.run(sql)
    rows = [view for run in VIEWS for view in run]
    assert scratch.rows(op_stateless) == multiset(
        (view["user"].upper(), f"{tag}!", view["n"] ** 2)
        for view in rows
        if view["n"] % 2 == 0
        for tag in view["tags"]
    )
    assert scratch.rows(sql) == multiset((view["user"].upper(), view["n"]) for view in rows if view["n"] > 1)


def test_join_static(scratch):
    shop = Pipeline("shop")
    views = views_of(shop)
    names = shop.stream(
        source=Feed("names", format=Json("id STRING, name STRING")), sink=DeltaAppend(), name="names"
    )(lambda rows: rows)
    scratch.run(names, [[{"id": "u0", "name": "Ada"}, {"id": "u2", "name": "Bo"}]])

    @shop.stream(source={"views": views, "names": names.static()}, sink=DeltaAppend())
    def join_static(views, names):
        """Each view with the name of its user, as it is at the moment of the run."""
        return views.join(names, F.col("user") == F.col("id"), "left").select("n", "name")

    @shop.stream(source={"views": views, "names": names.static()}, sink=DeltaAppend())
    def join_static_inner(views, names):
        """The views of users with a name."""
        return views.join(names, F.col("user") == F.col("id")).select("n", "name")

    @shop.stream(source={"views": views, "names": names.static()}, sink=DeltaAppend())
    def join_static_semi(views, names):
        """The same, without the name."""
        return views.join(names, F.col("user") == F.col("id"), "left_semi").select("n")

    @shop.stream(source={"views": views, "names": names.static()}, sink=DeltaAppend())
    def join_static_right(views, names):
        """Each view with the name of its user, where the table is on the left."""
        return names.join(views, F.col("user") == F.col("id"), "right").select("n", "name")

    streams = [join_static, join_static_inner, join_static_semi, join_static_right]
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        assert [str(result.error) for result in scratch.run_all(streams) if result.error] == []
    known = {"u0": "Ada", "u2": "Bo"}
    rows = [(view["n"], known.get(view["user"])) for run in VIEWS for view in run]
    assert scratch.rows(join_static) == scratch.rows(join_static_right) == multiset(rows)
    assert scratch.rows(join_static_inner) == multiset(row for row in rows if row[1])
    assert scratch.rows(join_static_semi) == multiset((n,) for n, name in rows if name)


NAMES = [{"u0": "Ada"}, {"u2": "Bo", "u0": "Ann"}, {"u1": "Cy"}]
NAMED = multiset(
    (view["n"], names.get(view["user"])) for run, names in zip(VIEWS, NAMES, strict=True) for view in run
)


def test_join_static_files(scratch, tmp_path):
    shop = Pipeline("shop")
    views = views_of(shop)
    names = FileSource(path=str(tmp_path / "names"), format="csv", schema="user STRING, name STRING")

    @shop.stream(source={"views": views, "names": names.static()}, sink=DeltaAppend())
    def join_static_files(views, names):
        """Each view with the name of its user, by the files that are there when the run starts."""
        return views.join(names, "user", "left").select("n", "name")

    (tmp_path / "names").mkdir()
    for arriving, known in zip(VIEWS, NAMES, strict=True):
        (tmp_path / "names" / "all.csv").write_text(
            "".join(f"{user},{name}\n" for user, name in known.items())
        )
        scratch.run(views, [arriving])
        scratch.run(join_static_files)
    assert scratch.rows(join_static_files) == NAMED


def test_join_static_database(scratch, postgres, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = postgres.database
    table = postgres.new_table("names")
    shop = Pipeline("shop")
    views = views_of(shop)
    names = JdbcSource(query=f"SELECT * FROM {table}")  # noqa: S608 - of tests

    @shop.stream(source={"views": views, "names": names}, sink=DeltaAppend())
    def join_static_database(views, names):
        """Each view with the name of its user, by the rows of a table in Postgres."""
        return views.join(names, "user", "left").select("n", "name")

    for arriving, known in zip(VIEWS, NAMES, strict=True):
        values = ", ".join(f"('{user}', '{name}')" for user, name in known.items())
        postgres.execute(f"DROP TABLE IF EXISTS {table}")
        postgres.execute(f'CREATE TABLE {table} ("user", name) AS VALUES {values}')
        scratch.run(views, [arriving])
        scratch.run(join_static_database)
    assert scratch.rows(join_static_database) == NAMED
