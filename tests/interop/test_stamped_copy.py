"""Copies of files that the reference wrote: the same rows, with the snapshot that each came by."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.moving.restored import check_copyable, is_stamped, write_stamped

VALUES = {
    "b": "n % 2 = 0",
    "i8": "n::TINYINT",
    "i16": "n::SMALLINT",
    "i32": "n::INTEGER",
    "i64": "n::BIGINT",
    "u8": "n::UTINYINT",
    "u16": "n::USMALLINT",
    "u32": "n::UINTEGER",
    "u64": "n::UBIGINT",
    "f": "n::FLOAT",
    "d": "CASE n WHEN 3 THEN 'nan'::DOUBLE ELSE n END",
    "small": "n::DECIMAL(4, 2)",
    "large": "n::DECIMAL(18, 6)",
    "huge": "n::DECIMAL(38, 10)",
    "day": "DATE '2024-01-01' + n::INTEGER",
    "t": "TIME '12:34:56.789' + to_seconds(n)",
    "s": "make_timestamp(n * 1000000)::TIMESTAMP_S",
    "ms": "make_timestamp(n * 1000000)::TIMESTAMP_MS",
    "us": "make_timestamp(n)",
    "ns": "make_timestamp_ns(n)",
    "z": "make_timestamp(n)::TIMESTAMPTZ",
    "text": "'ä' || n",
    "bytes": "('x' || n)::BLOB",
    "id": "'00000000-0000-4000-8000-000000000001'::UUID",
    "j": "('{\"a\": ' || n || '}')::JSON",
    "st": "{'a': n, 'b': [n, NULL]}",
    "m": "MAP {'k': n}",
    "every": "to_days(n::INTEGER)",
    "utc": "'12:34:56.789+02'::TIMETZ",
    "none": "NULL::INTEGER",
}


def write(path, values: dict[str, str], rows: int = 12, field_ids: str = "'auto'") -> None:
    selected = ", ".join(f'{value} AS "{name}"' for name, value in values.items())
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT {selected} FROM range({rows}) r(n)) TO '{path}' "
            f"(FIELD_IDS {field_ids}, CODEC 'zstd')"
        )


def rows_of(path) -> tuple[list[tuple], list[tuple]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        types = connection.execute(f"DESCRIBE FROM '{path}'").fetchall()
        return types, connection.execute(f"FROM '{path}'").fetchall()


@pytest.fixture
def place(tmp_path):
    return lambda name: open_filesystem(str(tmp_path / name))


def test_the_reference_reads_the_same_with_a_column_more(tmp_path, place):
    write(tmp_path / "old.parquet", VALUES)

    assert not is_stamped(place("old.parquet"), [(3, 5), (7, 12)])
    written = write_stamped(place("old.parquet"), place("new.parquet"), [(3, 5), (7, 12)])

    content = (tmp_path / "new.parquet").read_bytes()
    assert written.file_size_bytes == len(content)
    assert written.footer_size == int.from_bytes(content[-8:-4], "little")
    (old_types, old_rows), (types, rows) = (
        rows_of(tmp_path / "old.parquet"),
        rows_of(tmp_path / "new.parquet"),
    )
    assert types[:-1] == old_types
    assert types[-1][:2] == ("_ducklake_internal_snapshot_id", "BIGINT")
    assert repr([row[:-1] for row in rows]) == repr(old_rows)
    assert [row[-1] for row in rows] == [3] * 5 + [7] * 7
    assert is_stamped(place("new.parquet"), [(3, 5), (7, 12)])
    assert not is_stamped(place("new.parquet"), [(3, 6), (7, 12)])
    assert ids(tmp_path / "new.parquet")[:-1] == ids(tmp_path / "old.parquet")
    chunk = pq.read_metadata(tmp_path / "new.parquet").row_group(0).column(0)
    assert chunk.compression == "ZSTD"


def ids(path) -> list[str]:
    return [line for line in str(pq.ParquetFile(path).schema_arrow).splitlines() if "field_id" in line]


def test_rows_of_several_row_groups_keep_their_order(tmp_path, place):
    write(tmp_path / "old.parquet", {"n": "n"}, rows=300_000)

    write_stamped(place("old.parquet"), place("new.parquet"), [(1, 130_000), (2, 300_000)])

    rows = pq.read_table(tmp_path / "new.parquet")
    assert rows["n"].combine_chunks().equals(pa.array(range(300_000), pa.int64()))
    assert rows.column(1).to_pylist() == [1] * 130_000 + [2] * 170_000


def test_a_column_that_would_be_another_is_refused(tmp_path, place):
    values = {"n": "n", "how_long": "to_days(n::INTEGER)"}
    write(tmp_path / "old.parquet", values, field_ids="{n: 1}")  # by which a type is put back

    with pytest.raises(UnsupportedFeatureError, match="how_long"):
        check_copyable(place("old.parquet"))


def test_another_number_of_rows_is_refused_and_leaves_no_file(tmp_path, place):
    write(tmp_path / "old.parquet", {"n": "n"})

    with pytest.raises(StorageError, match="12 rows, but the catalog says 11"):
        write_stamped(place("old.parquet"), place("new.parquet"), [(1, 11)])

    assert not (tmp_path / "new.parquet").exists()
