"""Files that wait for their deletion go, and only those; DuckDB judges what is left."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, StorageError, UntrustedValueError
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

HISTORY = (
    "CREATE TABLE t (i INTEGER)",
    "INSERT INTO t FROM range(5)",
    "DELETE FROM t WHERE i = 1",
    "DELETE FROM t",
    "INSERT INTO t FROM range(10, 15)",
    "CREATE TABLE x AS FROM range(3)",
    "DROP TABLE x",
)
NO_TIME = timedelta(0)


def files(catalog: CatalogDatabase) -> set[str]:
    root = Path(catalog.data_path)
    return {str(path) for path in root.rglob("*") if path.is_file()}


def run_sql(catalog: CatalogDatabase, statement: str, **values: Any) -> None:
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        connection.execute(text(statement), values)
    engine.dispose()


def write_history(catalog: CatalogDatabase) -> None:
    by_duckdb(catalog, *HISTORY, data_inlining_row_limit=0)


def expired(catalog: CatalogDatabase) -> Lake:
    """A lake of which three files are needed no more: a data file with its delete file, and that of x."""
    write_history(catalog)
    lake = Lake.connect(catalog.sqlalchemy_url)
    result = lake.expire_snapshots(keep_last=1)
    assert (result.data_files, result.delete_files) == (2, 1)
    return lake


def test_scheduled_files_go_and_then_their_rows(catalog):
    with expired(catalog) as lake:
        before = files(catalog)

        planned = lake.cleanup_old_files(older_than=NO_TIME, dry_run=True)
        assert files(catalog) == before
        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert (sorted(planned.deleted), planned.dry_run) == (sorted(done.deleted), True)
        assert files(catalog) == before - set(done.deleted)
        assert len(done.deleted) == 3
        assert dump_catalog(catalog)["ducklake_files_scheduled_for_deletion"] == []
        assert lake.cleanup_old_files(older_than=NO_TIME).deleted == ()
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(5,)]
        assert reference.sql("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)") == []


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_every_catalog_is_cleaned_up(catalog):
    rows = pa.table({"i": pa.array(range(20), pa.int64())})
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            tx.append_arrow("t", rows)
        alone(lake).truncate("t")
        lake.append_arrow("t", rows)

        assert lake.expire_snapshots(keep_last=1).data_files == 1
        assert len(lake.cleanup_old_files(older_than=NO_TIME).deleted) == 1

        assert len(files(catalog)) == 1
        assert lake.read_arrow("t").num_rows == 20


def test_what_was_scheduled_later_the_same_day_stays(catalog):
    """The reference takes it on SQLite, where it compares texts."""
    with expired(catalog) as lake:
        before = files(catalog)

        assert lake.cleanup_old_files(older_than=timedelta(hours=1)).deleted == ()
        assert lake.cleanup_old_files().deleted == ()  # 2 days, unless the option says something else
        assert files(catalog) == before
        lake.set_option("delete_older_than", "0 seconds")
        assert len(lake.cleanup_old_files().deleted) == 3


def test_files_that_are_gone_already_are_no_error(catalog):
    with expired(catalog) as lake:
        planned = lake.cleanup_old_files(older_than=NO_TIME, dry_run=True)
        Path(planned.deleted[0]).unlink()

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert (len(done.deleted), done.missing) == (2, planned.deleted[:1])
        assert dump_catalog(catalog)["ducklake_files_scheduled_for_deletion"] == []


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others(catalog):
    with expired(catalog) as lake:
        stubborn = Path(lake.cleanup_old_files(older_than=NO_TIME, dry_run=True).deleted[0])
        content = stubborn.read_bytes()
        stubborn.unlink()
        stubborn.mkdir()  # which no unlink takes, whoever runs it

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert len(done.deleted) == 2
        assert [path for path, _ in done.failures] == [str(stubborn)]
        assert len(dump_catalog(catalog)["ducklake_files_scheduled_for_deletion"]) == 1
        stubborn.rmdir()
        stubborn.write_bytes(content)
        assert lake.cleanup_old_files(older_than=NO_TIME).deleted == (str(stubborn),)


SPELLINGS = {
    "as it is": lambda path: path,
    "two slashes": lambda path: path.replace("/main/", "//main/"),
    "a dot": lambda path: path.replace("/main/", "/./main/"),
    "a percent sign": lambda path: path.replace("ducklake", "%64ucklake"),
    "a scheme": lambda path: f"file://{path}",
    "fsspec's scheme": lambda path: f"local://{path}",
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_a_file_that_the_lake_names_stays_whoever_scheduled_it(sqlite_catalog, spell):
    """After a restore of rows the reference schedules files that are in use, and deletes them."""
    with expired(sqlite_catalog) as lake:
        (live,) = (one.data_file for one in lake.files("t"))
        schedule(sqlite_catalog, 900, spell(live))

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert (len(done.deleted), done.named) == (3, (spell(live),))
        assert Path(live).exists()
        assert lake.read_arrow("t").num_rows == 5


def test_a_file_that_the_lake_names_through_a_link_stays(sqlite_catalog, tmp_path):
    (tmp_path / "link").symlink_to(sqlite_catalog.data_path)
    with expired(sqlite_catalog) as lake:
        (live,) = (one.data_file for one in lake.files("t"))
        linked = live.replace(sqlite_catalog.data_path, f"{tmp_path}/link/")
        alone(lake).create_table("u", {"i": "int32"})
        with lake.transaction() as tx:
            tx.add_data_files("u", [linked])
            tx.truncate("t")
        lake.expire_snapshots(keep_last=1)

        assert lake.cleanup_old_files(older_than=NO_TIME).named == (live,)

        assert lake.read_arrow("u").num_rows > 0


@pytest.mark.only_1_0("no reader of 1.1 takes such a catalog")
@pytest.mark.parametrize("end", ["/", "/.", "/./", "/x/.."])
def test_a_file_that_the_lake_names_in_odd_words_stays(sqlite_catalog, end):
    with expired(sqlite_catalog) as lake:
        (live,) = (one.data_file for one in lake.files("t"))
        run_sql(sqlite_catalog, "UPDATE ducklake_data_file SET path = path || :end", end=end)
        schedule(sqlite_catalog, 900, live)

        assert lake.cleanup_old_files(older_than=NO_TIME).named == (live,)

        assert Path(live).exists()


@pytest.mark.only_1_0("no reader of 1.1 takes such a catalog")
@pytest.mark.parametrize(
    "lost", ["ducklake_table SET table_id = 900", "ducklake_data_file SET path_is_relative = NULL"]
)
def test_files_whose_directory_nobody_knows_stay(sqlite_catalog, lost):
    with expired(sqlite_catalog) as lake:
        (live,) = (one.data_file for one in lake.files("t"))
        run_sql(sqlite_catalog, f"UPDATE {lost}")
        schedule(sqlite_catalog, 900, live)

        assert lake.cleanup_old_files(older_than=NO_TIME).named == (live,)

        assert Path(live).exists()


def test_a_row_that_cannot_be_handled_does_not_keep_the_others(sqlite_catalog):
    """Whoever writes the catalog may name a store that nothing here opens, or leave out the time."""
    odd = {
        "abfs://container@account/x.parquet": "2020-01-01 00:00:00+00",
        "hdfs://nowhere/x.parquet": "2020-01-01 00:00:00+00",
        f"{sqlite_catalog.data_path}timeless.parquet": None,
        f"{sqlite_catalog.data_path}soon.parquet": "soon",
    }
    with expired(sqlite_catalog):
        for number, (path, time) in enumerate(odd.items()):
            run_sql(
                sqlite_catalog,
                "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (:id, :path, 0, :time)",
                id=900 + number,
                path=path,
                time=time,
            )

    with Lake.connect(sqlite_catalog.sqlalchemy_url, foreign_files=True) as lake:
        done = lake.cleanup_old_files(older_than=NO_TIME)

    assert len(done.deleted) == 3
    assert sorted(path for path, _ in done.failures) == sorted(odd)
    assert len(dump_catalog(sqlite_catalog)["ducklake_files_scheduled_for_deletion"]) == len(odd)


ODD_TIMES = {
    "sqlite": ["X'FF'", "'soon'", "5", "'99999-01-01'", "'0000-00-00 00:00:00'"],
    "postgres": ["'infinity'", "'-infinity'", "'0044-03-15 00:00:00 BC'", "'20000-01-01'"],
    "duckdb": ["'infinity'", "'-infinity'", "'0044-03-15 (BC) 00:00:00+00'", "'20000-01-01'"],
    "mariadb": ["'0000-00-00 00:00:00'", "'2020-00-00 00:00:00'"],
}


@pytest.mark.every_catalog
def test_a_time_that_its_driver_cannot_read_does_not_keep_the_other_files(catalog):
    odd = {f"{catalog.data_path}{n}.parquet": time for n, time in enumerate(ODD_TIMES[catalog.kind])}
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            tx.append_arrow("t", pa.table({"i": pa.array(range(20), pa.int64())}))
        alone(lake).truncate("t")
        lake.expire_snapshots(keep_last=1)
        for path, time in odd.items():
            schedule(catalog, 900, path, time)

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert len(done.deleted) == 1
        assert sorted(path for path, _ in done.failures) == sorted(odd)
        assert all("no valid schedule_start" in why for _, why in done.failures)
    assert waiting(catalog) == sorted(odd)


def test_a_path_that_is_not_a_string_does_not_keep_the_other_files(sqlite_catalog):
    with expired(sqlite_catalog) as lake:
        schedule(sqlite_catalog, 900, b"main/t/x.parquet")

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert len(done.deleted) == 3
        assert done.failures == (("b'main/t/x.parquet'", "it is not a string; correct path in its row"),)
        with pytest.raises(
            UntrustedValueError, match=r"ducklake_files_scheduled.*b'main/t/x.parquet'.* not a"
        ):
            lake.delete_orphaned_files(older_than=NO_TIME, min_retention=NO_TIME)


@pytest.mark.every_catalog
def test_of_two_rows_with_one_id_the_one_whose_file_is_left_stays(catalog):
    stubborn, gone = (f"{catalog.data_path}{name}.parquet" for name in ("stubborn", "gone"))
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        Path(stubborn).mkdir(parents=True)
        for path in (stubborn, gone, gone):
            schedule(catalog, 900, path)

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert (done.missing, [path for path, _ in done.failures]) == ((gone,), [stubborn])
    assert waiting(catalog) == [stubborn]


def test_a_row_with_the_id_of_a_file_in_use_does_not_keep_its_own_file(sqlite_catalog):
    with expired(sqlite_catalog) as lake:
        (live,) = (one.data_file for one in lake.files("t"))
        schedule(sqlite_catalog, 900, live)
        schedule(sqlite_catalog, 900, gone := f"{sqlite_catalog.data_path}gone.parquet")

        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert (done.named, done.missing) == ((live,), (gone,))
    assert waiting(sqlite_catalog) == [live]


def schedule(
    catalog: CatalogDatabase, file_id: int, path: str | bytes, time: str = "'2020-01-01 00:00:00'"
) -> None:
    """Write the row of a file that waits for its deletion; ``time`` is SQL."""
    run_sql(
        catalog,
        f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES (:id, :path, :relative, {time})",
        id=file_id,
        path=path,
        relative=False,
    )


def waiting(catalog: CatalogDatabase) -> list[str]:
    """Return the paths of the files that wait for their deletion."""
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT path FROM ducklake_files_scheduled_for_deletion"))
        found = sorted(rows.scalars())
    engine.dispose()
    return found


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("end", ["", ".txt"])
def test_of_other_names_only_parquet_and_puffin_files_are_deleted(new_catalog, kind, end):
    """A row may name the catalog's own file, or any other, where it lies below the data path."""
    catalog = new_catalog(kind)
    folder = Path(catalog.location).parent
    added = folder / "added.pq"
    pq.write_table(pa.table({"i": [1]}), added)
    named = catalog.location + end
    with Lake.create(catalog.sqlalchemy_url, f"{folder}/", version=catalog.spec_version) as lake:
        if end:
            Path(named).write_text("x")
        (folder / "twice.parquet").touch()
        schedule(catalog, 8, f"{folder}/twice.parquet", "NULL")  # when is unknown, so that the file stays
        for id_, one in enumerate([named, str(added), f"{folder}/gone.pq", f"{folder}/twice.parquet"]):
            schedule(catalog, id_, one)
        done = lake.cleanup_old_files(older_than=NO_TIME)

        assert (done.deleted, done.missing) == ((str(added),), (f"{folder}/gone.pq",))
        failures = dict(done.failures)
        assert failures.keys() == {named, f"{folder}/twice.parquet"}
        assert "is not the Parquet or Puffin file" in failures[named]
        assert lake.current_snapshot().id == 0
    assert Path(named).exists()


