"""Whatever the reference did to a table, we read the same rows at every snapshot that it can read."""

import sqlite3
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from tests.interop.lakes import by_duckdb
from tests.reference.duckdb_lake import open_lake

FILES_ONLY = "CALL lake.set_option('data_inlining_row_limit', 0)"


def rows(first: int, end: int) -> str:
    struct = "{'a': x, 'b': 'b' || x}"
    return f"SELECT x AS i, 's' || x AS s, [x, x + 1] AS l, {struct} AS st FROM range({first}, {end}) r(x)"


TABLE = "CREATE TABLE t (i INT, s VARCHAR, l INT[], st STRUCT(a INT, b VARCHAR))"


def fill(first: int, end: int) -> str:
    return "INSERT INTO t " + rows(first, end)


MERGE = "CALL ducklake_merge_adjacent_files('lake')"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
SCENARIOS = {
    "delete files, one of several snapshots": [
        FILES_ONLY,
        fill(0, 100),
        "DELETE FROM t WHERE i % 10 = 3",
        "DELETE FROM t WHERE i % 10 = 4",
        "DELETE FROM t WHERE i < 90",
        "DELETE FROM t",
    ],
    "updates and merges": [
        FILES_ONLY,
        fill(0, 100),
        "UPDATE t SET s = 'u' WHERE i < 20",
        "MERGE INTO t USING (SELECT 5 AS i) AS m ON t.i = m.i WHEN MATCHED THEN DELETE",
        "UPDATE t SET st = {'a': 0, 'b': NULL} WHERE i BETWEEN 10 AND 30",
    ],
    "merged files": [
        FILES_ONLY,
        *(fill(10 * n, 10 * n + 10) for n in range(4)),
        MERGE,
        "DELETE FROM t WHERE i IN (1, 15)",
        fill(100, 110),
        "UPDATE t SET s = 'm' WHERE i = 25",
        MERGE,
    ],
    "rewritten files": [
        FILES_ONLY,
        fill(0, 50),
        "DELETE FROM t WHERE i % 2 = 0",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)",
        "DELETE FROM t WHERE i < 11",
    ],
    "inlined rows and deletes, flushed": [
        fill(0, 3),
        "UPDATE t SET s = 'u' WHERE i = 1",
        "DELETE FROM t WHERE i = 2",
        fill(100, 150),
        "DELETE FROM t WHERE i IN (0, 101, 102)",
        FLUSH,
        "DELETE FROM t WHERE i = 103",
        fill(200, 202),
        FLUSH,
        MERGE,
    ],
    "deletion vectors": [
        FILES_ONLY,
        "CALL lake.set_option('write_deletion_vectors', true)",
        fill(0, 100),
        "DELETE FROM t WHERE i % 7 = 0",
        "CALL lake.set_option('write_deletion_vectors', false)",
        "DELETE FROM t WHERE i % 7 = 1",
        fill(100, 200),
    ],
    "columns that change between files": [
        FILES_ONLY,
        fill(0, 5),
        "ALTER TABLE t ADD COLUMN late INT DEFAULT 7",
        "ALTER TABLE t RENAME COLUMN s TO renamed",
        "ALTER TABLE t ADD COLUMN st.c DATE",
        "INSERT INTO t VALUES (9, 'x', [NULL], {'a': 1, 'b': 'y', 'c': DATE '2024-02-29'}, 8)",
        "ALTER TABLE t ALTER i SET DATA TYPE BIGINT",
        "ALTER TABLE t DROP COLUMN l",
        "DELETE FROM t WHERE i = 2",
        "INSERT INTO t SELECT 5000000000, 'big', {'a': 2, 'b': 'z', 'c': NULL}, NULL",
        MERGE,
    ],
    "partitions": [
        FILES_ONLY,
        "ALTER TABLE t SET PARTITIONED BY (s)",
        "INSERT INTO t SELECT i, 'p' || i % 3, l, st FROM (" + rows(0, 30) + ")",
        "DELETE FROM t WHERE i = 4",
        "INSERT INTO t SELECT i, 'p' || i % 3, l, st FROM (" + rows(30, 60) + ")",
        MERGE,
    ],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rows_equal_the_references_at_every_snapshot(catalog, scenario):
    with open_lake(catalog) as reference:
        for statement in [TABLE, *SCENARIOS[scenario]]:
            reference.sql(statement)

        assert compared(catalog, reference) > 4


