"""Footers that are changed on their way out: groups become variants, and nothing else is another."""

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.files import ColumnStats, FileKey, LiveDataFile
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.snapshots import ColumnId, DataFileId, SnapshotId
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from airflow_provider_ducklake.lake.storage.arrow.reshape import by_name
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet import modules
from airflow_provider_ducklake.lake.storage.parquet.footer import NanRule, read_footer, read_metadata
from airflow_provider_ducklake.lake.storage.parquet.modules import read_struct
from airflow_provider_ducklake.lake.storage.parquet.opening import (
    Annotations,
    ParquetOutput,
    annotations_of,
    open_parquet,
    open_plain_parquet,
    read_plain_footer,
)
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file

RECORDED = Path(__file__).parents[2] / "golden" / "parquet_mr"
# recorded file → (type, value_count, null_count, min, max, contains_nan, only_nan)
PARQUET_MR = {
    "nan": ("float64", 3, 0, "-1.0", None, True, False),
    "all_nan": ("float64", 2, 0, None, None, True, True),
    "no_nan": ("float64", 2, 1, "-1.0", "1.0", False, False),
    "zeros": ("float64", 2, 0, "-0.0", "0.0", False, False),
    "all_null": ("float64", 0, 1, None, None, False, False),
    "float_nan": ("float32", 1, 1, None, None, True, True),
    "text_300": ("varchar", 2, 1, "a" * 256, "b", None, False),
    "text_5000": ("varchar", None, None, None, None, None, False),
}


@pytest.mark.parametrize("name", PARQUET_MR)
def test_sparks_footers_tell_nan_and_hide_the_true_maximum(name):
    type_, *expected = PARQUET_MR[name]
    location = open_filesystem(str(RECORDED / f"{name}.parquet"))

    stats = read_footer(location, new_columns({"c": type_}), match=by_name).column_stats[ColumnId(1)]

    found = [stats.value_count, stats.null_count, stats.min_value, stats.max_value]
    assert [*found, stats.contains_nan, stats.only_nan] == expected


def stats_of(path: Path, type_: str, values: pa.Array, rule: NanRule | None = None, **options) -> ColumnStats:
    schema = new_columns({"c": type_})
    field = pa.field("c", values.type, metadata={b"PARQUET:field_id": b"1"})
    pq.write_table(pa.Table.from_arrays([values], schema=pa.schema([field])), path, **options)
    return read_footer(open_filesystem(str(path)), schema, rule).column_stats[ColumnId(1)]


def test_pyarrows_footers_cannot_tell_nan(tmp_path):
    stats = stats_of(tmp_path / "f", "float64", pa.array([1.0, float("nan"), 2.0]))

    assert (stats.min_value, stats.max_value, stats.contains_nan) == ("1.0", "2.0", None)


def test_pyarrows_all_nan_chunk_is_unknown(tmp_path):
    stats = stats_of(tmp_path / "f", "float64", pa.array([float("nan")]))

    assert (stats.min_value, stats.max_value, stats.contains_nan, stats.only_nan) == (None, None, None, False)
    assert stats.bounds_unknown


def test_a_row_group_without_statistics_makes_bounds_unknown(tmp_path):
    stats = stats_of(tmp_path / "f", "int64", pa.array([1, 2]), write_statistics=False)

    assert (stats.value_count, stats.null_count, stats.min_value, stats.max_value) == (None, None, None, None)


def test_one_row_group_with_long_text_makes_bounds_unknown(tmp_path):
    stats = stats_of(tmp_path / "f", "varchar", pa.array(["a", "b" * 5000]), row_group_size=1)

    assert (stats.value_count, stats.min_value, stats.max_value) == (2, None, None)


def test_row_groups_of_nulls_do_not_count(tmp_path):
    stats = stats_of(tmp_path / "f", "int64", pa.array([None, 5, None], pa.int64()), row_group_size=1)

    assert (stats.value_count, stats.null_count, stats.min_value, stats.max_value) == (1, 2, "5", "5")


