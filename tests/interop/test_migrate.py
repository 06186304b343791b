"""Lakes of 0.1 to 0.4 become lakes of 1.0 in which every snapshot, and every change, is as it was."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest
from sqlalchemy import event, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.migrations import migrate
from airflow_provider_ducklake.lake.errors import (
    CatalogError,
    CatalogMigratedError,
    TransactionConflictError,
    UnsupportedVersionError,
)
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.golden.old_lakes.record import rows_at_every_snapshot
from tests.interop.job_columns import another_user
from tests.interop.lakes import alone, by_duckdb
from tests.interop.old_lakes import (
    OLD_VERSIONS,
    RECORDED,
    OldLake,
    Rows,
    copy_lake,
    forget_snapshots,
    old_lake,
    read_alike,
    recorded,
    writing,
)
from tests.reference.catalog_dump import KEYS, assert_catalogs_equal, dump_catalog, dump_schema
from tests.reference.catalogs import CATALOG_KINDS
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

# Of each table's changes: those that deletes, merges and updates of the history lie in.
RANGES = {"t": [(1, 26), (3, 5), (4, 5), (5, 5)], "m": [(16, 16), (17, 22), (19, 21)]}
# A DuckDB file is opened anew for each question.
SNAPSHOTS = {"duckdb": (3, 17, 26)}
FEED = "SELECT snapshot_id, rowid, change_type, * EXCLUDE (snapshot_id, rowid, change_type)"


@pytest.fixture(params=CATALOG_KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=OLD_VERSIONS)
def old(request, kind, new_catalog, tmp_path) -> OldLake:
    lake = old_lake(request.param, tmp_path / "old")
    return lake if kind == "sqlite" else copy_lake(lake, new_catalog(kind))


@pytest.fixture(scope="module")
def native_changes(tmp_path_factory) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What we, and the reference, say of the same history that it wrote itself."""
    lake = old_lake("0.4", tmp_path_factory.mktemp("native") / "lake")
    lake.execute("UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
    with Lake.connect(lake.catalog.sqlalchemy_url) as ours:
        changes = our_changes(ours)
    with open_lake(lake.catalog) as reference:
        return changes, their_changes(reference)


def expected_rows(old: OldLake) -> Rows:
    return {
        snapshot: {name: read_alike(rows) for name, rows in tables.items()}
        for snapshot, tables in old.rows.items()
    }


def our_rows(lake: Lake, expected: Rows) -> Rows:
    return {
        snapshot: {name: texts(lake.read_arrow(name, at=int(snapshot))) for name in tables}
        for snapshot, tables in expected.items()
    }


def their_rows(reference: DuckLakeConnection) -> Rows:
    return {
        snapshot: {name: read_alike(rows) for name, rows in tables.items()}
        for snapshot, tables in rows_at_every_snapshot(reference.raw).items()
    }


def our_changes(lake: Lake) -> dict[str, list[str]]:
    return {
        f"{table} {start} {end}": texts(lake.changes(table, start, end).read_arrow())
        for table, ranges in RANGES.items()
        for start, end in ranges
    }


def their_changes(reference: DuckLakeConnection) -> dict[str, list[str]]:
    return {
        f"{table} {start} {end}": sorted(
            str(row) for row in reference.sql(f"{FEED} FROM lake.table_changes('{table}', {start}, {end})")
        )
        for table, ranges in RANGES.items()
        for start, end in ranges
    }


def texts(rows: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in rows.to_pylist())


def test_every_snapshot_and_change_is_as_it_was(old, kind, native_changes):
    expected = expected_rows(old)
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        result = lake.migrate()

        assert (result.from_version, result.to_version, result.dry_run) == (old.version, "1.0", False)
        assert lake.version.value == "1.0"
        chosen = SNAPSHOTS.get(kind, range(99))
        looked_at = {snapshot: tables for snapshot, tables in expected.items() if int(snapshot) in chosen}
        assert our_rows(lake, looked_at) == looked_at
        assert our_changes(lake) == native_changes[0]
        assert lake.migrate().steps == ()
        assert lake.verify() == []
    with open_lake(old.catalog.attach_string) as reference:
        assert their_rows(reference) == expected
        assert their_changes(reference) == native_changes[1]


@pytest.mark.parametrize("column", ["scope VARCHAR", "scope_id BIGINT"])
def test_a_migration_that_was_stopped_between_two_columns_of_options_goes_on(tmp_path, column):
    lake = old_lake("0.1", tmp_path / "old")
    lake.execute(f"ALTER TABLE ducklake_metadata ADD COLUMN {column}")

    with Lake.connect(lake.catalog.sqlalchemy_url, to_migrate=True) as ours:
        if column.startswith("scope_id"):  # no migration of ours begins with it
            with pytest.raises(CatalogError, match="in this order"):
                ours.migrate()
        else:
            ours.migrate()
            assert ours.verify() == []


# A migrated catalog is one of 1.0 for everybody: its tables, what DuckDB does next, what we do next.


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


# What a migration says beforehand, what it refuses, and what others do meanwhile; nothing is half done.


@pytest.fixture
def merged(tmp_path) -> OldLake:
    """A lake of 0.3 with a merged file that does not say by which snapshot each row came."""
    lake = old_lake("0.3", tmp_path / "old")
    forget_snapshots(lake)
    return lake


def everything(lake: OldLake) -> tuple[object, ...]:
    files = sorted(Path(lake.catalog.data_path).rglob("*.parquet"))
    return dump_schema(lake.catalog), dump_catalog(lake.catalog), files


def test_a_dry_run_says_what_is_done_and_does_nothing(merged):
    before = everything(merged)
    with Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        plan = lake.migrate(dry_run=True)

        assert everything(merged) == before
        assert (plan.dry_run, plan.from_version, plan.to_version, plan.backup) == (True, "0.3", "1.0", None)
        assert lake.version.value == "0.3"
        done = lake.migrate(backup=False)

    assert done.steps == plan.steps
    assert (done.files, done.bytes) == (plan.files, plan.bytes)
    assert plan.files == 2  # the merged file, and the delete files of a file of `t` become one
    assert "add column ducklake_data_file.partial_max" in plan.steps
    assert plan.steps[-2:] == ("drop column ducklake_data_file.partial_file_info", "set the version to 1.0")


def test_a_catalog_that_has_1_0_is_left_alone(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        before = dump_catalog(sqlite_catalog)

        result = lake.migrate()

        assert (result.from_version, result.steps, result.backup) == ("1.0", (), None)
    assert dump_catalog(sqlite_catalog) == before


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_the_backup_is_the_catalog_as_it_was(merged, kind, new_catalog):
    lake_there = merged if kind == "sqlite" else copy_lake(merged, new_catalog(kind))
    before = dump_schema(lake_there.catalog), dump_catalog(lake_there.catalog)
    with Lake.connect(lake_there.catalog.sqlalchemy_url, to_migrate=True) as lake:
        backup = lake.migrate().backup
        assert lake.version.value == "1.0"

    assert Path(backup).parent == Path(lake_there.catalog.location).parent
    shutil.move(backup, lake_there.catalog.location)
    assert (dump_schema(lake_there.catalog), dump_catalog(lake_there.catalog)) == before
    with Lake.connect(lake_there.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        assert texts(lake.read_arrow("m", at=17)) == merged.rows["17"]["m"]


def test_a_server_has_backups_of_its_own(merged, new_catalog):
    moved = copy_lake(merged, new_catalog("postgres"))
    with Lake.connect(moved.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert lake.migrate().backup is None


def test_development_versions_are_refused_by_name(merged):
    merged.execute("UPDATE ducklake_metadata SET value = '0.4-dev1' WHERE key = 'version'")

    with pytest.raises(errors.UnsupportedVersionError, match=r"0\.4-dev1"):
        Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True)


@pytest.mark.parametrize("info", ["16:3|17:6", "16:3|17:2|19:12", "17:3|16:12", "nonsense"])
def test_counts_that_contradict_the_file_are_refused(merged, info):
    merged.execute("UPDATE ducklake_data_file SET partial_file_info = ? WHERE data_file_id = 13", info)
    before = everything(merged)

    with (
        Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.CatalogError, match="partial_file_info"),
    ):
        lake.migrate()

    assert everything(merged) == before


def test_columns_of_others_in_the_way_are_refused(merged):
    merged.execute("ALTER TABLE ducklake_delete_file ADD COLUMN ours BIGINT")
    before = everything(merged)

    with (
        Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.CatalogError, match="ours"),
    ):
        lake.migrate()

    assert everything(merged) == before


def merged_file(lake: OldLake) -> Path:
    with closing(sqlite3.connect(lake.catalog.location)) as connection:
        query = "SELECT path FROM ducklake_data_file WHERE data_file_id = 13"
        return Path(lake.catalog.data_path) / "main" / "m" / connection.execute(query).fetchone()[0]


def test_a_missing_file_is_found_before_anything_is_changed(merged):
    merged_file(merged).unlink()
    before = everything(merged)

    with (
        Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.StorageError, match=r"\.parquet"),
    ):
        lake.migrate()

    assert everything(merged) == before


