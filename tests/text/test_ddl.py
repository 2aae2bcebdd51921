"""Schemas of pyspark as DDL, without a JVM; Spark parses them in (tests/run/sources/test_file_formats.py)."""

import pytest
from pyspark.sql import types as t

from tests.support.raising import raises
from tidemill import Csv, FileSource, Json, SparkSource

NESTED = t.StructType(
    [
        t.StructField("id", t.LongType(), nullable=False),
        t.StructField("the price", t.DecimalType(10, 2)),
        t.StructField("at", t.TimestampNTZType()),
        t.StructField("tags", t.ArrayType(t.StringType())),
        t.StructField("by", t.MapType(t.StringType(), t.StructType([t.StructField("a`b", t.ShortType())]))),
    ]
)
DDL = (
    "`id` bigint NOT NULL, `the price` decimal(10,2), `at` timestamp_ntz, `tags` array<string>, "
    "`by` map<string, struct<`a``b`: smallint>>"
)


@pytest.mark.parametrize(
    "declared",
    [
        lambda schema: FileSource(path="in", format="parquet", schema=schema),
        lambda schema: SparkSource(format="pubsub", schema=schema),
        Json,
        Csv,
    ],
)
def test_a_struct_type_is_a_schema_like_its_ddl(declared):
    assert declared(NESTED).schema == DDL
    assert declared(NESTED) == declared(DDL)


def test_a_type_without_ddl_is_refused():
    with raises("schema-invalid", "column 'v'"):
        Json(t.StructType([t.StructField("v", t.ArrayType(_Point()))]))


class _Point(t.UserDefinedType):
    @classmethod
    def sqlType(cls):  # noqa: N802 - the name is of pyspark
        return t.IntegerType()

    @classmethod
    def module(cls):
        return __name__
