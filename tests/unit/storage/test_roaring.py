"""Roaring bitmaps as another library writes them."""

import random

import pytest
from pyroaring import BitMap64

from airflow_provider_ducklake.storage.deletes.roaring import positions

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

    assert positions(bitmap.serialize()).to_pylist() == sorted(BITMAPS[name])


@pytest.mark.parametrize("name", ["list", "bitmap", "several runs"])
def test_what_is_cut_off_or_none_is_refused(name):
    data = BitMap64(BITMAPS[name]).serialize()
    for wrong in (data[:-1], data[:9], b"", data[:8] + b"\xff" * (len(data) - 8)):
        with pytest.raises(ValueError, match="bitmap"):
            positions(wrong)