@pytest.fixture
def damaged(merged) -> OldLake:
    """Everything wrong with it that a migration needs."""
    chain = "SELECT path FROM ducklake_delete_file WHERE data_file_id IN (SELECT data_file_id FROM "
    chain += "ducklake_delete_file GROUP BY data_file_id HAVING count(*) > 1)"
    with closing(sqlite3.connect(merged.catalog.location)) as connection:
        deletes = [path for (path,) in connection.execute(chain)]
    (first,) = Path(merged.catalog.data_path).rglob(deletes[0])
    first.write_bytes(b"PAR1")
    merged_file(merged).unlink()
    twin = "SELECT 99, 77, begin_snapshot, end_snapshot, file_order, 'twin.parquet', path_is_relative"
    others = "file_format, record_count, file_size_bytes, footer_size, row_id_start, partition_id"
    tail = f"{others}, encryption_key, {{}}, mapping_id FROM ducklake_data_file WHERE data_file_id = 13"
    merged.execute(f"INSERT INTO ducklake_data_file {twin}, {tail.format('partial_file_info')}")
    odd = twin.replace("99, 77", "98, table_id").replace("twin", "odd")
    merged.execute(f"INSERT INTO ducklake_data_file {odd}, {tail.format(repr('nonsense'))}")
    merged.execute("ALTER TABLE ducklake_delete_file ADD COLUMN ours BIGINT")
    return merged