# (type of the column, narrower or other type in the file, bounds)
OTHER_TYPES = [
    ("int64", pa.array([-5, 7], pa.int8()), ("-5", "7")),
    ("int64", pa.array([1, 2**32 - 1], pa.uint32()), ("1", "4294967295")),
    ("float64", pa.array([0.1], pa.float32()), ("0.10000000149011612", "0.10000000149011612")),
    ("float32", pa.array([1.5, -2.0], pa.float16()), ("-2.0", "1.5")),
    ("decimal(20,4)", pa.array(["1.50"]).cast(pa.decimal128(5, 2)), ("1.5000", "1.5000")),
    ("decimal(5,1)", pa.array(["1.50"]).cast(pa.decimal128(5, 2)), (None, None)),
    ("timestamp", pa.array([1500], pa.timestamp("ms")), ("1970-01-01 00:00:01.5", "1970-01-01 00:00:01.5")),
    ("timestamp_ms", pa.array([1500], pa.timestamp("us")), (None, None)),
    ("timestamptz", pa.array([0], pa.timestamp("us")), (None, None)),
    ("time", pa.array([1500], pa.time32("ms")), ("00:00:01.5", "00:00:01.5")),
    ("int64", pa.array(["1"]), (None, None)),
    ("varchar", pa.array([b"\xff\xfe"]), (None, None)),
    ("blob", pa.array([b"ab"], pa.binary(2)), ("6162", "6162")),
    ("uuid", pa.array([b"\0" * 15], pa.binary(15)), (None, None)),
    ("boolean", pa.array([0]), (None, None)),
    ("date", pa.array([0], pa.timestamp("us")), (None, None)),
]


@pytest.mark.parametrize(("type_", "values", "bounds"), OTHER_TYPES)
def test_bounds_of_other_file_types_are_converted_or_unknown(tmp_path, type_, values, bounds):
    stats = stats_of(tmp_path / "f", type_, values)

    assert (stats.min_value, stats.max_value) == bounds


def test_int96_timestamps_have_no_bounds(tmp_path):
    values = pa.array([0, 1], pa.timestamp("us"))

    stats = stats_of(tmp_path / "f", "timestamp", values, use_deprecated_int96_timestamps=True)

    assert (stats.min_value, stats.max_value) == (None, None)


def test_columns_that_the_table_does_not_have_are_left_out(tmp_path):
    wide = new_columns({"a": "int64", "s": "struct(x int64, y int64)", "z": "int64"})
    narrow = new_columns({"a": "int64"})
    table = pa.Table.from_pylist([{"a": 1, "s": {"x": 1, "y": 2}, "z": 3}], schema=arrow_schema(wide))
    pq.write_table(table, tmp_path / "f")

    assert set(read_footer(open_filesystem(str(tmp_path / "f")), narrow).column_stats) == {1}


@pytest.mark.parametrize("type_", ["int64", "int64[]", "struct(a int64)", "map(varchar, int64)"])
def test_a_file_without_field_ids_is_refused(tmp_path, type_):
    schema = new_columns({"c": type_})
    pq.write_table(arrow_schema(schema, field_ids=False).empty_table(), tmp_path / "f")

    with pytest.raises(UnsupportedFeatureError, match="column c has no Parquet field id"):
        read_footer(open_filesystem(str(tmp_path / "f")), schema)
    with pytest.raises(UnsupportedFeatureError, match="column c has no Parquet field id"):
        read_rows(tmp_path / "f", schema)


def test_a_list_element_without_field_id_is_refused(tmp_path):
    field = pa.field("c", pa.list_(pa.int64()), metadata={b"PARQUET:field_id": b"1"})
    pq.write_table(pa.schema([field]).empty_table(), tmp_path / "f")

    with pytest.raises(UnsupportedFeatureError, match=r"column c\.element has no Parquet field id"):
        read_footer(open_filesystem(str(tmp_path / "f")), new_columns({"c": "int64[]"}))


def read_rows(path: Path, schema):
    file = LiveDataFile(DataFileId(1), str(path), 1, 1, 1, 0, SnapshotId(1))
    return read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(7)).cast()