def test_verification_finds_what_no_clean_up_may_delete(catalog, tmp_path):
    path = added_from_elsewhere(catalog, tmp_path)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        (found,) = lake.verify()
    with Lake.connect(catalog.sqlalchemy_url, foreign_files=True) as lake:
        assert lake.verify() == []

    assert (found.code, found.objects["path"]) == (FindingCode.SCHEDULED_REFUSED, str(path))


def test_a_disk_that_is_not_there_is_not_taken_for_deleted_files(sqlite_catalog):
    with expired(sqlite_catalog) as lake:
        root = Path(sqlite_catalog.data_path)
        root.rename(root.with_name("elsewhere"))

        with pytest.raises(StorageError, match="its disk is mounted"):
            lake.cleanup_old_files(older_than=NO_TIME)

        assert len(dump_catalog(sqlite_catalog)["ducklake_files_scheduled_for_deletion"]) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"older_than": timedelta(hours=-1)}, "is in the future"),
        ({"older_than": timedelta.max}, "is longer than 2,000 years"),
        ({"min_retention": timedelta(days=800_000)}, "is longer than 2,000 years"),
        ({"older_than": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, "years 1 to 9999"),
        ({"older_than": datetime(2126, 1, 1, tzinfo=UTC)}, "is in the future"),
        ({"older_than": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - the point
        (
            {"older_than": timedelta(hours=1), "min_retention": timedelta(days=1)},
            "younger than min_retention",
        ),
    ],
)
def test_cut_offs_that_make_no_sense_are_refused(sqlite_catalog, arguments, said):
    with expired(sqlite_catalog) as lake:
        before = files(sqlite_catalog)
        for clean_up in (lake.cleanup_old_files, lake.delete_orphaned_files):
            with pytest.raises(InvalidInputError, match=said):
                clean_up(**arguments)
        assert files(sqlite_catalog) == before


def test_a_moment_ahead_of_the_catalogs_clock_is_now(sqlite_catalog):
    with expired(sqlite_catalog) as lake:
        ahead = datetime.now(UTC) + timedelta(minutes=1)

        assert len(lake.cleanup_old_files(older_than=ahead).deleted) == 3


def added_from_elsewhere(catalog: CatalogDatabase, folder: Path) -> Path:
    """Have the reference add a file that lies elsewhere, and then need it no more."""
    path = folder / "elsewhere" / "rows.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"i": pa.array([1, 2], pa.int32())}), path)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INTEGER)")
        reference.sql(f"CALL ducklake_add_data_files('lake', 't', '{path}')")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t")["i"].to_pylist() == [1, 2]
        lake.verify()
        alone(lake).drop_table("t")
        lake.expire_snapshots(keep_last=1)
    return path


