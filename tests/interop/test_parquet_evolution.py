"""Files older than the table's schema are read as the reference reads them."""

from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema, assemble
from airflow_provider_ducklake.lake.format.snapshots import ColumnId, SnapshotId
from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from tests.interop.lakes import by_duckdb
from tests.interop.reference_table import live_files, put_in_place, schema_of
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

# (before the insert, after it)
HISTORIES = {
    "rename": ("i INTEGER, s VARCHAR", ["RENAME COLUMN i TO s2", "RENAME COLUMN s TO i"]),
    "integers": (
        "a TINYINT, b SMALLINT, c INTEGER, d UTINYINT, e USMALLINT, f UINTEGER",
        [
            *(f"ALTER COLUMN {name} SET DATA TYPE BIGINT" for name in "abcf"),
            "ALTER COLUMN d SET DATA TYPE UBIGINT",
            "ALTER COLUMN e SET DATA TYPE INTEGER",
        ],
    ),
    "floats and decimals": (
        "a FLOAT, b DECIMAL(5,2), c DECIMAL(9,2), d INTEGER, e INTEGER",
        [
            "ALTER COLUMN a SET DATA TYPE DOUBLE",
            "ALTER COLUMN b SET DATA TYPE DECIMAL(20,4)",
            "ALTER COLUMN c SET DATA TYPE DOUBLE",
            "ALTER COLUMN d SET DATA TYPE DOUBLE",
            "ALTER COLUMN e SET DATA TYPE DECIMAL(20,2)",
        ],
    ),
    "times": (
        "a DATE, b DATE, c TIMESTAMP_S, d TIMESTAMP_MS, e TIMESTAMP, f BOOLEAN",
        [
            "ALTER COLUMN a SET DATA TYPE TIMESTAMP",
            "ALTER COLUMN b SET DATA TYPE TIMESTAMPTZ",
            "ALTER COLUMN c SET DATA TYPE TIMESTAMP",
            "ALTER COLUMN d SET DATA TYPE TIMESTAMP_NS",
            "ALTER COLUMN e SET DATA TYPE TIMESTAMPTZ",
            "ALTER COLUMN f SET DATA TYPE INTEGER",
        ],
    ),
    "added with defaults": (
        "i INTEGER",
        [
            f"ADD COLUMN c{number} {type_} DEFAULT {default}"
            for number, (type_, default) in enumerate(
                [
                    ("BOOLEAN", "'true'"),
                    ("UBIGINT", "18446744073709551615"),
                    ("DOUBLE", "1e300"),
                    ("FLOAT", "'nan'"),
                    ("DECIMAL(10,2)", "1.5"),
                    ("DECIMAL(38,38)", "0.5"),
                    ("DATE", "'2020-01-02'"),
                    ("DATE", "'0044-03-15 (BC)'"),
                    ("TIME", "'01:02:03.5'"),
                    ("TIMESTAMP", "'1920-01-01 01:02:03.5'"),
                    ("TIMESTAMPTZ", "'2020-01-01 01:02:03.5+02'"),
                    ("TIMESTAMP_NS", "'2020-01-01 01:02:03.123456789'"),
                    ("TIMESTAMP_MS", "'2020-01-01 01:02:03.123'"),
                    ("TIMESTAMP_S", "'2020-01-01 01:02:03'"),
                    ("VARCHAR", "'x''y'"),
                    ("VARCHAR", "''"),
                    ("VARCHAR", "'NULL'"),
                    ("JSON", "'{\"a\": 1}'"),
                    ("BLOB", r"'\xDE\xADab'"),
                    ("UUID", "'00000000-0000-0000-0000-000000000001'"),
                    ("VARCHAR", "NULL"),
                ]
            )
        ],
    ),
    "added nested": (
        "i INTEGER",
        [
            "ADD COLUMN l INTEGER[]",
            "ADD COLUMN s STRUCT(a INTEGER, b VARCHAR)",
            "ADD COLUMN m MAP(INTEGER, DATE)",
        ],
    ),
    "dropped and added again": ("i INTEGER, s VARCHAR", ["DROP COLUMN s", "ADD COLUMN s VARCHAR"]),
    "inside a struct": (
        "s STRUCT(a TINYINT, b VARCHAR, c STRUCT(d FLOAT))",
        [
            "ADD COLUMN s.z INTEGER DEFAULT 5",
            "RENAME COLUMN s.a TO y",
            "DROP COLUMN s.b",
            "ADD COLUMN s.c.n DATE",
            "ALTER COLUMN s SET DATA TYPE STRUCT(y BIGINT, c STRUCT(d DOUBLE, n DATE), z INTEGER)",
        ],
    ),
    "infinite dates": (
        "s STRUCT(d DATE, l DATE[], m MAP(VARCHAR, DATE))",
        ["ALTER COLUMN s SET DATA TYPE STRUCT(d TIMESTAMP, l TIMESTAMP[], m MAP(VARCHAR, TIMESTAMP))"],
    ),
    "inside a list": (
        "l STRUCT(a INTEGER, b VARCHAR)[]",
        ["ADD COLUMN l.element.z INTEGER DEFAULT 6", "RENAME COLUMN l.element.a TO y"],
    ),
    "inside a map": (
        "m MAP(VARCHAR, STRUCT(a INTEGER, b VARCHAR))",
        ["ADD COLUMN m.value.z INTEGER", "DROP COLUMN m.value.b"],
    ),
}
VALUES = {
    "TINYINT": "-5",
    "SMALLINT": "300",
    "INTEGER": "70000",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "VARCHAR": "'text'",
    "FLOAT": "0.1",
    "BOOLEAN": "true",
    "DECIMAL(5,2)": "-123.45",
    "DECIMAL(9,2)": "-1234567.89",
    "DATE": "'1969-12-31'",
    "TIMESTAMP_S": "'1969-12-31 23:59:59'",
    "TIMESTAMP_MS": "'1969-12-31 23:59:59.5'",
    "TIMESTAMP": "'1969-12-31 23:59:59.999999'",
    "STRUCT(a TINYINT, b VARCHAR, c STRUCT(d FLOAT))": "{'a': 1, 'b': 'x', 'c': {'d': 0.1}}",
    "STRUCT(d DATE, l DATE[], m MAP(VARCHAR, DATE))": (
        "{'d': 'infinity', 'l': ['-infinity', NULL, '1969-12-31'], 'm': MAP {'k': 'infinity'}}"
    ),
    "STRUCT(a INTEGER, b VARCHAR)[]": "[{'a': 1, 'b': 'x'}, {'a': NULL, 'b': 'y'}, NULL]",
    "MAP(VARCHAR, STRUCT(a INTEGER, b VARCHAR))": "MAP {'k': {'a': 1, 'b': 'x'}, 'n': NULL}",
}
ROW_ID = Column(ColumnId(2147483540), "_ducklake_internal_row_id", ScalarType("int64"))


