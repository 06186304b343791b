"""INT96, the timestamps of Hive, Impala and old Spark: all years, and microseconds, as DuckDB has them."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SchemaMismatchError
from tests.interop.comparison import multiset
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake
from tests.spark.test_codings import edited

VALUES = [  # sentinels beyond what nanoseconds hold, 1677 to 2262
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - the type has no zone
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(2024, 1, 1, 1, 2, 3, 4),  # noqa: DTZ001
    None,
]


def without_logical_type(path):
    """Leave timestamps in a file the converted type alone, as old writers do: DuckDB sees no zone then."""

    def edit(footer):
        for element in footer[2].value.values:
            element.pop(10, None)

    edited(path, edit)


def write_int96(path, values=VALUES, unit="us"):
    rows = pa.table({"id": range(len(values)), "at": pa.array(values, pa.timestamp(unit))})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(path).row_group(0).column(1).physical_type == "INT96"


@pytest.mark.parametrize("nested", [False, True])
def test_all_years_are_read_as_the_reference_reads_them(sqlite_catalog, tmp_path, nested):
    path = tmp_path / "a.parquet"
    write_int96(path)
    if nested:
        rows = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
        held = pa.StructArray.from_arrays([rows["at"].combine_chunks()], ["at"])
        pq.write_table(pa.table({"id": rows["id"], "s": held}), path, use_deprecated_int96_timestamps=True)
    column = 's STRUCT("at" TIMESTAMP)' if nested else '"at" TIMESTAMP'
    by_duckdb(sqlite_catalog, f"CREATE TABLE t (id BIGINT, {column})")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        alone(lake).add_data_files("t", [str(path)])
        at = "s.at" if nested else "at"

        for where in (
            None,
            f"{at} = '9999-12-31 23:59:59.999999'",
            f"{at} < '1700-01-01'",
            f"{at} IS NULL",
            "id = 2",
        ):
            condition = (
                "" if where is None else f" WHERE {where.replace('at ', chr(34) + 'at' + chr(34) + ' ')}"
            )
            with open_lake(sqlite_catalog) as duck:
                theirs = duck.arrow(f"FROM t{condition}")
            assert multiset(lake.read_arrow("t", filter=where)) == multiset(theirs), where
        assert lake.read_arrow("t").num_rows == 4

        alone(lake).delete_rows("t", f"{at} < '1700-01-01'")
        assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [0, 2, 3]
        assert by_duckdb(sqlite_catalog, "SELECT id FROM t ORDER BY id") == [(0,), (2,), (3,)]


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NS"])
def test_nanoseconds_are_cut_to_microseconds(sqlite_catalog, tmp_path, type_):
    path = tmp_path / "a.parquet"
    write_int96(path, [1234567890123456789, -1], "ns")
    by_duckdb(
        sqlite_catalog,
        f'CREATE TABLE t (id BIGINT, "at" {type_})',
        f"CALL ducklake_add_data_files('lake', 't', '{path}')",
    )

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, open_lake(sqlite_catalog) as duck:
        assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_times_with_a_converted_type_alone_have_no_zone_as_for_the_reference(sqlite_catalog, tmp_path, unit):
    path, instants = tmp_path / "a.parquet", [one and one.replace(tzinfo=UTC) for one in VALUES]
    times = pa.array(instants, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False)
    pq.write_table(pa.table({"id": range(4), "at": times}), path, store_schema=False)
    without_logical_type(path)
    by_duckdb(
        sqlite_catalog,
        f"CREATE TABLE t AS FROM '{path}' LIMIT 0",
        'CREATE TABLE z (id INT, "at" TIMESTAMPTZ)',
    )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        is_refused = pytest.raises(SchemaMismatchError, match="which DuckDB reads as timestamp")
        with is_refused, lake.transaction() as tx:
            tx.add_data_files("z", [str(path)])
        alone(lake).add_data_files("t", [str(path)])

        with open_lake(sqlite_catalog) as duck:
            duck.sql("SET TimeZone = 'America/New_York'")
            assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))
            assert duck.sql("SELECT id FROM t WHERE \"at\" < '1700-01-01'") == [(1,)]
        assert lake.read_arrow("t", filter="at < '1700-01-01'").column("id").to_pylist() == [1]
        assert lake.verify() == []
