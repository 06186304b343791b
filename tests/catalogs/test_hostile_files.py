"""A catalog file that somebody changed reads nothing but itself."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.upkeep.export import mark_of
from airflow_provider_ducklake.lake.errors import (
    CatalogError,
    CatalogUnavailableError,
    InvalidInputError,
    UntrustedValueError,
)
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase, file_catalog

VIEW = ("ALTER TABLE {table} RENAME TO kept", "CREATE VIEW {table} AS SELECT * FROM kept")
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON {} BEGIN DELETE FROM ducklake_tag; END"


def _run(catalog: CatalogDatabase, *statements: str) -> None:
    connect = sqlite3.connect if catalog.kind == "sqlite" else duckdb.connect
    with closing(connect(catalog.location)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("table", ["ducklake_view", "ducklake_metadata", "DUCKLAKE_COLUMN"])
def test_a_view_in_the_place_of_a_table_is_refused_by_name(new_catalog, kind, table):
    catalog = new_catalog(kind)
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    _run(catalog, *(one.format(table=table) for one in VIEW))

    with pytest.raises(UntrustedValueError, match=f"'{table}', which is a view"):
        Lake.connect(catalog.sqlalchemy_url)


@pytest.mark.parametrize("table", ["ducklake_snapshot", "DUCKLAKE_SNAPSHOT"])
@pytest.mark.parametrize("type_", ["trigger", "TRIGGER"])
def test_a_trigger_on_a_table_is_refused(sqlite_catalog, table, type_):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    as_type = f"UPDATE sqlite_master SET type = '{type_}' WHERE type = 'trigger'"
    _run(sqlite_catalog, TRIGGER.format(table), "PRAGMA writable_schema = ON", as_type)

    with pytest.raises(UntrustedValueError, match="'ducklake_snapshot', which has a trigger"):
        Lake.connect(sqlite_catalog.sqlalchemy_url)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_view_that_takes_a_tables_place_while_the_lake_is_open_is_refused(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        assert lake.current_snapshot().id == 0
        _run(catalog, *(one.format(table="ducklake_snapshot") for one in VIEW))

        with pytest.raises(UntrustedValueError, match="'ducklake_snapshot', which is a view"):
            lake.current_snapshot()


def test_a_macro_that_comes_while_the_lake_is_open_is_refused(duckdb_catalog):
    with Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path) as lake:
        lake.current_snapshot()
        _run(duckdb_catalog, "CREATE MACRO max(a) AS 7")

        with pytest.raises(UntrustedValueError, match="'max', which is a macro"):
            lake.current_snapshot()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_tables_and_views_of_a_user_beside_the_lakes_are_no_matter(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        _run(catalog, "CREATE TABLE mine (a INTEGER)", "CREATE VIEW ducklake_report AS SELECT * FROM mine")

        assert lake.current_snapshot().id == 0
        with Lake.connect(catalog.sqlalchemy_url) as again:
            assert again.current_snapshot().id == 0


@pytest.mark.parametrize("macro", ["max(a)", "MAX(a)", "current_database()", '"+"(a, b)', "duckdb_columns()"])
def test_a_macro_with_the_name_of_a_function_is_refused(new_catalog, macro):
    catalog = new_catalog("duckdb")
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    body = "TABLE SELECT 1" if "columns" in macro else "7"
    _run(catalog, f"CREATE MACRO {macro} AS {body}", "CREATE MACRO cents(a) AS a * 100")

    name = macro.partition("(")[0].strip('"').lower()
    with pytest.raises(UntrustedValueError, match=f"'{name.replace('+', '[+]')}', which is a macro"):
        Lake.connect(catalog.sqlalchemy_url)


@pytest.mark.parametrize("only_reads", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT content FROM read_text('{other}')",
        "ATTACH '{other}.duckdb' AS other",
        "COPY (SELECT 1) TO '{other}.csv'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{other}']",
    ],
)
def test_what_a_duckdb_file_says_reaches_no_other_file(new_catalog, tmp_path, only_reads, statement):
    catalog = new_catalog("duckdb")
    other = tmp_path / "other"
    other.write_text("of the worker")

    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        dialect = lake.opened.catalog.dialect
        refused = pytest.raises(
            DBAPIError, match=r"disabled by configuration|has been locked|Cannot (enable|change)"
        )
        with dialect.reading() if only_reads else dialect.writing() as connection, refused:
            connection.execute(text(statement.format(other=other)))

    assert other.read_text() == "of the worker"
    assert {*tmp_path.iterdir()} == {other, Path(catalog.location).parent}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_view_at_the_target_of_an_export_is_no_frozen_lake(tmp_path, kind):
    file = tmp_path / "found"
    catalog = CatalogDatabase(kind, str(file), str(tmp_path))
    _run(catalog, "CREATE VIEW ducklake_metadata AS SELECT 'airflow_ducklake_frozen' AS key, '{}' AS value")

    assert mark_of(file) is None


def test_a_sqlite_file_runs_nothing_that_its_schema_says(sqlite_catalog):
    engine = open_engine(parse_url(sqlite_catalog.sqlalchemy_url))

    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA trusted_schema")).scalar_one() == 0
    engine.dispose()


# --- directories ---

ROWS = pa.table({"id": pa.array([1], pa.int64())})
LOCK = ".lock"
BESIDE = {
    "sqlite": ("-journal", "-wal", "-shm", LOCK),
    "duckdb": (".wal", ".wal.recovery", ".wal.checkpoint", ".tmp", LOCK),
}
SECRET = "fernet_key = SECRET\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the worker's, which nobody else may read."""
    file = tmp_path / "airflow.cfg"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


