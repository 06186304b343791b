"""Bounds that the reference leaves behind rows inlined in the catalog, and our appends after them."""

import math

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake


def append(catalog, rows: pa.Table) -> None:
    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.append_arrow("t", rows)


def test_an_inlined_nan_hides_no_number_that_we_append(catalog):
    by_duckdb(catalog, "CREATE TABLE t (d DOUBLE)", "INSERT INTO t VALUES ('nan')")

    append(catalog, pa.table({"d": [1.0]}))

    assert dump_catalog(catalog)["ducklake_table_column_stats"] == []
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT d FROM t WHERE d = 1") == [(1.0,)]
        assert reference.sql("SELECT d FROM t WHERE d < 2") == [(1.0,)]
        assert reference.sql("SELECT count(*) FROM t WHERE d > 1") == [(1,)]


def test_an_inlined_text_that_no_bound_covers_is_found_after_our_append(catalog):
    by_duckdb(catalog, "CREATE TABLE t (s VARCHAR)", "INSERT INTO t VALUES ('a' || chr(0))")

    append(catalog, pa.table({"s": ["m"]}))

    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES ('q')")
        assert reference.sql("SELECT length(s) FROM t WHERE s < 'b'") == [(2,)]


def test_inlined_nulls_are_no_reason_to_know_nothing(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (i INTEGER)")
        reference.sql("INSERT INTO t VALUES (NULL)")
        reference.sql("CALL ducklake_flush_inlined_data('lake')")

    append(catalog, pa.table({"i": pa.array([5], pa.int32())}))

    (stats,) = dump_catalog(catalog)["ducklake_table_column_stats"]
    assert (stats["min_value"], stats["max_value"], bool(stats["contains_null"])) == ("5", "5", True)


def test_whether_a_column_has_nan_stays_unknown_after_inlined_numbers(catalog):
    append_nan = pa.table({"d": [math.nan, 1.0]})
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (d DOUBLE)")
        append(catalog, append_nan)
        reference.sql("INSERT INTO t VALUES (2)")

    append(catalog, pa.table({"d": [3.0]}))

    (stats,) = dump_catalog(catalog)["ducklake_table_column_stats"]
    assert stats["contains_nan"] in (None, 1, True)
    assert by_duckdb(catalog, "SELECT count(*) FROM t WHERE isnan(d)") == [(1,)]


@pytest.mark.parametrize("inlining", [0, 10])
def test_our_append_heals_a_row_without_bounds_over_values(catalog, inlining):
    """The reference leaves one when one of the files of a statement holds only NULLs."""
    with open_lake(catalog, data_inlining_row_limit=inlining) as reference:
        reference.sql("CREATE TABLE t (k VARCHAR, i INTEGER)")
        reference.sql("ALTER TABLE t SET PARTITIONED BY (k)")
        reference.sql(
            "INSERT INTO t SELECT chr((97 + r % 2)::INT), CASE r % 2 WHEN 1 THEN r END FROM range(20) x(r)"
        )

    append(catalog, pa.table({"k": ["a"], "i": pa.array([500], pa.int32())}))

    assert {row["column_id"] for row in dump_catalog(catalog)["ducklake_table_column_stats"]} == {1}
    with open_lake(catalog, data_inlining_row_limit=inlining) as reference:
        reference.sql("INSERT INTO t VALUES ('c', 1000)")
        assert reference.sql("SELECT count(*) FROM t WHERE i < 100") == [(10,)]