BROKEN = {
    "empty": lambda data: data[:0],
    "three bytes": lambda data: data[:3],
    "without footer": lambda data: data[: len(data) // 2],
    "last byte lost": lambda data: data[:-1],
    "start lost": lambda data: data[-100:],
    "footer length too large": lambda data: data[:-8] + (10**9).to_bytes(4, "little") + b"PAR1",
    "footer zeroed": lambda data: data[:-300] + bytes(292) + data[-8:],
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_an_error_that_names_it(tmp_path, how):
    schema = new_columns({"c": "int64"})
    path = tmp_path / "broken.parquet"
    pq.write_table(pa.Table.from_pylist([{"c": 1}], schema=arrow_schema(schema)), path)
    path.write_bytes(BROKEN[how](path.read_bytes()))

    with pytest.raises(StorageError, match=r"broken\.parquet"):
        read_footer(open_filesystem(str(path)), schema)
    with pytest.raises(StorageError, match=r"broken\.parquet of main\.t at snapshot 7"):
        read_rows(path, schema)


def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path):
    schema = new_columns({"c": "varchar"})
    path = tmp_path / "broken.parquet"
    rows = pa.Table.from_pylist([{"c": str(n)} for n in range(1000)], schema=arrow_schema(schema))
    pq.write_table(rows, path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[20:400] = bytes(380)
    path.write_bytes(data)

    with pytest.raises(StorageError, match=r"broken\.parquet of main\.t at snapshot 7"):
        read_rows(path, schema)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    schema = new_columns({"c": "int64"})

    with pytest.raises(StorageError, match=r"gone\.parquet"):
        read_footer(open_filesystem(str(tmp_path / "gone.parquet")), schema)
    with pytest.raises(StorageError, match=r"gone\.parquet of main\.t at snapshot 7"):
        read_rows(tmp_path / "gone.parquet", schema)


def test_an_encrypted_file_is_refused(tmp_path):
    (tmp_path / "f").write_bytes(b"PARE" + bytes(100) + b"PARE")

    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        read_footer(open_filesystem(str(tmp_path / "f")), new_columns({"c": "int64"}))


def test_a_footer_larger_than_the_first_read_is_found(tmp_path):
    schema = new_columns({f"column_{number}": "int64" for number in range(2000)})
    row = {column.name: 1 for column in schema.columns}
    pq.write_table(pa.Table.from_pylist([row], schema=arrow_schema(schema)), tmp_path / "f")

    file = read_footer(open_filesystem(str(tmp_path / "f")), schema)

    assert file.footer_size > 64 * 1024
    assert len(file.column_stats) == 2000


KEY = FileKey(base64.b64encode(bytes(16)).decode())
OPENED = {
    "its metadata": (read_metadata, b"PAR1"),
    "as it is": (open_plain_parquet, b"PAR1"),
    "as that of a lake": (open_parquet, b"PAR1"),
    "decrypted": (lambda place: open_parquet(place.with_key(KEY)), b"PARE"),
}


@pytest.mark.parametrize(("read", "magic"), OPENED.values(), ids=OPENED)
def test_a_footer_that_is_too_long_is_not_begun_to_be_read(tmp_path, read, magic):
    length = 2**29 + 1
    with (tmp_path / "f").open("wb") as file:  # it takes a few kilobytes on the disk
        file.seek(length + 4)
        file.write(length.to_bytes(4, "little") + magic)

    with pytest.raises(
        StorageError, match=f"its footer is to have {length} bytes, and one has {2**29} at most"
    ):
        read(open_filesystem(str(tmp_path / "f")))


# --- footers that are changed on their way out ---

GROUP = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("v", GROUP, metadata={"PARQUET:field_id": "2"}),
        pa.field("s", GROUP, metadata={"PARQUET:field_id": "3"}),
    ]
)
PART = {"metadata": b"\x01\x00\x00", "value": b"\x00"}
ROWS = pa.table({"i": range(1000), "v": [PART, None] * 500, "s": [PART] * 1000}, schema=SCHEMA)


def write(path: str, output: ParquetOutput) -> None:
    with pq.ParquetWriter(output.sink, SCHEMA, store_schema=False) as writer:
        writer.write_table(ROWS, row_group_size=300)
        output.expect_footer()
    written = output.finish()
    assert written.file_size_bytes == open_filesystem(path).filesystem.get_file_info(path).size


def test_only_the_groups_with_these_ids_are_variants(tmp_path):
    path = str(tmp_path / "a.parquet")

    variants = frozenset({1, 2})  # the first is no group
    write(path, ParquetOutput(open_filesystem(path), Annotations(variants)))

    file = pq.ParquetFile(path)
    assert str(file.schema).count("(Variant(1))") == 1
    assert file.read().equals(ROWS)
    assert file.num_row_groups == 4
    with open_parquet(open_filesystem(path)) as source:
        assert annotations_of(read_plain_footer(source, path)) == Annotations(variants=frozenset({2}))


def test_without_variants_nothing_is_held_back(tmp_path):
    plain, path = (str(tmp_path / name) for name in ("plain.parquet", "b.parquet"))
    pq.write_table(ROWS, plain, store_schema=False, row_group_size=300)

    write(path, ParquetOutput(open_filesystem(path)))

    assert pq.read_metadata(path).serialized_size == pq.read_metadata(plain).serialized_size


def test_a_writer_that_was_not_closed_leaves_no_file(tmp_path):
    path = str(tmp_path / "c.parquet")
    output = ParquetOutput(open_filesystem(path), Annotations(variants=frozenset({2})))
    output.sink.write(b"PAR1")

    with pytest.raises(StorageError, match=r"c\.parquet is not a complete Parquet file"):
        output.finish()
    output.abort()

    assert not (tmp_path / "c.parquet").exists()


def test_a_footer_of_more_values_than_memory_has_room_for_is_refused(monkeypatch):
    list_of_structs = bytes([0x19, 0xFC, 0xC0, 0x84, 0x3D]) + bytes(1_000_000) + b"\0"
    footer, _ = read_struct(list_of_structs)
    assert len(footer[1].value.values) == 1_000_000
    monkeypatch.setattr(modules, "_MOST_VALUES", 999_999)

    with pytest.raises(StorageError, match="more than 999999 values"):
        read_struct(list_of_structs)
