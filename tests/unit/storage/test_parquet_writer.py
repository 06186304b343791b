"""Parquet files that we write, and rows that are split by their partition."""

import random
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from airflow_provider_ducklake.lake.storage.arrow.rows import physical
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet.footer import read_footer
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter

SCHEMA = new_columns({"id": "int64", "word": "varchar", "amount": "decimal(12,2)", "tags": "varchar[]"})


def rows(number: int, first: int = 0) -> pa.RecordBatch:
    values = [
        {"id": random.Random(n).getrandbits(62), "word": f"w{n % 7}", "amount": Decimal(n), "tags": [str(n)]}
        for n in range(first, first + number)
    ]
    return pa.RecordBatch.from_pylist(values, schema=arrow_schema(SCHEMA))


@pytest.fixture
def paths(tmp_path):
    numbers = count()
    return lambda: str(tmp_path / f"{next(numbers)}.parquet")


def write(paths, batches, schema: TableSchema = SCHEMA, **settings):
    with RollingWriter(schema, paths, ParquetSettings(**settings)) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.files


def test_small_batches_are_gathered_into_full_row_groups(paths):
    (file,) = write(paths, [rows(7, first) for first in range(0, 70, 7)], row_group_rows=30)

    metadata = pq.read_metadata(file.path)
    assert [metadata.row_group(group).num_rows for group in range(3)] == [30, 30, 10]
    assert file.record_count == 70


def test_a_large_batch_is_cut_into_row_groups(paths):
    (file,) = write(paths, [rows(70)], row_group_rows=30)

    assert pq.read_metadata(file.path).num_row_groups == 3
    assert pq.read_table(file.path).column("amount").to_pylist() == [Decimal(n) for n in range(70)]


def test_a_full_file_is_followed_by_the_next(paths):
    files = write(
        paths,
        [rows(100, first) for first in range(0, 1000, 100)],
        row_group_rows=100,
        target_file_size_bytes=3000,
    )

    assert len(files) > 2
    assert sum(file.record_count for file in files) == 1000
    assert [pq.read_table(file.path).num_rows for file in files] == [file.record_count for file in files]
    assert all(file.file_size_bytes < 12_000 for file in files)


def test_wide_rows_do_not_wait_for_a_full_row_group(paths):
    schema = new_columns({"text": "varchar"})
    batch = pa.RecordBatch.from_pydict({"text": ["x" * 10_000] * 10})

    with RollingWriter(schema, paths, ParquetSettings(target_file_size_bytes=50_000)) as writer:
        writer.write(batch)
        assert pq_files_begun(writer)


def test_one_large_batch_becomes_the_row_groups_and_files_that_bytes_ask_for(paths):
    (whole,) = write(paths, [rows(10_000)], row_group_bytes=100_000)
    groups = pq.read_metadata(whole.path)
    sizes = [groups.row_group(group).num_rows for group in range(groups.num_row_groups)]
    files = write(paths, [rows(10_000)], target_file_size_bytes=20_000)

    memory = rows(10_000).nbytes
    assert memory > 200_000
    assert len(sizes) == memory // 100_000
    assert max(sizes) - min(sizes) <= 1
    assert len(files) > 2
    assert [row for file in files for row in pq.read_table(file.path).column("amount").to_pylist()] == [
        Decimal(n) for n in range(10_000)
    ]


def test_rows_of_very_different_sizes_become_groups_of_their_bytes(paths):
    schema = new_columns({"text": "varchar"})
    batch = pa.RecordBatch.from_pydict({"text": ["x"] * 9_000 + ["y" * 10_000] * 100})

    with RollingWriter(schema, paths, ParquetSettings(row_group_bytes=100_000)) as writer:
        writer.write(batch)

    groups = pq.read_metadata(writer.files[0].path)
    sizes = [groups.row_group(group).num_rows for group in range(groups.num_row_groups)]
    assert sum(sizes) == 9_100
    assert 7 <= len(sizes) <= 15
    assert sizes[0] > 2_000


def pq_files_begun(writer: RollingWriter) -> bool:
    return bool(writer.files) or writer._file is not None