def is_untouched(victim: Path) -> bool:
    return (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == (SECRET, 0o600)


def a_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim)


def a_dangling_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim.with_name("new"))


def a_hard_link(place: Path, victim: Path) -> None:
    place.hardlink_to(victim)


def a_pipe(place: Path, _victim: Path) -> None:
    os.mkfifo(place)


def created(kind: str, folder: Path) -> CatalogDatabase:
    catalog = file_catalog(kind, folder / "lake")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
    Path(catalog.location).chmod(0o666)
    return catalog


@pytest.mark.parametrize("kind", BESIDE)
@pytest.mark.parametrize("plant", [a_link, a_dangling_link, a_hard_link, a_pipe])
def test_what_is_no_plain_file_beside_a_catalog_is_refused(
    tmp_path, victim, kind, plant: Callable[[Path, Path], None]
):
    catalog = created(kind, tmp_path)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for end in BESIDE[kind]:
            place = Path(f"{catalog.location}{end}")
            place.unlink(missing_ok=True)
            plant(place, victim)
            with pytest.raises(
                UntrustedValueError, match=f"'{place.name}', which is (a|not a) .*move it away"
            ):
                lake.append_arrow("t", ROWS)
            if end != LOCK or kind == "duckdb":  # readers of a SQLite file take no lock of ours
                with pytest.raises(UntrustedValueError, match=f"'{place.name}'"):
                    Lake.connect(catalog.sqlalchemy_url)
            place.unlink()

        assert lake.append_arrow("t", ROWS).attempts == 1
    assert is_untouched(victim)
    assert not victim.with_name("new").exists()


@pytest.mark.parametrize("kind", BESIDE)
def test_a_lock_file_of_somebody_else_stays_as_it_is(tmp_path, victim, kind):
    catalog = created(kind, tmp_path)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lock = victim.rename(f"{catalog.location}{LOCK}")

        with pytest.raises(UntrustedValueError, match="is not a lock file of this provider"):
            lake.append_arrow("t", ROWS)

    assert is_untouched(lock)


