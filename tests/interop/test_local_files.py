"""What lies below a folder, and what links there lead away from: the kernel is the oracle."""

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    DuckLakeError,
    StorageError,
    UnsupportedFeatureError,
    UntrustedValueError,
)
from airflow_provider_ducklake.lake.format.files import DataFile
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.storage.files.filesystem import write_bytes
from airflow_provider_ducklake.lake.storage.files.local import lies_below, unlink_below
from airflow_provider_ducklake.lake.writes.staged import discard
from tests.interop.jobs import merge_adjacent, stage
from tests.interop.lakes import alone, by_duckdb
from tests.interop.synced import before_commit, needed, recorded
from tests.interop.test_encrypted_lakes import keys
from tests.reference.duckdb_lake import open_lake

NAMES = ("a", "A", "day=2024", "x y", "%20", "ü", "theirs")
SECRET = pa.table({"id": pa.array([42], pa.int64())})
NO_TIME = timedelta(0)


def way(draw: Random, folder: Path, target: Path) -> str:
    """Make a drawn way of links to a file, and return its first step's path from the folder."""
    above = draw.choice((0, 0, 1, 2))  # the link is to the file, or to a folder above it
    end, rest = target, ""
    for _ in range(above):
        end, rest = end.parent, f"/{end.name}{rest}"
    place = folder
    for _ in range(draw.randrange(3)):
        place /= draw.choice(NAMES)
    place.mkdir(parents=True, exist_ok=True)
    for step in range(draw.randint(1, 3)):
        link = place / f"{draw.choice(NAMES)}-{step}-{draw.random()}{'' if above else '.parquet'}"
        link.symlink_to(os.path.relpath(end, place) if draw.random() < 0.5 else end)
        end = link
    return f"{end.relative_to(folder)}{rest}"


@pytest.fixture
def victim(tmp_path) -> Iterator[Path]:
    """Yield a file of the worker's that nothing may read as the lake's, and nothing may delete."""
    path = tmp_path / "theirs" / "payroll" / "p.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(SECRET, path)
    yield path
    assert path.exists()


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as made:
        yield made


