"""What is kept of others' bytes is bounded by their size, not by their number alone."""

import gc
import tracemalloc

from airflow_provider_ducklake.lake.format.limits import cached
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.variant_bytes import ids_of_names, read_names, write_names


def test_short_texts_are_kept_by_the_thousand_and_long_ones_by_four():
    asked: list[str] = []
    read = cached(lambda text: asked.append(text) or len(text))
    short, long = [f"{one}" for one in range(1000)], [str(one) * 2000 for one in range(1, 6)]
    for _ in range(2):
        for text in short:
            read(text)
    assert asked == short

    asked.clear()
    for text in (*long[:4], *long[:4], *long, long[0]):
        assert read(text) == len(text)
    assert asked == [*long[:4], long[4], long[0]]


def test_metadata_of_many_names_does_not_stay_in_memory():
    tracemalloc.start()
    for row in range(30):
        metadata = write_names(f"{row}_{name}" for name in range(2000))
        assert len(read_names(metadata)) == len(ids_of_names(metadata)) == 2000
    del metadata
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 6 * 2**20  # all of them take 12


def test_types_of_many_fields_do_not_stay_in_memory():
    tracemalloc.start()
    for table in range(24):
        parse_type(f"struct({', '.join(f'f{table}_{field} int64' for field in range(1000))})")
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 4 * 2**20