def test_a_dry_run_names_every_refusal_with_its_remedy(damaged):
    before = everything(damaged)
    with Lake.connect(damaged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        refusals = lake.migrate(dry_run=True).refusals
        with pytest.raises(errors.CatalogError) as refused:
            lake.migrate()

    assert everything(damaged) == before
    order, odd, twin, merged, deletes = refusals
    assert "ours" in order
    assert "Drop the columns" in order
    assert "odd.parquet" in odd
    assert "'nonsense'" in odd
    assert "Restore the catalog" in odd
    assert "twin.parquet belongs to table 77" in twin
    assert merged_file(damaged).name in merged
    assert "expire all snapshots up to 19" in merged
    assert "Put the file back" in deletes
    assert all(one in str(refused.value) for one in (order, odd, twin))


def test_the_remedies_of_a_dry_run_help(merged):
    """A merged file that is gone is not looked for once the snapshots that need it have expired."""
    merged_file(merged).unlink()
    with Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert len(lake.migrate(dry_run=True).refusals) == 1
        for table in ("snapshot", "snapshot_changes"):
            merged.execute(f"DELETE FROM ducklake_{table} WHERE snapshot_id <= 19")

        assert lake.migrate(dry_run=True).refusals == ()
        assert lake.migrate(backup=False).to_version == "1.0"


def test_partition_keys_of_0_1_that_name_no_column_are_refused(tmp_path, new_catalog):
    merged = old_lake("0.1", tmp_path / "old")
    merged.execute("UPDATE ducklake_partition_column SET column_id = 40")
    moved = copy_lake(merged, new_catalog("mariadb"))
    before = everything(moved)
    with Lake.connect(moved.catalog.sqlalchemy_url, to_migrate=True) as lake:
        (refusal,) = lake.migrate(dry_run=True).refusals
        with pytest.raises(errors.CatalogError, match="names column 40 of a table"):
            lake.migrate()

    assert "Restore the catalog" in refusal
    assert everything(moved) == before


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_user_who_may_not_alter_the_tables_is_refused_and_half_migrates_nothing(kind, new_catalog):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"})
    before = dump_schema(catalog), dump_catalog(catalog)

    with another_user(catalog) as others, Lake.connect(others.sqlalchemy_url, to_migrate=True) as lake:
        (refusal,) = lake.migrate("1.1", dry_run=True).refusals
        with pytest.raises(errors.CatalogError) as refused:
            lake.migrate("1.1")
        assert lake.migrate("1.0").refusals == ()

    assert "may not alter the catalog's tables" in refusal
    assert {"postgres": "owner, postgres", "mariadb": "GRANT"}[kind] in refusal
    assert refusal in str(refused.value)
    assert (dump_schema(catalog), dump_catalog(catalog)) == before


def test_a_file_that_cannot_be_copied_as_it_is_is_refused(merged):
    with open_lake(
        "ducklake:" + str(Path(merged.catalog.location).with_name("other.duckdb")), "/"
    ) as reference:
        query = "SELECT n, INTERVAL (n) DAY AS v FROM range(12) r(n)"
        reference.sql(f"COPY ({query}) TO '{merged_file(merged)}' (FIELD_IDS {{n: 1}})")
    before = everything(merged)

    with (
        Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="column v"),
    ):
        lake.migrate()

    assert everything(merged) == before