def test_no_rows_make_no_file(paths, tmp_path):
    assert write(paths, [rows(0)]) == []
    assert list(tmp_path.iterdir()) == []


def test_sizes_and_counts_are_those_of_the_file(paths):
    (file,) = write(paths, [rows(50)])

    read_back = read_footer(open_filesystem(file.path), SCHEMA)

    assert read_back == file


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw"])
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_every_codec_and_page_version_is_written(paths, codec, version):
    (file,) = write(paths, [rows(50)], compression=codec, page_version=version, compression_level=3)

    column = pq.read_metadata(file.path).row_group(0).column(0)
    assert column.compression.lower().startswith(codec.split("_", maxsplit=1)[0])
    assert pq.read_table(file.path).num_rows == 50


def encodings(file) -> dict[str, set[str]]:
    group = pq.read_metadata(file.path).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) for column in columns}


def test_repeating_columns_get_a_dictionary_and_other_integers_deltas(paths):
    (file,) = write(paths, [rows(200)])

    found = encodings(file)

    assert "DELTA_BINARY_PACKED" in found["id"]
    assert "DELTA_BINARY_PACKED" in found["amount"]
    assert "RLE_DICTIONARY" in found["word"]
    assert found["tags.list.element"] == {"PLAIN", "RLE"}


def test_v1_files_use_the_old_encodings_only(paths):
    (file,) = write(paths, [rows(200)], page_version="V1")

    assert all(
        found <= {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY"} for found in encodings(file).values()
    )


def test_byte_stream_split_is_never_used(paths):
    schema = new_columns({"x": "float64"})
    batch = pa.RecordBatch.from_pydict({"x": [random.Random(1).random() for _ in range(100)]})

    (file,) = write(paths, [batch], schema)

    assert "BYTE_STREAM_SPLIT" not in encodings(file)["x"]


def test_two_columns_with_one_dotted_path_are_written(paths):
    schema = new_columns({"a.b": "varchar", "a": "struct(b int64)"})
    batch = pa.RecordBatch.from_pylist(
        [{"a.b": str(n), "a": {"b": n}} for n in range(9)], schema=arrow_schema(schema)
    )

    (file,) = write(paths, [batch], schema)

    assert [file.column_stats[column.id].max_value for column in schema.leaves()] == ["8", "8"]


def test_slices_and_nulls_of_nested_columns_are_counted_right(paths):
    schema = new_columns({"l": "struct(x float64, m map(varchar, float32))[]"})
    values = [
        {"l": [{"x": float("nan"), "m": [("k", 9.0)]}]},
        {"l": [{"x": 1.5, "m": [("k", -0.0), ("n", None)]}, None, {"x": None, "m": None}]},
        {"l": None},
        {"l": []},
        {"l": [{"x": float("inf"), "m": [("k", 7.0)]}]},
    ]
    whole = pa.RecordBatch.from_pylist(values, schema=arrow_schema(schema))

    (file,) = write(paths, [whole.slice(1, 3)], schema)

    x, key, value = (file.column_stats[column.id] for column in schema.leaves())
    assert (x.min_value, x.max_value, x.contains_nan, x.value_count, x.null_count) == (
        "1.5",
        "1.5",
        False,
        1,
        4,
    )
    assert (key.min_value, key.max_value, key.value_count) == ("k", "n", 2)
    assert (value.min_value, value.max_value, value.value_count, value.null_count) == ("-0.0", "-0.0", 1, 5)
    assert read_back(file) == values[1:4]


def test_a_slice_of_a_map_is_counted_without_its_neighbours(paths):
    schema = new_columns({"m": "map(varchar, float64)"})
    values = [{"m": [(str(n), float(n)), (f"{n}x", -float(n))]} for n in range(6)]
    whole = pa.RecordBatch.from_pylist(values, schema=arrow_schema(schema))

    (file,) = write(paths, [whole.slice(2, 2)], schema)

    key, value = (file.column_stats[column.id] for column in schema.leaves())
    assert (key.min_value, key.max_value, key.value_count) == ("2", "3x", 4)
    assert (value.min_value, value.max_value, value.value_count) == ("-3.0", "3.0", 4)


@pytest.mark.parametrize("attempt", range(20))
def test_the_first_of_equal_zeros_is_the_bound(paths, attempt):
    schema = new_columns({"x": "float64"})
    values = random.Random(attempt).choices([0.0, -0.0, None], k=1000)  # Arrow's own choice varies here

    (file,) = write(paths, [pa.RecordBatch.from_pydict({"x": values})], schema)

    first = str(next(value for value in values if value is not None))
    stats = file.column_stats[1]
    assert (stats.min_value, stats.max_value) == (first, first)


def read_back(file) -> list[dict]:
    return pq.read_table(file.path).to_pylist()


def test_types_that_cast_without_loss_are_taken(paths):
    schema = new_columns({"u": "uuid", "t": "timestamp", "n": "int64", "s": "varchar"})
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"\0" * 16], pa.binary(16)),
            pa.array([1577836800000], pa.timestamp("ms")),
            pa.array([5], pa.int8()),
            pa.array(["x"], pa.dictionary(pa.int32(), pa.string())),
        ],
        names=["u", "t", "n", "s"],
    )

    (file,) = write(paths, [batch], schema)

    assert [file.column_stats[column.id].min_value for column in schema.leaves()] == [
        "00000000-0000-0000-0000-000000000000",
        "2020-01-01 00:00:00",
        "5",
        "x",
    ]