def planted_journal(database: Path, named: Path) -> None:
    """Leave a journal as of a commit to several files, whose common journal is a given file."""
    content, name = database.read_bytes(), os.fsencode(named)
    page = int.from_bytes(content[16:18], "big")
    magic = bytes.fromhex("d9d505f920a163d7")
    numbers = (0, 1, len(content) // page, 512, page)
    header = magic + b"".join(one.to_bytes(4, "big") for one in numbers)
    end = (len(name).to_bytes(4, "big"), sum(name).to_bytes(4, "big"), magic)
    lock_page = (2**30 // page + 1).to_bytes(4, "big")
    Path(f"{database}-journal").write_bytes(header.ljust(512, b"\0") + lock_page + name + b"".join(end))


def test_a_journal_makes_sqlite_delete_no_other_file(tmp_path, victim):
    catalog = created("sqlite", tmp_path)
    database = Path(catalog.location)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.current_snapshot()
        planted_journal(database, victim)
        for act in (lake.current_snapshot, lambda: Lake.connect(catalog.sqlalchemy_url)):
            with pytest.raises(
                UntrustedValueError, match="which names another file, which SQLite would delete"
            ):
                act()
    assert is_untouched(victim)

    link = tmp_path / "link.sqlite"
    link.symlink_to(database)  # SQLite's files are beside what it leads to
    with pytest.raises(UntrustedValueError, match=r"'catalog.sqlite-journal'"):
        Lake.connect(f"sqlite:///{link}")
    with closing(sqlite3.connect(database)) as itself:
        itself.execute("SELECT * FROM ducklake_snapshot").fetchall()
    assert not victim.exists()  # what would have happened


def test_a_journal_of_a_writer_that_crashed_is_rolled_back(tmp_path):
    catalog = created("sqlite", tmp_path)
    database = Path(catalog.location)
    with closing(sqlite3.connect(database, isolation_level=None)) as crashes:
        crashes.execute("PRAGMA cache_size = 1")
        crashes.execute("BEGIN IMMEDIATE")
        crashes.execute("DELETE FROM ducklake_metadata")
        crashes.execute("CREATE TABLE large AS SELECT randomblob(100000) AS value")
        journal = Path(f"{database}-journal").read_bytes()
        content = database.read_bytes()
        crashes.execute("ROLLBACK")
    database.write_bytes(content)
    Path(f"{database}-journal").write_bytes(journal)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.append_arrow("t", ROWS).attempts == 1
        assert lake.verify() == []


@pytest.mark.databases
def test_a_copy_before_a_migration_is_written_over_nothing(tmp_path, victim):
    catalog = created("duckdb", tmp_path)
    for end, plant in ((".copy", a_link), (".copy.wal", a_dangling_link)):
        plant(Path(f"{catalog.location}{end}"), victim)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.migrate("1.1")

    assert is_untouched(victim)
    assert not victim.with_name("new").exists()
    folder = Path(catalog.location).parent
    assert [one.name for one in folder.iterdir() if one.name.startswith(".")] == []
    assert len([*folder.glob("*.backup")]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_duckdb_uses_no_temporary_directory_of_somebody_else(tmp_path):
    catalog = created("duckdb", tmp_path)
    folder = Path(f"{catalog.location}.tmp")
    folder.mkdir()
    Lake.connect(catalog.sqlalchemy_url).close()

    folder.mkdir(exist_ok=True)
    os.chown(folder, 65534, -1)
    with pytest.raises(UntrustedValueError, match="not a directory of the user"):
        Lake.connect(catalog.sqlalchemy_url)


@pytest.mark.parametrize("kind", BESIDE)
def test_no_lake_is_made_where_a_link_leads_to(tmp_path, victim, kind):
    catalog = file_catalog(kind, tmp_path / "lake")
    a_dangling_link(Path(catalog.location), victim)

    with pytest.raises(CatalogUnavailableError, match="symbolic link to a file that does not exist"):
        Lake.create(catalog.sqlalchemy_url, catalog.data_path)

    assert not victim.with_name("new").exists()


@pytest.mark.parametrize("kind", BESIDE)
def test_a_pipe_in_the_place_of_the_catalog_is_refused(tmp_path, kind):
    catalog = file_catalog(kind, tmp_path / "lake")
    os.mkfifo(catalog.location)

    with pytest.raises(UntrustedValueError, match="which is not a regular file"):
        Lake.connect(catalog.sqlalchemy_url)


# --- every text reaches the catalog as it is, however many rows are written at once ---

TEXTS = [
    "NULL",
    "null",
    "",
    " ",
    '"',
    '""',
    "\\",
    '\\"',
    "'",
    "it''s",
    "{}",
    "{a,b}",
    ",",
    "%",
    "%s",
    "%(x)s",
]
TEXTS += ["\n\r\t", "$1", ":x", "é😀", "\x01", "E'\\n'", "); DROP TABLE x; --", "-1", "true", "\u2028"]


@pytest.mark.every_catalog
@pytest.mark.parametrize("at_once", [1, len(TEXTS)])
def test_bounds_are_kept(catalog, at_once: int) -> None:
    column = ColumnId(1)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"s": "varchar"})
        for start in range(0, len(TEXTS), at_once):
            alone(lake).append_files("t", [file_of(column, one) for one in TEXTS[start : start + at_once]])
        files = lake.scan("t", filter="s IS NOT NULL").files
        bounds = [(one.column_stats[column].min_value, one.column_stats[column].max_value) for one in files]
        assert sorted(bounds) == sorted((one, one) for one in TEXTS)


def file_of(column: ColumnId, text: str) -> DataFile:
    stats = ColumnStats(column, value_count=1, null_count=0, min_value=text, max_value=text)
    return DataFile(f"file-{TEXTS.index(text)}.parquet", 1, 100, 10, {column: stats})


@pytest.mark.every_catalog
@pytest.mark.parametrize(
    "column",
    [
        "ducklake_snapshot_changes.changes_made",
        "ducklake_snapshot_changes.commit_extra_info",
        "ducklake_table.table_name",
        "ducklake_column.default_value",
        "ducklake_metadata.value",
    ],
)
def test_a_text_of_megabytes_is_refused_before_it_is_parsed(catalog, column) -> None:
    """Parsing one takes seconds for each, of a triggerer that other lakes share."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"s": "varchar"})
    table, _, name = column.partition(".")
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {name} = :long"), {"long": "inserted:1," * 200_000})
    engine.dispose()

    with pytest.raises(CatalogError, match=rf"{column} begins a text of 2,200,000 characters"):
        look_at(catalog.sqlalchemy_url)


def look_at(url: str) -> None:
    with Lake.connect(url) as lake:
        lake.reads.table_rows()
        lake.table_changes("t", 0, ["data", "schema"])
        lake.snapshots()
        lake.table_snapshot("t")


def test_no_text_is_written_that_would_not_be_read(sqlite_catalog) -> None:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with (
            pytest.raises(InvalidInputError, match=r"commit_message would have 2,097,153 characters"),
            lake.transaction(message="x" * (2**21 + 1)) as tx,
        ):
            tx.create_table("t", {"s": "varchar"})
        assert lake.current_snapshot().id == 0