def test_a_file_that_says_something_else_than_the_catalog_is_copied(merged):
    """As the older client read it: by the catalog."""
    path = merged_file(merged)
    rows = pq.read_table(path)
    field = pa.field(
        "_ducklake_internal_snapshot_id", pa.int64(), metadata={"PARQUET:field_id": "2147483539"}
    )
    pq.write_table(rows.append_column(field, pa.array([16] * 12, pa.int64())), path, store_schema=False)

    with Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        assert texts(lake.read_arrow("m", at=17)) == merged.rows["17"]["m"]
    assert sorted(map(str, by_duckdb(merged.catalog, "FROM m AT (VERSION => 17)"))) == merged.rows["17"]["m"]


def test_a_file_whose_snapshots_have_expired_stays(merged):
    for table in ("snapshot", "snapshot_changes"):
        merged.execute(f"DELETE FROM ducklake_{table} WHERE snapshot_id < 20")
    merged.execute("DELETE FROM ducklake_delete_file WHERE end_snapshot IS NOT NULL")
    with Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert lake.migrate().files == 0
        for snapshot in range(20, 27):
            assert texts(lake.read_arrow("m", at=snapshot)) == merged.rows[str(snapshot)]["m"]


def test_the_newest_snapshot_of_a_file_may_stand_alone(tmp_path):
    """So late builds of 0.3 write it, which count no rows; the file has the column."""
    merged = old_lake("0.3", tmp_path / "old")
    merged.execute(
        "UPDATE ducklake_data_file SET partial_file_info = 'partial_max:19' WHERE data_file_id = 13"
    )
    with Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        assert texts(lake.read_arrow("m", at=17)) == merged.rows["17"]["m"]
    rows = dump_catalog(merged.catalog)["ducklake_data_file"]
    assert {row["data_file_id"]: row["partial_max"] for row in rows}[13] == 19


# --- older clients that go on writing ---


