"""Position delete files of Iceberg, read into the positions of each data file."""

import time
from array import array
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.storage.files.filesystem import Location, open_filesystem
from airflow_provider_ducklake.lake.storage.foreign.iceberg import IcebergDeletes, deleted_rows_of

MANY = 20_000
AT_MOST = 5.0  # seconds of CPU; a look at all rows for each path takes twice as long


def local(path: str) -> Location:
    return open_filesystem(path, {})


def deletes(folder: Path, paths: list[str], positions: list[int]) -> IcebergDeletes:
    rows = pa.table({"file_path": paths, "pos": pa.array(positions, pa.int64())})
    pq.write_table(rows, folder / "deletes.parquet", row_group_size=MANY)
    return IcebergDeletes(f"{folder}/deletes.parquet", is_vectors=False, sequence_number=1, data_files=None)


def test_positions_of_several_files_are_told_apart_in_any_order(tmp_path):
    file = deletes(tmp_path, ["b", "a", "c", "a", "b", "a"], [4, 9, 1, 0, 2, 9])

    found = deleted_rows_of([file], {"a": 1, "b": 1}, {}, local)

    assert {path: list(array("q", one.data)) for path, one in found.items()} == {"a": [0, 9], "b": [2, 4]}


def test_rows_of_many_files_are_read_once(tmp_path):
    paths = [f"{number}.parquet" for number in range(MANY)]
    file = deletes(tmp_path, paths * 4, list(range(4 * MANY)))
    started = time.process_time()

    found = deleted_rows_of([file], {"7.parquet": 1}, {}, local)

    assert list(array("q", found["7.parquet"].data)) == [7 + MANY * turn for turn in range(4)]
    assert time.process_time() - started < AT_MOST
