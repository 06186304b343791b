"""A migrated catalog is one of 1.0 for everybody: its tables, what DuckDB does next, what we do next."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogMigratedError, TransactionConflictError
from tests.golden.old_lakes.record import rows_at_every_snapshot
from tests.interop.lakes import alone
from tests.interop.old_lakes import OLD_VERSIONS, OldLake, copy_lake, old_lake
from tests.reference.catalog_dump import KEYS, assert_catalogs_equal, dump_catalog, dump_schema
from tests.reference.catalogs import CATALOG_KINDS
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

GOES_ON = [
    "INSERT INTO t VALUES (1, 'in the catalog', NULL, NULL, 2)",
    "INSERT INTO t SELECT x, 's', [x], {'a': x, 'b': 'y'}, x FROM range(20) r(x)",
    "DELETE FROM t WHERE i = 12",
    "DELETE FROM t WHERE i < 5",
    "UPDATE p SET n = n + 100 WHERE k = 'k0'",
    "ALTER TABLE t ADD COLUMN more VARCHAR DEFAULT 'x'",
    "INSERT INTO m FROM range(200, 220)",
    "INSERT INTO m FROM range(300, 320)",
    "SELECT count(*) FROM t WHERE st.b = 'x'",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
    "ALTER TABLE m RENAME TO renamed",
    "CREATE TABLE other.again AS FROM t",
]
SAYS_THE_SAME = ("CALL ducklake_merge", "CALL ducklake_flush", "SELECT")
EXPIRY = [
    "CALL ducklake_expire_snapshots('lake', versions => range(0, 20))",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
]


LAYOUTS = [*(("sqlite", version) for version in OLD_VERSIONS), *((kind, "0.1") for kind in CATALOG_KINDS[1:])]


@pytest.mark.parametrize(("kind", "version"), LAYOUTS)
def test_tables_are_those_of_a_new_catalog(kind, version, new_catalog, tmp_path):
    old = old_lake(version, tmp_path / "old")
    moved = old if kind == "sqlite" else copy_lake(old, new_catalog(kind))
    new = new_catalog(kind)
    with open_lake(new) if kind != "mariadb" else Lake.create(new.sqlalchemy_url, new.data_path):
        pass  # DuckDB cannot make a catalog that it can write in MariaDB

    with Lake.connect(moved.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()

    ours = dump_schema(moved.catalog)
    assert ours.keys() >= KEYS.keys()
    assert {name: layout for name, layout in ours.items() if name in KEYS} == {
        name: layout for name, layout in dump_schema(new).items() if name in KEYS
    }


@pytest.fixture
def native(tmp_path) -> OldLake:
    """The lake that the reference of today makes of the same history."""
    lake = old_lake("0.4", tmp_path / "native")
    lake.execute("UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
    return lake


# "table.column": why a migrated lake differs there from one that was never old.
DIFFERENT = {
    "ducklake_snapshot.next_file_id": "the old files got ids in the schedule of deletions",
    "ducklake_files_scheduled_for_deletion": "the delete files that were joined",
    "ducklake_snapshot_changes.changes_made": "compaction had another word",
    "ducklake_file_column_stats.value_count": "older clients counted list elements otherwise",
    "ducklake_file_column_stats.null_count": "as well",
    "ducklake_file_column_stats.column_size_bytes": "as well",
}
FORGOTTEN = {(1, 4), (1, 7)}  # whose bounds left files out: elements of `l`, and `st.b`


@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_rows_are_those_that_the_reference_writes(version, native, tmp_path):
    old = old_lake(version, tmp_path / "old")
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()

    ours, theirs = dump_catalog(old.catalog), dump_catalog(native.catalog)
    bounds = theirs["ducklake_table_column_stats"]
    theirs["ducklake_table_column_stats"] = [
        row for row in bounds if (row["table_id"], row["column_id"]) not in FORGOTTEN
    ]
    assert len(theirs["ducklake_table_column_stats"]) == len(bounds) - 2
    assert_catalogs_equal(ours, theirs, ignore=DIFFERENT)


@pytest.mark.parametrize("version", ["0.1", "0.3"])
def test_duckdb_goes_on_as_on_a_lake_of_its_own(version, native, tmp_path, size):
    old = old_lake(version, tmp_path / "old")
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()

    with open_lake(old.catalog) as migrated, open_lake(native.catalog) as twin:
        for statements in (GOES_ON, EXPIRY):
            for statement in statements:
                assert done(migrated, statement) == done(twin, statement), statement
            assert rows_of(migrated, size) == rows_of(twin, size)


def rows_of(reference: DuckLakeConnection, size: str) -> object:
    if size == "full":
        return rows_at_every_snapshot(reference.raw)
    newest = max(reference.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')"))[0]
    queries = ["FROM t", "FROM p", "FROM other.again", f"FROM renamed AT (VERSION => {newest})"]
    for at in (4, 17, 22, 29):
        known = reference.sql(f"SELECT 1 FROM ducklake_snapshots('lake') WHERE snapshot_id = {at}")
        queries += [f"FROM {table} AT (VERSION => {at})" for table in ("t", "m")[: 1 + (at > 16)] if known]
    assert len(queries) > 5
    return [sorted(map(str, reference.sql(query))) for query in queries]


def done(reference: DuckLakeConnection, statement: str) -> list[tuple[object, ...]]:
    """Run a statement, and return its rows where those do not name files or times."""
    rows = reference.sql(statement)
    return (
        sorted(rows) if statement.startswith(("CALL ducklake_merge", "CALL ducklake_flush", "SELECT")) else []
    )


@pytest.mark.parametrize("version", ["0.1", "0.3"])
def test_we_go_on(version, tmp_path):
    old = old_lake(version, tmp_path / "old")
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        before = lake.row_count("t")

        lake.append_arrow("m", pa.table({"n": pa.array(range(50), pa.int32())}))
        with lake.transaction() as tx:
            assert tx.delete_rows("t", "i < 5") == 3
            tx.add_column("t", "more", "varchar", "x")
        lake.expire_snapshots(keep_last=2)

        assert lake.verify() == []
        assert (lake.row_count("t"), lake.row_count("m")) == (before - 3, 62)
    with open_lake(old.catalog) as reference:
        assert reference.sql("SELECT count(*), count(more) FROM t") == [(before - 3, before - 3)]
        assert reference.sql("SELECT count(*) FROM m") == [(62,)]


_VERBS: dict[str, Callable[[Lake, int], object]] = {
    "tables": lambda lake, _: lake.tables(),
    "schema": lambda lake, _: lake.reads.schema("b"),
    "table": lambda lake, _: lake.table_snapshot("b.t"),
    "rows": lambda lake, _: lake.read_arrow("t"),
    "rows then": lambda lake, then: lake.read_arrow("t", at=then),
    "rows at a time": lambda lake, _: lake.read_arrow("t", at=datetime.now(UTC)),
    "count": lambda lake, _: lake.row_count("t"),
    "files": lambda lake, _: lake.files("t"),
    "table_info": lambda lake, _: lake.table_info("t"),
    "bounds": lambda lake, _: lake.column_bounds("t", "i"),
    "changes": lambda lake, then: lake.changes("t", then, then),
    "snapshot": lambda lake, _: lake.current_snapshot(),
    "sensor": lambda lake, then: lake.table_changes("t", then, ("insert",)),
    "health": lambda lake, _: lake.table_health(),
    "verify": lambda lake, _: lake.verify(),
    "expiry": lambda lake, _: lake.expire_snapshots(keep_last=1, dry_run=True),
    "expiry, wet": lambda lake, _: lake.expire_snapshots(keep_last=1),
    "cleanup": lambda lake, _: lake.cleanup_old_files(older_than=timedelta(0)),
    "orphans": lambda lake, _: lake.delete_orphaned_files(older_than=timedelta(0), dry_run=True),
    "flush": lambda lake, _: lake.flush_inlined_data(dry_run=True),
    "restore": lambda lake, then: lake.restore("t", at=then),
    "options": lambda lake, _: lake.reads.options("t"),
    "set_option": lambda lake, _: lake.set_option("data_inlining_row_limit", 5),
    "repair": lambda lake, _: lake.repair([], dry_run=True),
}


def test_who_opened_the_lake_before_a_migration_does_nothing_after_it(sqlite_catalog):
    """To a client of 1.0 a nested schema is one beside the others, perhaps of the same name."""
    url = sqlite_catalog.sqlalchemy_url
    with Lake.create(url, sqlite_catalog.data_path) as lake, Lake.connect(url) as other:
        alone(lake).create_table("gone", {"i": "int32"})
        lake.append_arrow("gone", pa.table({"i": pa.array(range(50), pa.int32())}))
        with lake.transaction() as tx:
            tx.drop_table("gone")
            tx.create_table("t", {"i": "int32"})
        lake.expire_snapshots(keep_last=1)  # a file waits for its deletion
        alone(lake).comment_on_table("t", "new")
        then = lake.current_snapshot().id
        with (  # noqa: PT012 - the commit is what fails
            pytest.raises(TransactionConflictError, match=r"as DuckLake 1\.0"),
            other.transaction() as tx,
        ):
            tx.create_schema("a")
            lake.migrate("1.1", backup=False)
        with pytest.raises(CatalogMigratedError, match="migrated"):
            other.set_option("skip_stats_columns", "i", table="t")
        alone(lake).create_schema("a")
        with Lake.connect(url) as again, again.transaction() as tx:
            tx.create_schema("a.b")
            tx.create_table("a.b.t", {"i": "int32"})
        for do in _VERBS.values():
            with pytest.raises(CatalogMigratedError, match=r"as DuckLake 1\.0 and migrated to 1\.1"):
                do(other, then)
        assert lake.verify() == []