def merge_once_more(lake: OldLake) -> None:
    """Do what an older client does that inserts twice and merges."""
    path = merged_file(lake)
    shutil.copy(path, path.with_name("again.parquet"))
    for snapshot in (27, 28):
        columns = "snapshot_time, schema_version, next_catalog_id, next_file_id + 1"
        lake.execute(
            f"INSERT INTO ducklake_snapshot SELECT {snapshot}, {columns} FROM ducklake_snapshot "
            f"WHERE snapshot_id = {snapshot - 1}"
        )
    lake.execute(
        "INSERT INTO ducklake_data_file SELECT 17, table_id, 27, end_snapshot, file_order, 'again.parquet', "
        "path_is_relative, file_format, record_count, file_size_bytes, footer_size, 13, partition_id, "
        "encryption_key, '27:5|28:12', mapping_id FROM ducklake_data_file WHERE data_file_id = 13"
    )


def test_files_merged_meanwhile_are_copied_as_well(merged):
    with Lake.connect(merged.catalog.sqlalchemy_url, to_migrate=True) as lake:
        happened = []

        def locate(path):
            if path.endswith(".parquet") and not happened:
                happened.append(path)
                merge_once_more(merged)
            return lake.locate(path)

        files = migrate.Files(locate, lambda: None)
        result = migrate.migrate(lake.opened.catalog, files, dry_run=False, backup=False)

    assert result.files == 3
    with open_lake(merged.catalog) as reference:
        counts = [
            reference.sql(f"SELECT count(*) FROM m AT (VERSION => {snapshot})")[0][0]
            for snapshot in (17, 26, 27, 28)
        ]
    assert counts == [6, 12, 17, 24]


def test_a_snapshot_committed_meanwhile_undoes_the_migration(merged, new_catalog):
    moved = copy_lake(merged, new_catalog("postgres"))
    before = everything(moved)
    with Lake.connect(moved.catalog.sqlalchemy_url, to_migrate=True) as lake, writing(moved.catalog) as other:

        def commit_snapshot(_connection, _cursor, statement, *_more):
            if statement.startswith("UPDATE public.ducklake_metadata"):
                copied = "27, snapshot_time, schema_version, next_catalog_id, next_file_id"
                source = "FROM ducklake_snapshot WHERE snapshot_id = 1"
                other.execute(text(f"INSERT INTO ducklake_snapshot SELECT {copied} {source}"))
                other.commit()

        engine = lake.opened.catalog.dialect.engine
        event.listen(engine, "before_cursor_execute", commit_snapshot)
        with pytest.raises(errors.TransactionConflictError, match="27"):
            lake.migrate()
        event.remove(engine, "before_cursor_execute", commit_snapshot)

        moved_rows = dump_catalog(moved.catalog)
        moved_rows["ducklake_snapshot"].pop()
        assert (dump_schema(moved.catalog), moved_rows, everything(moved)[2]) == before
        assert lake.migrate().to_version == "1.0"
        assert texts(lake.read_arrow("t", at=5)) == read_alike(merged.rows["5"]["t"])


def test_files_that_are_named_stay_when_a_later_step_is_tried_again(merged, new_catalog):
    """On MariaDB the rows are committed before the last column is dropped, which may have to wait."""
    moved = copy_lake(merged, new_catalog("mariadb"))
    with Lake.connect(moved.catalog.sqlalchemy_url, to_migrate=True) as lake:
        happened = []

        def lose_a_race(_connection, _cursor, statement, *_more):
            if "DROP COLUMN" in statement and not happened:
                happened.append(statement)
                raise pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock")

        engine = lake.opened.catalog.dialect.engine
        event.listen(engine, "before_cursor_execute", lose_a_race)
        lake.migrate()
        event.remove(engine, "before_cursor_execute", lose_a_race)

        assert happened
        assert lake.verify() == []
        assert texts(lake.read_arrow("m", at=17)) == merged.rows["17"]["m"]


