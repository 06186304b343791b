"""Tables with inlined rows and deletes, written by the reference, are read by us at every snapshot."""

import pyarrow as pa
import pytest
from sqlalchemy import text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_delete_marks, read_inlined
from airflow_provider_ducklake.lake.errors import CatalogError, UnsupportedFeatureError
from tests.interop.inlined_lake import database, shown
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

HISTORIES = {
    "rename, add, drop, delete and update": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE t RENAME i TO j",
        "INSERT INTO t VALUES (3, 'c')",
        "ALTER TABLE t ADD COLUMN k INTEGER DEFAULT 7",
        "INSERT INTO t VALUES (4, 'd', 8)",
        "ALTER TABLE t DROP COLUMN s",
        "DELETE FROM t WHERE j = 2",
        "UPDATE t SET k = 9 WHERE j = 1",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE u RENAME TO t",
        "DELETE FROM t",
    ],
    "wider types": [
        "CREATE TABLE t (f FLOAT, b TINYINT, d DATE, n DECIMAL(4,2), u UINTEGER, s STRUCT(a INTEGER)[])",
        "INSERT INTO t VALUES (1.1, 1, '2020-01-01', 1.5, 4294967295, [{'a': 1}]), (NULL, 2, NULL, 0, 0, [])",
        "ALTER TABLE t ALTER f TYPE DOUBLE",
        "ALTER TABLE t ALTER b TYPE BIGINT",
        "ALTER TABLE t ALTER d TYPE TIMESTAMP",
        "ALTER TABLE t ALTER n TYPE DECIMAL(9,4)",
        "ALTER TABLE t ALTER u TYPE UBIGINT",
        "INSERT INTO t VALUES (0.1, 3, '2020-01-01 00:00:01', 1.2345, 18446744073709551615, NULL)",
    ],
    "fields of a struct": [
        "CREATE TABLE t (s STRUCT(a INTEGER, b VARCHAR))",
        "INSERT INTO t VALUES ({'a': 1, 'b': 'x'}), (NULL), ({'a': NULL, 'b': ''})",
        "ALTER TABLE t RENAME s.a TO z",
        "ALTER TABLE t ADD COLUMN s.n INTEGER",
        "INSERT INTO t VALUES ({'z': 2, 'b': 'y', 'n': 3})",
        "ALTER TABLE t DROP COLUMN s.b",
    ],
    "names that trade places": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t RENAME i TO x",
        "ALTER TABLE t RENAME s TO i",
        "ALTER TABLE t RENAME x TO s",
        "INSERT INTO t VALUES (2, 'b')",
    ],
    "a name used again": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t DROP COLUMN s",
        "ALTER TABLE t ADD COLUMN s VARCHAR DEFAULT 'new'",
        "INSERT INTO t VALUES (2, 'b')",
    ],
    "odd names": [
        'CREATE TABLE t ("A b" INTEGER, "%(x)s" VARCHAR, "q""q" VARCHAR, "ä:b" INTEGER, "Value" INTEGER)',
        "INSERT INTO t VALUES (1, 'a', 'b', 2, 3)",
        'ALTER TABLE t RENAME "A b" TO "C"',
        'UPDATE t SET "C" = 3, "%(x)s" = \'c\'',
    ],
    "inlined deletes of rows in files": [
        "CREATE TABLE t (i INTEGER)",
        "INSERT INTO t SELECT range::INTEGER FROM range(20)",
        "DELETE FROM t WHERE i IN (0, 3, 4)",
        "INSERT INTO t SELECT 100 + range::INTEGER FROM range(20)",
        "DELETE FROM t WHERE i IN (7, 119)",
        "INSERT INTO t VALUES (200)",
        "UPDATE t SET i = i + 1000 WHERE i IN (5, 105, 200)",
        "ALTER TABLE t ADD COLUMN z INTEGER DEFAULT 5",
        "DELETE FROM t WHERE i = 9",
    ],
    "several changes in one transaction": [
        "CREATE TABLE t (i INTEGER)",
        "BEGIN; INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN z INTEGER",
        "INSERT INTO t VALUES (2, 3); COMMIT",
        "BEGIN; UPDATE t SET i = 5 WHERE i = 1; DELETE FROM t WHERE i = 2",
        "INSERT INTO t VALUES (6, 7); COMMIT",
    ],
    "an expiry": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t RENAME i TO j",
        "ALTER TABLE t DROP COLUMN s",
        "INSERT INTO t VALUES (2)",
        "CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3])",
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_every_snapshot_is_read_as_the_reference_reads_it(catalog, history):
    with open_lake(catalog) as reference:
        for statement in history:
            reference.sql(statement)
        versions = [version for (version,) in reference.sql("SELECT snapshot_id FROM snapshots()")]
        theirs = {version: _at(reference, version) for version in versions if _exists(reference, version)}

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        ours = {version: _rows(lake.read_arrow("t", at=version)) for version in theirs}

    assert ours == theirs
    assert len(theirs) > 1


