"""Whoever may write a catalog file's directory reaches no other file by what they put beside it."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogUnavailableError, UntrustedValueError
from tests.reference.catalogs import CatalogDatabase, file_catalog

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
