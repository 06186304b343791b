"""The migration from 1.0 to 1.1 as ducklakepy makes it, of lakes that DuckDB 1.5.5 wrote."""

import pytest

from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.catalog_dump import Dump, dump_catalog, dump_schema
from tests.reference.catalogs import CatalogDatabase
from tests.reference.next.process import OracleError

HISTORY = (
    "CREATE TABLE t (i INTEGER, st STRUCT(a INTEGER, b VARCHAR))",
    "INSERT INTO t VALUES (1, {'a': 1, 'b': 'x'}), (2, NULL)",
    "INSERT INTO t SELECT n, {'a': n, 'b': 'file'} FROM range(100, 150) r(n)",
    "DELETE FROM t WHERE i IN (2, 100)",
    "DELETE FROM t WHERE i BETWEEN 120 AND 140",
    "ALTER TABLE t ADD COLUMN st.k INTEGER DEFAULT 7",
    "ALTER TABLE t RENAME COLUMN st.k TO k2",
    "INSERT INTO t VALUES (3, {'a': 3, 'b': 'y', 'k2': 9})",
    "CREATE SCHEMA s",
    "CREATE VIEW s.v AS SELECT i FROM t",
    "COMMENT ON COLUMN t.i IS 'a number'",
    "CREATE TABLE p (k VARCHAR, n INTEGER)",
    "ALTER TABLE p SET PARTITIONED BY (k)",
    "INSERT INTO p SELECT 'k' || n % 2, n FROM range(30) r(n)",
    "DROP TABLE p",
)
APPENDED = {
    "ducklake_schema": ["parent_schema_id"],
    "ducklake_data_file": ["row_group_count"],
    "ducklake_delete_file": ["row_group_count"],
    "ducklake_file_column_stats": ["min_is_exact", "max_is_exact"],
    "ducklake_table_column_stats": ["min_is_exact", "max_is_exact"],
}


def write_history(catalog: CatalogDatabase, statements: tuple[str, ...] = HISTORY) -> None:
    with duckdb_lake.open_lake(catalog) as lake:
        for statement in statements:
            lake.sql(statement)


def without(dump: Dump, columns: dict[str, list[str]]) -> Dump:
    """Leave out what 1.1 added, and name the columns of inlined tables as 1.0 did."""
    return {
        table: [
            {
                name.removeprefix("_ducklake_") if table.startswith("ducklake_inlined_data_") else name: value
                for name, value in row.items()
                if name not in columns.get(table, ())
            }
            for row in rows
        ]
        for table, rows in dump.items()
        if table != "ducklake_view_column_tag"
    }


def test_the_migration_appends_columns_and_renames_those_of_inlined_tables(catalog):
    write_history(catalog)
    before, layout_before = dump_catalog(catalog), dump_schema(catalog)

    with ducklakepy_lake.open_lake(catalog, migrate=True) as lake:
        assert lake.version() == "1.1"

    after, layout = dump_catalog(catalog), dump_schema(catalog)
    for table, names in APPENDED.items():
        assert [name for name, _, _ in layout[table]] == [
            *(name for name, _, _ in layout_before[table]),
            *names,
        ]
        assert {row[name] for row in after[table] for name in names} == {None}
    assert after["ducklake_view_column_tag"] == []
    inlined = [
        table for table in layout if table.startswith("ducklake_inlined_data_") and table[-1].isdigit()
    ]
    assert inlined
    for table in inlined:
        names = [name for name, _, _ in layout[table]][:3]
        assert names == ["_ducklake_row_id", "_ducklake_begin_snapshot", "_ducklake_end_snapshot"]
    (deletes,) = (table for table in layout if table.startswith("ducklake_inlined_delete_"))
    assert [name for name, _, _ in layout[deletes]] == ["file_id", "row_id", "begin_snapshot"]
    changed = {table for table, rows in without(after, APPENDED).items() if rows != before[table]}
    assert changed == {"ducklake_metadata", "ducklake_column"}


def test_the_default_of_a_renamed_field_is_repaired(sqlite_catalog):
    write_history(sqlite_catalog)
    defaults = [
        row["initial_default"]
        for row in dump_catalog(sqlite_catalog)["ducklake_column"]
        if row["column_name"] == "k2"
    ]
    assert defaults == [None]

    ducklakepy_lake.open_lake(sqlite_catalog, migrate=True).close()

    (repaired,) = (
        row for row in dump_catalog(sqlite_catalog)["ducklake_column"] if row["column_name"] == "k2"
    )
    assert (repaired["initial_default"], repaired["default_value"], repaired["default_value_type"]) == (
        "7",
        "7",
        "literal",
    )


def test_every_snapshot_reads_as_before_for_both_readers(catalog, judge):
    write_history(catalog)
    with duckdb_lake.open_lake(catalog) as reference:
        expected = {
            n: reference.sql(f"SELECT rowid, i, st.a, st.b FROM t AT (VERSION => {n}) ORDER BY rowid")
            for n in range(1, len(HISTORY) + 1)
        }

    with ducklakepy_lake.open_lake(catalog, migrate=True) as lake:
        assert lake.snapshots() == list(range(len(HISTORY) + 1))
        for n, rows in expected.items():
            found = lake.read_row_ids("t", n).to_pylist()
            assert [
                (row["rowid"], row["i"], *((row["st"]["a"], row["st"]["b"]) if row["st"] else (None, None)))
                for row in found
            ] == rows
        assert lake.view("s.v")["sql"].startswith("SELECT i FROM")
    with duckdb_lake.open_lake(judge(catalog)) as reference:
        for n, rows in expected.items():
            found = reference.sql(f"SELECT rowid, i, st.a, st.b FROM t AT (VERSION => {n}) ORDER BY rowid")
            assert found == rows


def test_a_migrated_lake_is_written_with_the_new_columns(catalog, judge):
    write_history(catalog)

    with ducklakepy_lake.open_lake(catalog, migrate=True) as lake:
        lake.insert("t", [{"i": 1000 + n} for n in range(20)])
        lake.delete("t", "i BETWEEN 1000 AND 1014")
        lake.create_schema("s.nested")
        lake.flush("t")
        count = lake.count("t")

    files = dump_catalog(catalog)["ducklake_data_file"]
    assert [row["row_group_count"] for row in files][-1] == 1
    with duckdb_lake.open_lake(judge(catalog)) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(count,)]


def test_a_user_column_with_a_new_name_stops_the_migration_before_anything_is_changed(catalog):
    write_history(catalog)
    write_history(
        catalog, ("CREATE TABLE odd (_ducklake_end_snapshot INTEGER)", "INSERT INTO odd VALUES (1)")
    )
    before = dump_catalog(catalog)

    with pytest.raises(OracleError, match='column "_ducklake_end_snapshot"'):
        ducklakepy_lake.open_lake(catalog, migrate=True)

    assert dump_catalog(catalog) == before