def spellings(folder: Path, victim: Path) -> list[str]:
    """Return ways to a file that need no link, as what they name in a folder."""
    up = os.path.relpath(victim, folder)
    return [
        str(victim),
        f"file://{victim}",
        up,
        f"./{up}",
        up.replace("..", "%2e%2e"),
        up.replace("/", "\\"),
        f"{folder}/{up}",
        f"{str(folder).upper()}/../{up}",
        f"{folder}2/{victim.name}",
        f"{victim}\0.parquet",
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_path_lies_below_a_folder_if_the_kernel_opens_it_there(tmp_path, victim, seed):
    draw, folder = Random(seed), tmp_path / "folder"
    own = folder / "own" / "deep" / "p.parquet"
    own.parent.mkdir(parents=True)
    shutil.copy(victim, own)
    if draw.random() < 0.3:  # the folder itself may be a link
        (tmp_path / "linked").symlink_to(folder)
        folder = tmp_path / "linked"
    for target, is_below in ((own, True), (victim, False)) * 3:
        path = folder / way(draw, folder, target)
        with path.open("rb") as opened:
            assert os.path.samestat(os.fstat(opened.fileno()), target.stat())

        assert lies_below(str(path), f"{folder}/") is is_below
        assert lies_below(f"file://{path}", f"{folder}/") is is_below
    assert not any(lies_below(one, f"{folder}/") for one in spellings(folder, victim))


@pytest.mark.parametrize("seed", range(20))
def test_a_file_is_deleted_where_it_really_is_and_a_link_as_itself(tmp_path, victim, seed):
    draw, folder = Random(seed), tmp_path / "folder"
    own = folder / "own" / "p.parquet"
    own.parent.mkdir(parents=True)
    shutil.copy(victim, own)

    for target in (victim, own):
        path = folder / way(draw, folder, target)
        if target is own or path.is_symlink():
            is_link = path.is_symlink()
            unlink_below(str(path), f"{folder}/")
            assert not os.path.lexists(path)
            assert own.exists() == (is_link or target is victim)
        else:
            with pytest.raises(StorageError, match="a link leads to"):
                unlink_below(str(path), f"{folder}/")


@pytest.mark.parametrize("seed", range(4))
def test_an_added_table_has_no_file_that_links_lead_away_to(tmp_path, lake, victim, seed):
    draw, folder = Random(seed), tmp_path / "orders"
    write_deltalake(str(folder), SECRET)
    (own,) = folder.glob("*.parquet")
    log = folder / "_delta_log" / f"{0:020d}.json"
    honest = log.read_text()
    odd = way(draw, folder, victim) if seed % 2 else draw.choice(spellings(folder, victim))
    size = (own.stat().st_size, victim.stat().st_size)
    log.write_text(
        honest.replace(json.dumps(own.name), json.dumps(odd)).replace(
            f'"size":{size[0]}', f'"size":{size[1]}'
        )
    )

    with pytest.raises((UntrustedValueError, StorageError)):
        lake.add_table("t", str(folder), "delta", create_table=True)
    assert lake.current_snapshot().id == 0

    linked = way(draw, folder, own)
    log.write_text(honest.replace(json.dumps(own.name), json.dumps(linked.replace("%", "%25"))))
    lake.add_table("t", str(folder), "delta", create_table=True)
    assert lake.read_arrow("t").equals(SECRET)


@pytest.mark.parametrize("seed", range(4))
def test_a_clean_up_deletes_nothing_that_links_lead_away_to(lake, sqlite_catalog, victim, seed):
    draw, root = Random(seed), Path(lake.data_path)
    alone(lake).create_table("t", {"id": "int64"})
    (root / "main" / "t").mkdir(parents=True)
    paths = [way(draw, root / "main" / "t", victim) for _ in range(4)]
    with create_engine(parse_url(sqlite_catalog.sqlalchemy_url)).begin() as connection:
        for id_, path in enumerate(paths, 900):
            row = {"id": id_, "path": f"main/t/{path}"}
            values = "(:id, :path, true, '2020-01-01 00:00:00+00')"
            connection.execute(
                text(f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES {values}"), row
            )
    links = {f"{root}/main/t/{one}" for one in paths if (root / "main" / "t" / one).is_symlink()}

    done = lake.cleanup_old_files(older_than=NO_TIME)

    assert set(done.deleted) == links
    assert {path for path, _ in done.failures} == {f"{root}/main/t/{one}" for one in paths} - links
    assert all("a link leads to" in why for _, why in done.failures)


@pytest.mark.parametrize("above", [0, 1, 2], ids=["job", "table", "schema"])
def test_no_job_is_committed_or_discarded_through_a_link(lake, victim, above):
    """Whoever writes the data path puts a link in the place of a job's directory, or of one above it."""
    alone(lake).create_table("t", {"id": "int64"})
    staged = stage(lake, "main.t", SECRET)
    uri, directory = job_io.stage_uri(staged.directory), Path(staged.directory)
    for _ in range(above):
        directory = directory.parent
    elsewhere = victim.parent / directory.name
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    there = {one: one.stat().st_mtime_ns for one in victim.parent.rglob("*")}

    with pytest.raises(DuckLakeError, match="by a link"):
        discard(lake, [uri])
    assert {one: one.stat().st_mtime_ns for one in victim.parent.rglob("*")} == there


# Paths that the reference writes are taken, however odd: only what leads elsewhere is refused.


NOW = timedelta(0)
ODD = ("..", "../..", "a\\..\\b", "x\ny", "%2e%2e", "/", "a/../b", "*", "ü ", "")


@pytest.fixture(params=["plain", "climbing", "doubled slashes", "a file in it"])
def place(request, sqlite_catalog) -> str:
    """A data path as users write them: the catalog keeps it letter by letter."""
    folder = Path(sqlite_catalog.data_path).parent
    (folder / "aside").mkdir()
    return {
        "plain": sqlite_catalog.data_path,
        "climbing": f"{folder}/aside/../data/",
        "doubled slashes": f"{folder}//data/",
        "a file in it": f"{folder}/data/a/b c/%2e/",
    }[request.param]


def test_a_lake_of_the_reference_is_read_written_and_cleaned_up(sqlite_catalog, place):
    with open_lake(sqlite_catalog, place, data_inlining_row_limit=0) as reference:
        reference.sql('CREATE SCHEMA "../s"; CREATE TABLE "../s"."../t" ("../../k" VARCHAR, i INT)')
        reference.sql('ALTER TABLE "../s"."../t" SET PARTITIONED BY ("../../k")')
        for number, value in enumerate((*ODD, *ODD)):
            reference.sql(f'INSERT INTO "../s"."../t" VALUES (\'{value}\', {number})')
        reference.sql(
            'DELETE FROM "../s"."../t" WHERE i = 3; CREATE TABLE gone AS SELECT range FROM range(20)'
        )
        reference.sql("DROP TABLE gone")
    table = ("../s", "../t")
    rows = pa.table({"../../k": list(ODD), "i": pa.array(range(100, 100 + len(ODD)), pa.int32())})

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow(table).num_rows == 2 * len(ODD) - 1
        assert lake.verify() == []
        lake.append_arrow(table, rows)
        alone(lake).delete_rows(table, "i = 5")
        merge_adjacent(lake, table)
        lake.expire_snapshots(keep_last=1)
        cleaned = lake.cleanup_old_files(older_than=NOW)
        orphans = lake.delete_orphaned_files(older_than=NOW)

        assert (cleaned.failures, orphans.failures) == ((), ())
        assert len(cleaned.deleted) > 1
        assert lake.verify() == []
        ids = sorted(lake.read_arrow(table)["i"].to_pylist())
    with open_lake(sqlite_catalog, place, data_inlining_row_limit=0) as reference:
        assert [i for (i,) in reference.sql('SELECT i FROM "../s"."../t" ORDER BY i')] == ids
    assert ids == [*range(3), 4, *range(6, 20), *range(100, 100 + len(ODD))]


def moved_to(catalog, data_path: str) -> None:
    """Write another data path into a catalog, as people do by hand."""
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (data_path,))


def test_a_data_path_without_a_slash_at_its_end_is_the_same_directory(sqlite_catalog, tmp_path):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT range AS i FROM range(20)")
        reference.sql("CREATE TABLE gone AS SELECT 1 AS i; DROP TABLE gone")
    moved_to(sqlite_catalog, sqlite_catalog.data_path.removesuffix("/"))

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", pa.table({"i": pa.array(range(20, 50), pa.int64())}))
        assert lake.read_arrow("t").num_rows == 50
        lake.expire_snapshots(keep_last=1)
        cleaned = lake.cleanup_old_files(older_than=NOW)
        assert (len(cleaned.deleted), lake.delete_orphaned_files(older_than=NOW).deleted) == (1, ())
        assert lake.verify() == []
    with open_lake(f"ducklake:sqlite:{sqlite_catalog.location}") as reference:
        assert reference.sql("SELECT count(i), sum(i) FROM t") == [(50, sum(range(50)))]
    assert [one.name for one in tmp_path.rglob("main*")] == ["main"]


def test_a_data_path_with_the_name_of_a_host_is_refused(sqlite_catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where files would go
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT range AS i FROM range(20)", data_inlining_row_limit=0)
    moved_to(sqlite_catalog, f"file://localhost{sqlite_catalog.data_path}")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError, match="is relative"):
            lake.append_arrow("t", pa.table({"i": pa.array(range(20, 50), pa.int64())}))
        with pytest.raises(UnsupportedFeatureError, match="is relative"):
            lake.delete_orphaned_files(older_than=NOW)
    assert not (tmp_path / "localhost").exists()


def test_files_that_the_reference_added_from_elsewhere_are_read_whatever_they_are_called(
    sqlite_catalog, tmp_path
):
    folder = tmp_path / "else where"
    folder.mkdir()
    for name in ("a.parquet", "b", "c.dat"):
        pq.write_table(pa.table({"i": pa.array([1], pa.int32())}), folder / name)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INT)")
        for name in ("a.parquet", "b", "c.dat"):
            reference.sql(f"CALL ducklake_add_data_files('lake', 't', '{folder}/{name}')")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t")["i"].to_pylist() == [1, 1, 1]
        assert lake.verify() == []
        with lake.transaction() as tx:
            tx.delete_rows("t", "i = 1")  # the delete files lie below the data path
        assert lake.row_count("t") == 0
    assert {path.name for path in folder.iterdir()} == {"a.parquet", "b", "c.dat"}