def test_a_wrong_number_of_columns_is_an_error(paths):
    with pytest.raises(ValueError, match="got 1 columns for a table with 4"):
        write(paths, [rows(3).select(["id"])])


def test_an_error_removes_the_unfinished_file_and_keeps_finished_ones(paths, tmp_path):
    writer = RollingWriter(SCHEMA, paths, ParquetSettings(row_group_rows=100, target_file_size_bytes=3000))

    def write_and_fail() -> None:
        with writer:
            while len(writer.files) < 2 or writer._file is None:
                writer.write(rows(100))
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()

    assert writer._file is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{number}.parquet" for number in range(len(writer.files))
    ]


def test_an_existing_file_is_never_overwritten(tmp_path):
    (tmp_path / "0.parquet").write_bytes(b"precious")

    with pytest.raises(StorageError, match=r"0\.parquet"):
        write(lambda: str(tmp_path / "0.parquet"), [rows(1)])

    assert (tmp_path / "0.parquet").read_bytes() == b"precious"


def test_a_file_under_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "x").write_bytes(b"")

    with pytest.raises(StorageError, match=r"x/0\.parquet"):
        write(lambda: str(tmp_path / "x" / "0.parquet"), [rows(1)])


def test_percent_signs_spaces_and_umlauts_in_paths_are_literal(tmp_path):
    folder = tmp_path / "a b%20c ü=1"

    (file,) = write(lambda: f"{folder}/x%2F.parquet", [rows(1)])

    assert (folder / "x%2F.parquet").exists()
    assert read_footer(open_filesystem(file.path), SCHEMA).record_count == 1


# --- rows are split by their partition ---


def test_a_decimal_keeps_all_its_digits():
    value = pa.scalar(Decimal("1234567890123456789012345678901234567.8"), pa.decimal128(38, 1))

    assert physical(value, parse_type("decimal(38,1)")) == 12345678901234567890123456789012345678


def test_a_uuid_is_its_bytes_whether_arrow_knows_uuids_or_not():
    value = bytes(range(16))

    for type_ in (pa.uuid(), pa.binary(), pa.binary(16)):
        assert physical(pa.array([value], type_)[0], parse_type("uuid")) == value


def test_seconds_are_microseconds_and_infinite_ones_stay_so():
    infinite = 2**63 - 1

    assert physical(pa.scalar(2_000_000, pa.timestamp("us")), parse_type("timestamp_s")) == 2_000_000
    assert physical(pa.scalar(infinite, pa.timestamp("us")), parse_type("timestamp_s")) == infinite
