"""Iceberg gives the rows of registered tables, and finds them by partitions and statistics."""

import re

import pytest

from tests.iceberg.comparing import loaded, wrong_columns, wrong_counts
from tests.iceberg.histories import History, flat, nested
from tests.reference.duckdb_lake import open_lake

_SAME = {
    "flat": (
        "id = 150",
        "id > 390",
        "counted < 100",
        "isnan(ratio)",
        "ratio > 40",
        "ratio < 1",
        "small >= 75",
        "amount = 5.25",
        "region = 'a/b=c ä'",
        "region = ''",
        "region IS NULL",
        "day = DATE '1969-11-30'",
        "day < DATE '1970-03-01'",
        "moment < '1970-01-01 00:00:00'",
        "seen >= '1970-01-10 00:00:00+00:00'",
        "seen < '1969-12-01 00:00:00+00:00'",
        "ok",
        "ok IS NULL",
        "number = 'updated'",
        "number IS NULL",
    ),
    "nested": (
        "id = 2001",
        "parts.b > 290",
        "parts.deeper.x < 1",
        "parts IS NULL",
        "tags IS NULL",
        "millis < '1970-01-01 00:00:00'",
        "seconds >= '1970-01-01 00:03:00'",
    ),
}
_UUIDS = {"key = X'34173cb38f07f89ddbebc2ac9128303f'": "key = '34173cb3-8f07-f89d-dbeb-c2ac9128303f'"}
CONDITIONS = {
    "flat": {one: one for one in _SAME["flat"]},
    "nested": {one: one for one in _SAME["nested"]} | _UUIDS,
}
# keys, and the transforms that Iceberg has for them
PARTITIONINGS = [
    ("flat", (), []),
    ("flat", ("region", "ok", "year(moment)"), ["identity", "identity", "year"]),
    ("flat", ("bucket(4, id)", "year(day)", "month(day)"), ["bucket[4]", "month"]),
    ("flat", ("year(day)", "month(day)", "day(day)", "bucket(3, region)"), ["bucket[3]", "day"]),
    ("flat", ("year(seen)", "month(seen)", "day(seen)", "hour(seen)"), ["hour"]),
    ("flat", ("month(day)", "bucket(2, ratio)", "day"), ["identity"]),
    ("nested", (), []),
    ("nested", ("bucket(3, id)", "year(millis)"), ["bucket[3]", "year"]),
]


@pytest.mark.parametrize(("table", "partition_by", "transforms"), PARTITIONINGS)
def test_iceberg_gives_the_rows(table, partition_by, transforms, spark, catalog, lake, register, tmp_path):
    history = History(spark, lake, tmp_path, table)
    {"flat": flat, "nested": nested}[table](history, partition_by)
    assert set(history.delete_files()) == {False, True}

    name = register(lake, table)

    spec = loaded(spark, name).spec().toString()
    assert sorted(re.findall(r": (\S+)\(\d+\)$", spec, re.MULTILINE)) == sorted(transforms)
    assert wrong_columns(spark, name, lake, table) == []
    assert wrong_counts(spark, name, catalog, table, CONDITIONS[table]) == {}


def test_conditions_on_partitions_leave_files_out(spark, lake, register, tmp_path):
    history = History(spark, lake, tmp_path, "flat")
    flat(history, ("bucket(4, id)", "year(day)", "month(day)"))

    name = register(lake, "flat")

    files = spark.table(f"{name}.files").where("content = 0").count()
    hit = spark.table(name).where("day = DATE '1969-11-30' AND id = 0")
    assert hit.count() == 1
    assert files > 20
    assert hit.selectExpr("_file").distinct().count() == 1
    assert len(hit.inputFiles()) < files / 5


def test_rows_that_the_reference_changed_and_merged(spark, catalog, lake, register, tmp_path):
    history = History(spark, lake, tmp_path, "flat")
    flat(history, ())
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO flat SELECT * REPLACE (id + 5000 AS id) FROM flat WHERE id < 5")
        reference.sql("CALL ducklake_rewrite_data_files('lake', 'flat', delete_threshold => 0)")
        reference.sql("CALL ducklake_merge_adjacent_files('lake', 'flat')")
    history.delete("id = 4 OR id = 5001")

    name = register(lake, "flat")

    assert wrong_columns(spark, name, lake, "flat") == []
    assert wrong_counts(spark, name, catalog, "flat", CONDITIONS["flat"]) == {}


def test_files_of_an_older_partitioning(spark, catalog, lake, register, tmp_path):
    history = History(spark, lake, tmp_path, "flat")
    flat(history, ("region",))
    with lake.transaction() as tx:
        tx.set_partitioned_by("flat", ["year(day)"])
    history.repeat("id < 100", 3000)
    history.delete("id = 3001")

    name = register(lake, "flat")

    assert {row.spec_id for row in spark.table(f"{name}.files").collect()} == {0, 1}
    assert wrong_columns(spark, name, lake, "flat") == []
    assert wrong_counts(spark, name, catalog, "flat", CONDITIONS["flat"]) == {}


def test_the_guides_example(spark, catalog, lake, guide, tmp_path):
    with lake.transaction() as tx:
        tx.create_schema("sales")
        tx.create_table("sales.orders", {"id": "int64"})
    with open_lake(catalog) as reference:
        lake.append_arrow("sales.orders", reference.arrow("SELECT 41 + range AS id FROM range(2)"))
    code = guide.last_block.replace("/data/lake.sqlite", catalog.location)
    code = code.replace("/data/iceberg/", f"{tmp_path}/")

    exec(code, {**guide.names, "spark": spark})

    assert [row.id for row in spark.table("ice.sales.orders").collect()] == [41, 42]
