"""The reference has a lake of 1.1 for a while, and what it wrote is there afterwards, at 1.1."""

from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake
from tests.reference.lent import CannotLendError, version_of


@pytest.fixture
def spec_version() -> str:
    return "1.1"


@pytest.fixture
def lake(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "s": "varchar"})
            tx.append_arrow("t", rows(range(20)))
        yield lake


def rows(numbers) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64()), "s": [f"{'x' * 300}{one}" for one in numbers]})


def as_it_is(catalog):
    return dump_catalog(replace(catalog, spec_version="1.0"))


def flags(catalog, table):
    """Return which bounds are exact, by file and column; SQLite has numbers."""
    found = {
        (row.get("data_file_id"), row["column_id"]): (row["min_is_exact"], row["max_is_exact"])
        for row in as_it_is(catalog)[table]
    }
    return [tuple(one and bool(one) for one in found[key]) for key in sorted(found, key=str)]


def row_groups(catalog):
    return {row["data_file_id"]: row["row_group_count"] for row in as_it_is(catalog)["ducklake_data_file"]}


def test_what_it_writes_is_the_lakes(catalog, lake):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        assert version_of(catalog) == "1.1"
        reference.sql("INSERT INTO t VALUES (5, 'x' || repeat('x', 299) || '5'), (100, 'y')")
        reference.sql("DELETE FROM t WHERE i < 3")

    assert version_of(catalog) == "1.1"
    assert sorted(lake.read_arrow("t")["i"].to_pylist()) == sorted([*range(3, 20), 5, 100])
    assert lake.verify() == []
    lake.append_arrow("t", rows([7]))
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(20,)]


@pytest.mark.usefixtures("lake")
def test_what_1_1_says_of_rows_that_it_leaves_alone_stays(catalog):
    table, files = "ducklake_table_column_stats", "ducklake_file_column_stats"
    assert flags(catalog, table) == flags(catalog, files) == [(True, True), (False, False)]
    assert row_groups(catalog) == {0: 1}

    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (100, 'y')")

    assert flags(catalog, table) == [(True, None), (False, None)]  # the greatest are new
    assert flags(catalog, files) == [(True, True), (False, False), (None, None), (None, None)]
    assert row_groups(catalog) == {0: 1, 1: None}


def test_reading_changes_nothing(catalog, lake):
    before = as_it_is(catalog)
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(20,)]
        lake.append_arrow("t", rows([20]))
        assert reference.sql("SELECT count(*) FROM t") == [(20,)]
    assert as_it_is(catalog) != before
    assert lake.row_count("t") == 21


def test_a_new_lake_is_there_when_it_lets_go(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS FROM range(30) r(i)")
        assert version_of(catalog) is None
    assert version_of(catalog) == "1.1"
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.row_count("t") == 30


def test_two_who_write_at_once_are_refused(catalog, lake):
    reference = open_lake(catalog)
    reference.sql("INSERT INTO t VALUES (100, 'y')")
    lake.append_arrow("t", rows([20]))
    with pytest.raises(CannotLendError, match="others wrote to the lake"):
        reference.close()
    assert lake.row_count("t") == 21


def test_a_lake_that_1_0_cannot_describe_is_for_reading(catalog, lake):
    with lake.transaction() as tx:
        tx.create_schema("a")
        tx.create_schema("a.b")
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(20,)]
    with pytest.raises(CannotLendError, match="no words"), open_lake(catalog) as reference:
        reference.sql("DROP TABLE t")
    assert lake.row_count("t") == 20