def test_a_file_elsewhere_is_deleted_only_where_the_user_says_so(catalog, tmp_path):
    path = added_from_elsewhere(catalog, tmp_path)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for dry_run in (True, False):
            result = lake.cleanup_old_files(older_than=NO_TIME, dry_run=dry_run)
            ((failed, reason),) = result.failures
            assert (failed, result.deleted) == (str(path), ())
            assert "set foreign_files to true in its connection" in reason
    assert path.exists()

    with Lake.connect(catalog.sqlalchemy_url, foreign_files=True) as lake:
        assert lake.cleanup_old_files(older_than=NO_TIME).deleted == (str(path),)
    assert not path.exists()


@pytest.mark.parametrize(
    ("row", "is_relative", "why"),
    [
        ("{elsewhere}/victim.conf", False, "not have the name of a Parquet or Puffin file"),
        ("../../elsewhere/victim.parquet", True, "has a step"),
        ("{elsewhere}/../elsewhere/victim.parquet", False, "has a step"),
        ("elsewhere/victim.parquet", False, "neither absolute nor"),
        ("main/", True, "is a directory"),
    ],
)
def test_rows_of_whoever_writes_the_catalog_have_no_file_deleted(
    sqlite_catalog, tmp_path, row, is_relative, why
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("victim.conf", "victim.parquet"):
        (elsewhere / name).touch()
    write_history(sqlite_catalog)
    run_sql(
        sqlite_catalog,
        "INSERT INTO ducklake_files_scheduled_for_deletion "
        "VALUES (99, :path, :relative, '2026-01-01 00:00:00+00')",
        path=row.format(elsewhere=elsewhere),
        relative=is_relative,
    )

    with Lake.connect(sqlite_catalog.sqlalchemy_url, foreign_files=True) as lake:
        ((_, reason),) = lake.cleanup_old_files(older_than=NO_TIME).failures

    assert why in reason
    assert {path.name for path in elsewhere.iterdir()} == {"victim.conf", "victim.parquet"}


@pytest.mark.parametrize("kind", ["schema", "table"])
def test_rows_are_written_elsewhere_only_where_the_user_says_so(sqlite_catalog, tmp_path, kind):
    elsewhere = tmp_path / "elsewhere"
    write_history(sqlite_catalog)
    name = {"schema": "schema_name = 'main'", "table": "table_name = 't'"}[kind]
    run_sql(
        sqlite_catalog,
        f"UPDATE ducklake_{kind} SET path = :path, path_is_relative = false WHERE {name}",
        path=f"{elsewhere}/",
    )
    rows = pa.table({"i": pa.array(range(20), pa.int32())})

    with (
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        pytest.raises(UntrustedValueError, match="set foreign_files to true"),
    ):
        lake.append_arrow("t", rows)
    assert not elsewhere.exists()

    with Lake.connect(sqlite_catalog.sqlalchemy_url, foreign_files=True) as lake:
        lake.append_arrow("t", rows)
    assert len(list(elsewhere.rglob("*.parquet"))) == 1
