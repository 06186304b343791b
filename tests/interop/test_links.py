"""What lies below a folder, and what links there lead away from: the kernel is the oracle."""

import json
import os
import shutil
from collections.abc import Iterator
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
from airflow_provider_ducklake.lake.errors import DuckLakeError, StorageError, UntrustedValueError
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.storage.files.local import lies_below, unlink_below
from airflow_provider_ducklake.lake.writes.staged import discard
from tests.interop.lakes import alone
from tests.interop.staging import stage

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
