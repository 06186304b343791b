"""Deletes in files of others: roaring bitmaps, and position delete files of Iceberg."""

import random
import struct
import time
import tracemalloc
from array import array
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from airflow_provider_ducklake.lake.storage.deletes.vectors import positions
from airflow_provider_ducklake.lake.storage.files.filesystem import Location, open_filesystem
from airflow_provider_ducklake.lake.storage.foreign.iceberg import IcebergDeletes, deleted_rows_of

DENSE = [number for number in range(65536) if number % 3]
BITMAPS = {
    "empty": [],
    "list": [0, 7, 65535],
    "bitmap": DENSE,
    "run": range(100, 40_000),
    "several runs": [*range(5), *range(10, 20), *range(70_000, 140_000), *range(2**20, 2**20 + 9)],
    "many containers": [number * 65_536 + number for number in range(50)],
    "beyond 32 bits": [1, 2**31, 2**32 - 1, 2**32, 2**40 + 3, *range(2**33, 2**33 + 9000)],
    "drawn": random.Random(5).sample(range(10**7), 20_000),
}


@pytest.mark.parametrize("is_optimized", [False, True])
@pytest.mark.parametrize("name", BITMAPS)
def test_every_kind_of_container_is_read(name, is_optimized):
    bitmap = BitMap64(BITMAPS[name])
    if is_optimized:
        bitmap.run_optimize()

    assert positions(bitmap.serialize(), len(BITMAPS[name])).to_pylist() == sorted(BITMAPS[name])


@pytest.mark.parametrize("name", ["list", "bitmap", "several runs"])
def test_what_is_cut_off_or_none_is_refused(name):
    data = BitMap64(BITMAPS[name]).serialize()
    for wrong in (data[:-1], data[:9], b"", data[:8] + b"\xff" * (len(data) - 8)):
        with pytest.raises(ValueError, match="bitmap"):
            positions(wrong, 10**9)


def bitmap(high: int, cookie: int, rest: bytes) -> bytes:
    return struct.pack("<QII", 1, high, cookie) + rest


def runs_of_everything(containers: int) -> bytes:
    """Return a bitmap of containers whose one run, of four bytes, has all 65,536 numbers."""
    flags = b"\xff" * ((containers + 7) // 8)
    header = b"".join(struct.pack("<HH", key, 65535) for key in range(containers))
    offsets = b"\0\0\0\0" * containers
    runs = struct.pack("<HHH", 1, 0, 65535) * containers
    return bitmap(0, 12347 | (containers - 1) << 16, flags + header + offsets + runs)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (bitmap(0, 12346, struct.pack("<I", 2**32 - 1) + b"\0" * 12), "cut off"),  # 32 bytes for 4 billion
        (struct.pack("<Q", 2**64 - 1) + b"\0" * 24, "no bitmap begins with 0"),
        (runs_of_everything(65536), "more numbers than the 100000 that it may have"),  # 900 KB for 4 billion
        (bitmap(2**31, 12346, struct.pack("<IHHIH", 1, 0, 0, 0, 5)), "beyond 63 bits"),
        (bitmap(0, 12347, b"\x01" + struct.pack("<HHHHH", 0, 9, 1, 0, 65535)), "do not have as many"),
        (bitmap(0, 12347, b"\x01" + struct.pack("<HHHHH", 0, 9, 1, 65530, 9)), "behind its container"),
        (
            bitmap(0, 12346, struct.pack("<IHHI", 1, 0, 4096, 16) + b"\xff" * 8192),
            "has 65536 numbers where it says 4097",
        ),
        (bitmap(0, 12346, struct.pack("<IHHIHH", 1, 0, 1, 16, 5, 5)), "do not ascend"),
        (bitmap(0, 12346, struct.pack("<IHHHHIIHH", 2, 1, 0, 0, 0, 24, 26, 5, 5)), "do not ascend"),
        (bitmap(0, 12347, b"\x01" + struct.pack("<HHHHHHH", 0, 5, 2, 0, 2, 2, 2)), "do not ascend"),
    ],
    ids=[
        *("count", "bitmaps", "runs", "high bits", "run beyond", "run behind", "dense"),
        *("repeated", "containers", "runs that overlap"),
    ],
)
def test_a_count_is_never_more_than_the_bytes_or_the_rows(data, problem):
    tracemalloc.start()
    with pytest.raises(ValueError, match=problem):
        positions(data, 100_000)

    assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    tracemalloc.stop()


# --- position delete files of Iceberg, read into the positions of each data file ---

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