def schema_in(catalog: CatalogDatabase) -> TableSchema:
    rows = [row for row in dump_catalog(catalog)["ducklake_column"] if row["end_snapshot"] is None]
    return assemble(
        (
            Column(
                row["column_id"],
                row["column_name"],
                ScalarType("varchar"),
                initial_default=row["initial_default"],
            ),
            row["parent_column"],
            row["column_type"],
        )
        for row in sorted(rows, key=lambda row: row["column_order"])
    )


def fields_of(definition: str) -> list[str]:
    schema_types = [part for part in VALUES if definition.endswith(part) and " " in part]
    if schema_types:
        return schema_types[:1]
    parts = definition.replace("(5,2)", "(5;2)").replace("(9,2)", "(9;2)").split(", ")
    return [part.split(" ", 1)[1].replace(";", ",") for part in parts]


def write_history(lake: DuckLakeConnection, definition: str, alters: list[str]) -> None:
    values = [VALUES[type_] for type_ in fields_of(definition)]
    lake.sql(f"CREATE TABLE t ({definition})")
    lake.sql(f"INSERT INTO t VALUES ({', '.join(values)}), ({', '.join('NULL' for _ in values)})")
    for alter in alters:
        lake.sql(f"ALTER TABLE t {alter}")


@pytest.mark.parametrize("name", HISTORIES)
def test_an_old_file_is_read_in_the_schema_of_today(sqlite_catalog, name):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, *HISTORIES[name])
        schema = schema_in(sqlite_catalog)
        (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

        rows = read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(9)).cast()

        rows.validate(full=True)
        assert rows.schema == arrow_schema(schema)
        lake.raw.register("rows", rows)
        shown = "SELECT COLUMNS(*)::VARCHAR FROM "
        assert lake.sql(f"{shown} rows") == lake.sql(f"{shown} t")
        assert rows.column_names == [column for column, *_ in lake.sql("DESCRIBE t")]