@pytest.mark.parametrize("kind", ["flat", "nested"])
def test_files_of_others_are_read_by_their_mapping(catalog, tmp_path, kind):
    folder = tmp_path / "given" / "region=north%20sea"
    folder.mkdir(parents=True)
    value: dict[str, pa.Array] = {
        "flat": {
            "J": pa.array([1, 2], pa.int32()),
            "extra": pa.array(["x", "y"]),
            "I": pa.array([3, None], pa.int64()),
        },
        "nested": {
            "n": pa.array(
                [{"B": [{"y": 1, "z": "q"}], "m": [("k", 1)]}, {"B": None, "m": []}],
                pa.struct(
                    [
                        ("m", pa.map_(pa.string(), pa.int32())),
                        ("B", pa.list_(pa.struct([("z", pa.string()), ("y", pa.int32())]))),
                    ]
                ),
            ),
            "I": pa.array([3, 4], pa.int64()),
        },
    }[kind]
    pq.write_table(pa.table(value), folder / "a.parquet")
    columns = {
        "flat": "i BIGINT, late DATE DEFAULT '2024-01-01', j BIGINT, region VARCHAR",
        "nested": "i BIGINT, n STRUCT(b STRUCT(y INT, z VARCHAR)[], m MAP(VARCHAR, INT)), region VARCHAR",
    }[kind]
    with open_lake(catalog) as reference:
        reference.sql(FILES_ONLY)
        reference.sql(f"CREATE TABLE t ({columns})")
        reference.sql(
            f"CALL ducklake_add_data_files('lake', 't', '{folder}/a.parquet', hive_partitioning => true, "
            "allow_missing => true, ignore_extra_columns => true)"
        )
        reference.sql("ALTER TABLE t RENAME COLUMN i TO key")
        reference.sql("DELETE FROM t WHERE key = 3")
        if kind == "flat":
            reference.sql("INSERT INTO t VALUES (1, NULL, 2, 'here')")

        assert compared(catalog, reference) > 3


def test_a_file_moved_out_of_its_folder_is_named(sqlite_catalog, tmp_path):
    folder = tmp_path / "k=1"
    folder.mkdir()
    pq.write_table(pa.table({"i": pa.array([1], pa.int32())}), folder / "a.parquet")
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (i INT, k INT)")
        reference.sql(
            f"CALL ducklake_add_data_files('lake', 't', '{folder}/a.parquet', hive_partitioning => true)"
        )
        (folder / "a.parquet").rename(tmp_path / "a.parquet")
    with sqlite3.connect(sqlite_catalog.location) as catalog:
        catalog.execute("UPDATE ducklake_data_file SET path = ?", [f"{tmp_path}/a.parquet"])
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, pytest.raises(StorageError, match="k=…"):
        lake.read_arrow("t")


def test_a_lake_with_its_files_elsewhere_is_read_there(sqlite_catalog, tmp_path):
    by_duckdb(sqlite_catalog, FILES_ONLY, TABLE, fill(0, 5))
    moved = tmp_path / "moved"
    Path(sqlite_catalog.data_path).rename(moved)
    with open_lake(sqlite_catalog, f"{moved}/", override_data_path=True) as reference:
        reference.sql("DELETE FROM t WHERE i = 3")
        theirs = reference.arrow("FROM t")
    with Lake.connect(sqlite_catalog.sqlalchemy_url, data_path=str(moved)) as lake:
        assert as_multiset(lake.read_arrow("t")) == as_multiset(theirs)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, pytest.raises(StorageError):
        lake.read_arrow("t")


def test_a_damaged_deletion_vector_is_named(sqlite_catalog):
    by_duckdb(sqlite_catalog, TABLE, *SCENARIOS["deletion vectors"][:4])
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        (file,) = lake.table_snapshot("t", with_files=True).files
        path = file.delete_file.path
        assert path.endswith(".puffin")
        vector = Path(path)
        vector.write_bytes(vector.read_bytes().replace(b"\x01", b"\x02"))

        with pytest.raises(StorageError, match=r"puffin is damaged"):
            lake.read_arrow("t")


def compared(catalog, reference) -> int:
    """Compare table `t` at every snapshot; return how many had the table."""
    ((newest,),) = reference.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
    found = 0
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for version in range(newest + 1):
            if ("main", "t") not in [one.parts for one in lake.tables(at=version)]:
                with pytest.raises(duckdb.CatalogException):
                    reference.sql(f"FROM t AT (VERSION => {version})")
                continue
            theirs = reference.arrow(f"FROM t AT (VERSION => {version})")
            ours = lake.read_arrow("t", at=version)
            assert ours.column_names == theirs.column_names, version
            assert as_multiset(ours) == as_multiset(theirs), version
            found += 1
    return found


def as_multiset(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))