# After a power cut the files that a commit names are there: synced before COMMIT, whoever wrote them.


ROWS = pa.table({"i": pa.array(range(100), pa.int64()), "p": ["a"] * 50 + ["b"] * 50})


@pytest.fixture
def durable(sqlite_catalog):
    made = Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path)
    with made as durable:
        durable.set_option("data_inlining_row_limit", 0)
        yield durable


def make(durable: Lake) -> None:
    alone(durable).create_table("t", {"i": "int64", "p": "varchar"}, partition_by=["p"])


def files(durable: Lake) -> list[str]:
    return [one.path for one in durable.scan("t").files]


def test_files_that_we_write_and_all_new_directories_above_them(durable, sqlite_catalog, monkeypatch):
    make(durable)

    with recorded(monkeypatch) as events:
        durable.append_arrow("t", ROWS)

    assert len(files(durable)) == 2
    assert needed(sqlite_catalog.data_path, files(durable)) <= before_commit(events)


def test_a_directory_above_is_synced_again_only_when_a_name_in_it_changed(durable, monkeypatch):
    alone(durable).create_table("t", {"i": "int64", "p": "varchar"})
    durable.append_arrow("t", ROWS)
    schema = Path(files(durable)[0]).parent.parent
    aged(schema)
    durable.append_arrow("t", ROWS)

    with recorded(monkeypatch) as unchanged:
        durable.append_arrow("t", ROWS)
    (schema / "theirs").mkdir()
    with recorded(monkeypatch) as changed:
        durable.append_arrow("t", ROWS)

    assert str(schema / "t") in before_commit(unchanged)
    assert str(schema) not in before_commit(unchanged)
    assert str(schema) in before_commit(changed)


