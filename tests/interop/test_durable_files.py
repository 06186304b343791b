"""After a power cut the files that a commit names are there: synced before COMMIT, whoever wrote them."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.files import DataFile
from airflow_provider_ducklake.lake.storage.files.filesystem import write_bytes
from tests.interop.lakes import alone
from tests.interop.synced import before_commit, needed, recorded

ROWS = pa.table({"i": pa.array(range(100), pa.int64()), "p": ["a"] * 50 + ["b"] * 50})


@pytest.fixture
def lake(sqlite_catalog):
    made = Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path)
    with made as lake:
        lake.set_option("data_inlining_row_limit", 0)
        yield lake


def make(lake: Lake) -> None:
    alone(lake).create_table("t", {"i": "int64", "p": "varchar"}, partition_by=["p"])


def files(lake: Lake) -> list[str]:
    return [one.path for one in lake.scan("t").files]


def test_files_that_we_write_and_all_new_directories_above_them(lake, sqlite_catalog, monkeypatch):
    make(lake)

    with recorded(monkeypatch) as events:
        lake.append_arrow("t", ROWS)

    assert len(files(lake)) == 2
    assert needed(sqlite_catalog.data_path, files(lake)) <= before_commit(events)


def test_a_directory_above_is_synced_again_only_when_a_name_in_it_changed(lake, monkeypatch):
    alone(lake).create_table("t", {"i": "int64", "p": "varchar"})
    lake.append_arrow("t", ROWS)
    schema = Path(files(lake)[0]).parent.parent
    aged(schema)
    lake.append_arrow("t", ROWS)

    with recorded(monkeypatch) as unchanged:
        lake.append_arrow("t", ROWS)
    (schema / "theirs").mkdir()
    with recorded(monkeypatch) as changed:
        lake.append_arrow("t", ROWS)

    assert str(schema / "t") in before_commit(unchanged)
    assert str(schema) not in before_commit(unchanged)
    assert str(schema) in before_commit(changed)


def aged(directory: Path) -> None:
    """Have a directory look as if nothing changed in it just now."""
    earlier = directory.stat().st_mtime - 60
    os.utime(directory, (earlier, earlier))


def test_a_file_that_somebody_else_wrote(lake, tmp_path, monkeypatch):
    alone(lake).create_table("t", {"i": "int64", "p": "varchar"})
    theirs = tmp_path / "theirs.parquet"
    pq.write_table(ROWS, theirs)

    with recorded(monkeypatch) as events, lake.transaction() as tx:
        tx.append_files("t", [DataFile(str(theirs), 100, theirs.stat().st_size, 10, {})])

    assert {str(theirs), str(tmp_path)} <= before_commit(events)


def test_delete_files_that_a_commit_writes(lake, monkeypatch):
    make(lake)
    for start in (0, 25):
        lake.append_arrow("t", ROWS.slice(start, 25))

    with recorded(monkeypatch) as events, lake.transaction() as tx:
        tx.delete_rows("t", "i = 3")
    deletes = [one.delete_file.path for one in lake.scan("t").files if one.delete_file is not None]
    assert len(deletes) == 1
    assert {*deletes, str(Path(deletes[0]).parent)} <= before_commit(events)


def test_a_document_lasts_before_it_has_its_name(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        write_bytes(f"{tmp_path}/new/records/1.json", b"{}")

    content, *directories = events[-2:]
    assert Path(content).parent == tmp_path / "new/records"
    assert directories == [str(tmp_path / "new/records")]
    assert {str(tmp_path), str(tmp_path / "new")} <= set(events)