def test_a_promotion_we_cannot_follow_is_refused(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "d DATE", ["ALTER COLUMN d SET DATA TYPE JSON"])
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    with pytest.raises(UnsupportedFeatureError, match=r"column d is stored as date32\[day\].* as json"):
        read_data_file(file, schema_in(sqlite_catalog), table="main.t", snapshot_id=SnapshotId(9)).cast()


def test_columns_are_chosen_by_name_in_the_wanted_order(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql('CREATE TABLE t ("a.b" INTEGER, a STRUCT(b INTEGER, c INTEGER), z VARCHAR)')
        lake.sql("INSERT INTO t VALUES (1, {'b': 2, 'c': 3}, 'x')")
        lake.sql("ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7")
    schema = schema_in(sqlite_catalog)
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    def rows(*columns: str):
        return read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(9), columns=columns).cast()

    assert rows("Z", "a.b").to_pylist() == [{"z": "x", "a.b": 1}]
    assert rows("a").to_pylist() == [{"a": {"b": 2, "c": 3}}]
    assert rows("late").to_pylist() == [{"late": 7}]
    assert rows().num_rows == 1


def test_types_we_do_not_write_are_read(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t (i INTERVAL, z TIMETZ)")
        lake.sql("INSERT INTO t VALUES (INTERVAL '1 month 2 days 3.5 seconds', '12:00:00+02'), (NULL, NULL)")
        expected = lake.sql("SELECT COLUMNS(*)::VARCHAR FROM t")
        (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

        rows = read_data_file(
            file, schema_of(i="interval", z="timetz"), table="main.t", snapshot_id=SnapshotId(9)
        ).cast()

        lake.raw.register("rows", rows)
        assert lake.sql("SELECT i::VARCHAR, z::VARCHAR || '+00' FROM rows") == expected


def test_a_row_id_column_is_null_in_files_without_one(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "i INTEGER", [])
    schema = TableSchema((*schema_in(sqlite_catalog).columns, ROW_ID))
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    rows = read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(9)).cast()

    assert rows.column("_ducklake_internal_row_id").to_pylist() == [None, None]


def test_the_row_ids_of_an_updated_row_are_read(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t (i INTEGER)")
        lake.sql("INSERT INTO t SELECT range FROM range(5)")
        lake.sql("UPDATE t SET i = 30 WHERE i = 3")
    schema = TableSchema((*schema_in(sqlite_catalog).columns, ROW_ID))
    *_, newest = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    rows = read_data_file(newest, schema, table="main.t", snapshot_id=SnapshotId(9)).cast()

    assert rows.to_pylist() == [{"i": 30, "_ducklake_internal_row_id": 3}]


def test_a_file_whose_name_mapping_is_gone_is_refused(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "i INTEGER", [])
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    with pytest.raises(UnsupportedFeatureError, match="name mapping 1, which the catalog does not have"):
        read_data_file(
            replace(file, mapping_id=1), schema_in(sqlite_catalog), table="main.t", snapshot_id=SnapshotId(9)
        ).cast()


def test_row_ids_that_we_write_are_the_references(sqlite_catalog, tmp_path):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "i INTEGER", [])
    schema = TableSchema((*schema_in(sqlite_catalog).columns, ROW_ID))
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    with RollingWriter(schema, lambda: str(tmp_path / "ours.parquet")) as writer:
        writer.write(pa.table({"i": pa.array([7, 8], pa.int32()), "_ducklake_internal_row_id": [70, 80]}))
    put_in_place(sqlite_catalog, {file.id: writer.files[0]})

    assert set(writer.files[0].column_stats) == {1}
    assert by_duckdb(sqlite_catalog, "SELECT rowid, i FROM t") == [(70, 7), (80, 8)]
