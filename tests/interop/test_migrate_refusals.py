"""What a migration says beforehand, what it refuses, and what others do meanwhile; nothing is half done."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest
from sqlalchemy import event, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.migrations import migrate
from tests.interop.job_columns import another_user
from tests.interop.lakes import by_duckdb
from tests.interop.old_lakes import OldLake, copy_lake, forget_snapshots, old_lake, read_alike, writing
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def old(tmp_path) -> OldLake:
    """A lake of 0.3 with a merged file that does not say by which snapshot each row came."""
    lake = old_lake("0.3", tmp_path / "old")
    forget_snapshots(lake)
    return lake


def everything(lake: OldLake) -> tuple[object, ...]:
    files = sorted(Path(lake.catalog.data_path).rglob("*.parquet"))
    return dump_schema(lake.catalog), dump_catalog(lake.catalog), files


def texts(rows: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in rows.to_pylist())


def test_a_dry_run_says_what_is_done_and_does_nothing(old):
    before = everything(old)
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        plan = lake.migrate(dry_run=True)

        assert everything(old) == before
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
def test_the_backup_is_the_catalog_as_it_was(old, kind, new_catalog):
    lake_there = old if kind == "sqlite" else copy_lake(old, new_catalog(kind))
    before = dump_schema(lake_there.catalog), dump_catalog(lake_there.catalog)
    with Lake.connect(lake_there.catalog.sqlalchemy_url, to_migrate=True) as lake:
        backup = lake.migrate().backup
        assert lake.version.value == "1.0"

    assert Path(backup).parent == Path(lake_there.catalog.location).parent
    shutil.move(backup, lake_there.catalog.location)
    assert (dump_schema(lake_there.catalog), dump_catalog(lake_there.catalog)) == before
    with Lake.connect(lake_there.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        assert texts(lake.read_arrow("m", at=17)) == old.rows["17"]["m"]


def test_a_server_has_backups_of_its_own(old, new_catalog):
    moved = copy_lake(old, new_catalog("postgres"))
    with Lake.connect(moved.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert lake.migrate().backup is None


def test_development_versions_are_refused_by_name(old):
    old.execute("UPDATE ducklake_metadata SET value = '0.4-dev1' WHERE key = 'version'")

    with pytest.raises(errors.UnsupportedVersionError, match=r"0\.4-dev1"):
        Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True)


@pytest.mark.parametrize("info", ["16:3|17:6", "16:3|17:2|19:12", "17:3|16:12", "nonsense"])
def test_counts_that_contradict_the_file_are_refused(old, info):
    old.execute("UPDATE ducklake_data_file SET partial_file_info = ? WHERE data_file_id = 13", info)
    before = everything(old)

    with (
        Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.CatalogError, match="partial_file_info"),
    ):
        lake.migrate()

    assert everything(old) == before


def test_columns_of_others_in_the_way_are_refused(old):
    old.execute("ALTER TABLE ducklake_delete_file ADD COLUMN ours BIGINT")
    before = everything(old)

    with (
        Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.CatalogError, match="ours"),
    ):
        lake.migrate()

    assert everything(old) == before


def merged_file(lake: OldLake) -> Path:
    with closing(sqlite3.connect(lake.catalog.location)) as connection:
        query = "SELECT path FROM ducklake_data_file WHERE data_file_id = 13"
        return Path(lake.catalog.data_path) / "main" / "m" / connection.execute(query).fetchone()[0]


def test_a_missing_file_is_found_before_anything_is_changed(old):
    merged_file(old).unlink()
    before = everything(old)

    with (
        Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.StorageError, match=r"\.parquet"),
    ):
        lake.migrate()

    assert everything(old) == before


@pytest.fixture
def damaged(old) -> OldLake:
    """Everything wrong with it that a migration needs."""
    chain = "SELECT path FROM ducklake_delete_file WHERE data_file_id IN (SELECT data_file_id FROM "
    chain += "ducklake_delete_file GROUP BY data_file_id HAVING count(*) > 1)"
    with closing(sqlite3.connect(old.catalog.location)) as connection:
        deletes = [path for (path,) in connection.execute(chain)]
    (first,) = Path(old.catalog.data_path).rglob(deletes[0])
    first.write_bytes(b"PAR1")
    merged_file(old).unlink()
    twin = "SELECT 99, 77, begin_snapshot, end_snapshot, file_order, 'twin.parquet', path_is_relative"
    others = "file_format, record_count, file_size_bytes, footer_size, row_id_start, partition_id"
    tail = f"{others}, encryption_key, {{}}, mapping_id FROM ducklake_data_file WHERE data_file_id = 13"
    old.execute(f"INSERT INTO ducklake_data_file {twin}, {tail.format('partial_file_info')}")
    odd = twin.replace("99, 77", "98, table_id").replace("twin", "odd")
    old.execute(f"INSERT INTO ducklake_data_file {odd}, {tail.format(repr('nonsense'))}")
    old.execute("ALTER TABLE ducklake_delete_file ADD COLUMN ours BIGINT")
    return old


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


def test_the_remedies_of_a_dry_run_help(old):
    """A merged file that is gone is not looked for once the snapshots that need it have expired."""
    merged_file(old).unlink()
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert len(lake.migrate(dry_run=True).refusals) == 1
        for table in ("snapshot", "snapshot_changes"):
            old.execute(f"DELETE FROM ducklake_{table} WHERE snapshot_id <= 19")

        assert lake.migrate(dry_run=True).refusals == ()
        assert lake.migrate(backup=False).to_version == "1.0"


def test_partition_keys_of_0_1_that_name_no_column_are_refused(tmp_path, new_catalog):
    old = old_lake("0.1", tmp_path / "old")
    old.execute("UPDATE ducklake_partition_column SET column_id = 40")
    moved = copy_lake(old, new_catalog("mariadb"))
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


def test_a_file_that_cannot_be_copied_as_it_is_is_refused(old):
    with open_lake("ducklake:" + str(Path(old.catalog.location).with_name("other.duckdb")), "/") as reference:
        query = "SELECT n, INTERVAL (n) DAY AS v FROM range(12) r(n)"
        reference.sql(f"COPY ({query}) TO '{merged_file(old)}' (FIELD_IDS {{n: 1}})")
    before = everything(old)

    with (
        Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="column v"),
    ):
        lake.migrate()

    assert everything(old) == before


def test_a_file_that_says_something_else_than_the_catalog_is_copied(old):
    """As the older client read it: by the catalog."""
    path = merged_file(old)
    rows = pq.read_table(path)
    field = pa.field(
        "_ducklake_internal_snapshot_id", pa.int64(), metadata={"PARQUET:field_id": "2147483539"}
    )
    pq.write_table(rows.append_column(field, pa.array([16] * 12, pa.int64())), path, store_schema=False)

    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        assert texts(lake.read_arrow("m", at=17)) == old.rows["17"]["m"]
    assert sorted(map(str, by_duckdb(old.catalog, "FROM m AT (VERSION => 17)"))) == old.rows["17"]["m"]


def test_a_file_whose_snapshots_have_expired_stays(old):
    for table in ("snapshot", "snapshot_changes"):
        old.execute(f"DELETE FROM ducklake_{table} WHERE snapshot_id < 20")
    old.execute("DELETE FROM ducklake_delete_file WHERE end_snapshot IS NOT NULL")
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert lake.migrate().files == 0
        for snapshot in range(20, 27):
            assert texts(lake.read_arrow("m", at=snapshot)) == old.rows[str(snapshot)]["m"]


def test_the_newest_snapshot_of_a_file_may_stand_alone(tmp_path):
    """So late builds of 0.3 write it, which count no rows; the file has the column."""
    old = old_lake("0.3", tmp_path / "old")
    old.execute("UPDATE ducklake_data_file SET partial_file_info = 'partial_max:19' WHERE data_file_id = 13")
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate()
        assert texts(lake.read_arrow("m", at=17)) == old.rows["17"]["m"]
    rows = dump_catalog(old.catalog)["ducklake_data_file"]
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


def test_files_merged_meanwhile_are_copied_as_well(old):
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        happened = []

        def locate(path):
            if path.endswith(".parquet") and not happened:
                happened.append(path)
                merge_once_more(old)
            return lake.locate(path)

        files = migrate.Files(locate, lambda: None)
        result = migrate.migrate(lake.opened.catalog, files, dry_run=False, backup=False)

    assert result.files == 3
    with open_lake(old.catalog) as reference:
        counts = [
            reference.sql(f"SELECT count(*) FROM m AT (VERSION => {snapshot})")[0][0]
            for snapshot in (17, 26, 27, 28)
        ]
    assert counts == [6, 12, 17, 24]


def test_a_snapshot_committed_meanwhile_undoes_the_migration(old, new_catalog):
    moved = copy_lake(old, new_catalog("postgres"))
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
        assert texts(lake.read_arrow("t", at=5)) == read_alike(old.rows["5"]["t"])


def test_files_that_are_named_stay_when_a_later_step_is_tried_again(old, new_catalog):
    """On MariaDB the rows are committed before the last column is dropped, which may have to wait."""
    moved = copy_lake(old, new_catalog("mariadb"))
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
        assert texts(lake.read_arrow("m", at=17)) == old.rows["17"]["m"]