def _exists(reference: DuckLakeConnection, version: int) -> bool:
    names = reference.sql(
        f"SELECT table_name FROM __ducklake_metadata_lake.ducklake_table WHERE begin_snapshot <= {version}"
        f" AND (end_snapshot IS NULL OR end_snapshot > {version})"
    )
    return ("t",) in names


def _at(reference: DuckLakeConnection, version: int) -> list[object]:
    return _rows(reference.arrow(f"SELECT * FROM t AT (VERSION => {version})"))


def _rows(table: pa.Table) -> list[object]:
    return sorted((shown(list(row.items())) for row in table.to_pylist()), key=repr)


def test_row_ids_and_marks_are_those_of_the_reference(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT range AS i FROM range(20)")
        reference.sql("DELETE FROM t WHERE i IN (4, 2)")
        reference.sql("INSERT INTO t VALUES (50), (51)")
        reference.sql("UPDATE t SET i = 70 WHERE i = 7")
        theirs = {(i, row_id) for i, row_id in reference.sql("SELECT i, rowid FROM t") if i > 20}

    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.opened.reading() as connection:
        table = lake.table_snapshot("t", with_files=True)
        parts = read_inlined(connection, lake.opened.catalog, table)
        now = inlined_delete_marks(connection, lake.opened.catalog, table.table_id, table.snapshot.id)
        before = inlined_delete_marks(connection, lake.opened.catalog, table.table_id, 2)

    assert {
        (row["i"], row_id) for part in parts for row, row_id in zip(part.rows, part.row_ids, strict=True)
    } == theirs
    (positions,) = now.values()
    assert positions == [2, 4, 7]
    assert list(before.values()) == [[2, 4]]


def test_some_columns_are_read_in_the_order_asked_for(catalog):
    by_duckdb(catalog, "CREATE TABLE t (a HUGEINT, b INTEGER, c VARCHAR)", "INSERT INTO t VALUES (1, 2, 'x')")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t", columns=["C", "b"]).to_pylist() == [{"c": "x", "b": 2}]


def test_rows_that_duckdb_inlines_into_our_table_are_read(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64", "l": "uuid[]"})
        alone(lake).append_arrow("t", pa.table({"i": [1, 2], "l": pa.nulls(2, pa.list_(pa.uuid()))}))
        with open_lake(catalog) as reference:
            reference.sql("INSERT INTO t VALUES (3, [uuid()])")
            reference.sql("DELETE FROM t WHERE i = 1")
            theirs = reference.sql("SELECT i, l FROM t ORDER BY i")

        assert sorted(lake.read_arrow("t").to_pylist(), key=lambda row: row["i"]) == [
            {"i": i, "l": uuids} for i, uuids in theirs
        ]
        assert lake.read_arrow("t", at=2).num_rows == 2


def test_columns_that_the_catalog_does_not_know_are_not_guessed(catalog):
    by_duckdb(catalog, "CREATE TABLE t (i INTEGER)", "INSERT INTO t VALUES (1)")
    with database(catalog) as connection:
        connection.execute(text("UPDATE ducklake_column SET column_name = 'J'"))

    with (
        Lake.connect(catalog.sqlalchemy_url) as lake,
        pytest.raises(CatalogError, match=r"row_id, begin_snapshot, end_snapshot, i, but"),
    ):
        lake.read_arrow("t")


def test_a_registration_without_its_table_is_passed_over(catalog):
    by_duckdb(catalog, "CREATE TABLE t AS SELECT range AS i FROM range(20)")
    with database(catalog) as connection:
        connection.execute(text("DROP TABLE ducklake_inlined_data_1_1"))

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 20


def test_rows_inlined_in_mariadb_are_refused(mariadb_catalog):
    catalog = mariadb_catalog
    by_duckdb(catalog, "CREATE TABLE t (i INTEGER)", "INSERT INTO t VALUES (1)")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError, match=r"main\.t at snapshot 2"):
            lake.read_arrow("t")
        assert lake.read_arrow("t", at=1).num_rows == 0


def test_a_column_that_came_later_can_be_read_alone(catalog):
    with open_lake(catalog) as reference:
        for statement in HISTORIES["rename, add, drop, delete and update"][:6]:
            reference.sql(statement)
        theirs = reference.sql("SELECT k FROM t ORDER BY ALL")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        ours = lake.read_arrow("t", columns=["k"])

        assert sorted(ours["k"].to_pylist()) == [k for (k,) in theirs] == [7, 7, 7, 8]
        assert lake.read_arrow("t", columns=["k"], filter="k = 7").num_rows == 3