def aged(directory: Path) -> None:
    """Have a directory look as if nothing changed in it just now."""
    earlier = directory.stat().st_mtime - 60
    os.utime(directory, (earlier, earlier))


def test_a_file_that_somebody_else_wrote(durable, tmp_path, monkeypatch):
    alone(durable).create_table("t", {"i": "int64", "p": "varchar"})
    theirs = tmp_path / "theirs.parquet"
    pq.write_table(ROWS, theirs)

    with recorded(monkeypatch) as events, durable.transaction() as tx:
        tx.append_files("t", [DataFile(str(theirs), 100, theirs.stat().st_size, 10, {})])

    assert {str(theirs), str(tmp_path)} <= before_commit(events)


def test_delete_files_that_a_commit_writes(durable, monkeypatch):
    make(durable)
    for start in (0, 25):
        durable.append_arrow("t", ROWS.slice(start, 25))

    with recorded(monkeypatch) as events, durable.transaction() as tx:
        tx.delete_rows("t", "i = 3")
    deletes = [one.delete_file.path for one in durable.scan("t").files if one.delete_file is not None]
    assert len(deletes) == 1
    assert {*deletes, str(Path(deletes[0]).parent)} <= before_commit(events)


def test_a_document_lasts_before_it_has_its_name(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        write_bytes(f"{tmp_path}/new/records/1.json", b"{}")

    content, *directories = events[-2:]
    assert Path(content).parent == tmp_path / "new/records"
    assert directories == [str(tmp_path / "new/records")]
    assert {str(tmp_path), str(tmp_path / "new")} <= set(events)


# Who may read the files that hold a catalog: no copy is for more than the original is.


SECRETS = pa.table({"i": pa.array(range(100), pa.int64())})


@pytest.fixture(params=["sqlite", "duckdb"])
def catalog(request, new_catalog):
    before = os.umask(0o022)
    yield new_catalog(request.param, "1.0")
    os.umask(before)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def make_copies(catalog, *, encrypted: bool) -> None:
    made = Lake.create(catalog.sqlalchemy_url, catalog.data_path, encrypted=encrypted)
    with made as lake, lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"})
        tx.append_arrow("t", SECRETS)


def test_an_encrypted_lake_begins_with_a_catalog_for_its_owner_alone(catalog):
    make_copies(catalog, encrypted=True)

    assert mode(catalog.location) == 0o600
    assert len(keys(catalog)) == 1
    assert by_duckdb(catalog, "SELECT count(*) FROM t", encrypted=True) == [(100,)]


def test_the_mode_of_a_catalog_that_was_there_is_left_alone(catalog):
    make_copies(catalog, encrypted=False)

    assert mode(catalog.location) == 0o644


@pytest.mark.parametrize("chosen", [0o600, 0o640])
def test_the_backup_of_a_migration_is_for_those_who_may_read_the_catalog(catalog, chosen):
    make_copies(catalog, encrypted=True)
    Path(catalog.location).chmod(chosen)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        backup = lake.migrate("1.1").backup

    assert mode(backup) == mode(catalog.location) == chosen
    with Lake.connect(f"{catalog.kind}:///{backup}") as lake:
        assert lake.row_count("t") == 100
    assert not [one for one in Path(backup).parent.iterdir() if one.name.startswith(".")]


@pytest.mark.parametrize(("encrypted", "chosen", "expected"), [(True, 0o644, 0o400), (False, 0o640, 0o440)])
def test_a_frozen_catalog_is_for_those_who_may_read_the_catalog(
    catalog, encrypted, chosen, expected, tmp_path
):
    make_copies(catalog, encrypted=encrypted)
    Path(catalog.location).chmod(chosen)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.export_catalog(f"{tmp_path}/frozen.{catalog.kind}")

    assert mode(tmp_path / f"frozen.{catalog.kind}") == expected