# Lakes of versions that are migrated before anything else, and what older DuckDBs left in those of 1.0.


@pytest.fixture(params=RECORDED)
def left(request, tmp_path):
    return recorded(request.param, tmp_path / "lake")


def test_an_older_lake_is_neither_read_nor_written_and_the_error_says_what_opens_it(left):
    before = dump_catalog(left.catalog)
    with pytest.raises(UnsupportedVersionError, match=rf"{left.version}.*to_migrate=True\)\.migrate\(\)"):
        Lake.connect(left.catalog.sqlalchemy_url)
    with Lake.connect(left.catalog.sqlalchemy_url, to_migrate=True) as lake:
        attempts = [
            lambda: lake.read_arrow("m"),
            lambda: lake.changes("m", 16, 22),
            lambda: lake.append_arrow("m", pa.table({"n": pa.array([1], pa.int32())})),
            lake.transaction,
            lambda: lake.set_option("data_inlining_row_limit", 0),
            lambda: lake.expire_snapshots(keep_last=1),
            lake.maintenance.create_indexes,
        ]
        for attempt in attempts:
            with pytest.raises(UnsupportedVersionError, match=left.version):
                attempt()
    assert dump_catalog(left.catalog) == before


def test_a_column_that_duckdb_1_4_1_changed_twice_is_read_as_it_was(sqlite_catalog):
    """DuckDB 1.4.0 and 1.4.1 end all rows of a column anew with each change of it."""
    by_duckdb(
        sqlite_catalog,
        "CREATE TABLE t (a INTEGER, k INTEGER)",
        "INSERT INTO t SELECT x, x FROM range(3) r(x)",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "INSERT INTO t SELECT x, x FROM range(50) r(x)",
        "ALTER TABLE t ALTER COLUMN b SET DEFAULT 5",
        "INSERT INTO t (k) VALUES (7)",
    )

    def seen(lake: Lake) -> list[list[dict]]:
        reads = [lake.read_arrow("t", at=snapshot).to_pylist() for snapshot in range(1, 7)]
        return [*reads, lake.changes("t", 1, 6).read_arrow().to_pylist()]

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        whole, columns = seen(lake), sql(sqlite_catalog, "SELECT * FROM ducklake_column ORDER BY 1, 2")
        sql(
            sqlite_catalog,
            "UPDATE ducklake_column SET end_snapshot = 5 WHERE column_id = 1 AND end_snapshot IS NOT NULL",
        )
        assert sql(sqlite_catalog, "SELECT * FROM ducklake_column ORDER BY 1, 2") != columns

        assert seen(lake) == whole
        found = lake.verify()
        assert {one.code for one in found} == {FindingCode.COLUMN_TWICE}
        assert lake.maintenance.plan_merge("t").table.table_id
        assert lake.repair(found).left == ()

        assert lake.verify() == []
        assert seen(lake) == whole
    assert sql(sqlite_catalog, "SELECT * FROM ducklake_column ORDER BY 1, 2") == columns


def test_a_former_partition_key_may_have_lost_its_column(sqlite_catalog):
    """DuckDB's migration of 0.1 leaves NULL for a key that ended, of a column that was dropped."""
    by_duckdb(
        sqlite_catalog,
        "CREATE TABLE t (a INTEGER, c INTEGER)",
        "ALTER TABLE t SET PARTITIONED BY (c)",
        "INSERT INTO t SELECT x, x FROM range(50) r(x)",
        "ALTER TABLE t RESET PARTITIONED BY",
        "ALTER TABLE t DROP COLUMN c",
    )
    sql(sqlite_catalog, "UPDATE ducklake_partition_column SET column_id = NULL")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t", filter="a < 3").to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}]
        lake.append_arrow("t", pa.table({"a": pa.array([99], pa.int32())}))
        assert lake.row_count("t") == 51
        assert lake.maintenance.plan_merge("t").bins == ()


def sql(catalog, statement: str) -> list[tuple]:
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        return connection.execute(statement).fetchall()
