"""Footers that are changed on their way out: groups become variants, and nothing else is another."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet import modules
from airflow_provider_ducklake.lake.storage.parquet.modules import read_struct
from airflow_provider_ducklake.lake.storage.parquet.opening import (
    Annotations,
    ParquetOutput,
    annotations_of,
    open_parquet,
    read_plain_footer,
)

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
