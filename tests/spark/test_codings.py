"""Spark's own Parquet reader against what the project says that it decodes: codecs, encodings, types."""

from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.storage.parquet.modules import (
    MAGIC,
    TAIL_BYTES,
    ModuleKind,
    ThriftField,
    footer_length,
    read_struct,
    write_struct,
)
from airflow_provider_ducklake.lake.storage.parquet.readable import undecodable

COUNT = 200
DELTAS = ("DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
ENCODINGS = ("PLAIN", "BYTE_STREAM_SPLIT", *DELTAS, "RLE", "dictionary")
SPLIT = {"is encoded as BYTE_STREAM_SPLIT"}
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
COLUMNS = {
    "boolean": pa.array([n % 3 == 0 for n in range(COUNT)]),
    "int8": pa.array([n % 100 for n in range(COUNT)], pa.int8()),
    "int32": pa.array(range(COUNT), pa.int32()),
    "int64": pa.array(range(COUNT), pa.int64()),
    "uint64": pa.array(range(COUNT), pa.uint64()),
    "float": pa.array([n / 7 for n in range(COUNT)], pa.float32()),
    "double": pa.array([n / 7 for n in range(COUNT)], pa.float64()),
    "date": pa.array(range(COUNT), pa.int32()).cast(pa.date32()),
    "timestamp": pa.array(range(COUNT), pa.timestamp("us")),
    "string": pa.array([f"s{n}" for n in range(COUNT)]),
    "binary": pa.array([b"%d" % n for n in range(COUNT)]),
    "fixed": pa.array([b"%016d" % n for n in range(COUNT)], pa.binary(16)),
    "decimal7": pa.array([Decimal(n) / 100 for n in range(COUNT)], pa.decimal128(7, 2)),
    "decimal38": pa.array([Decimal(n) / 100 for n in range(COUNT)], pa.decimal128(38, 2)),
}


class Read(NamedTuple):
    """What Spark read of a file, None where it failed."""

    rows: list | None
    said: str = ""


def read(spark, path, schema=None, column=None):
    reader = spark.read if schema is None else spark.read.schema(schema)
    try:
        rows = reader.parquet(str(path))
        return Read([row[0] for row in (rows if column is None else rows.select(column)).collect()])
    except Exception as error:  # noqa: BLE001 - of any kind
        return Read(None, str(error))


def shaped(values: pa.Array):
    """Return a column as it is, with NULLs, in a struct and in lists, with the path to its leaf."""
    with_nulls = [None if place % 5 == 0 else value for place, value in enumerate(values.to_pylist())]
    return {
        "plain": ("", values),
        "nulls": ("", pa.array(with_nulls, values.type)),
        "struct": (".y", pa.StructArray.from_arrays([values], ["y"])),
        "list": (".list.element", pa.array([[value] for value in values.to_pylist()], pa.list_(values.type))),
    }


def fits(values, encoding, **how):
    """Whether pyarrow writes such values so."""
    given = {"use_dictionary": False, "column_encoding": encoding, **how}
    try:
        pq.write_table(pa.table({"x": values}), pa.BufferOutputStream(), **given)
    except (OSError, pa.ArrowException):
        return False
    return True


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("name", COLUMNS)
def test_spark_decodes_just_the_encodings_that_it_is_said_to(spark, tmp_path, name, page):
    path = tmp_path / "x.parquet"
    how = {"data_page_version": page, "store_decimal_as_integer": page == "2.0"}
    encodings = [one for one in ENCODINGS if one == "dictionary" or fits(COLUMNS[name], one, **how)]
    forms = shaped(COLUMNS[name]).items()
    columns = {f"{form}_{one}": (path, values, one) for form, (path, values) in forms for one in encodings}
    pq.write_table(
        pa.table({column: values for column, (_, values, _) in columns.items()}),
        path,
        use_dictionary=[f"{name}{path}" for name, (path, _, one) in columns.items() if one == "dictionary"],
        column_encoding={
            f"{name}{path}": one for name, (path, _, one) in columns.items() if one != "dictionary"
        },
        **how,
    )

    found = {one.column.split(".")[0]: one.reason for one in undecodable(pq.read_metadata(path))}

    rows = spark.read.parquet(str(path)).select(*(one for one in columns if one not in found)).toArrow()
    for column in rows.column_names:
        assert rows[column].equals(rows[f"{column.split('_')[0]}_PLAIN"]), column
    assert set(found.values()) == (SPLIT if name not in ("boolean", "string", "binary") else set())
    for column in found:
        assert read(spark, path, column=column).rows is None


@pytest.mark.parametrize("codec", CODECS)
def test_spark_decompresses_just_the_codecs_that_it_is_said_to(spark, tmp_path, codec):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": COLUMNS["string"]}), path, compression=codec)

    found = list(undecodable(pq.read_metadata(path)))

    assert (read(spark, path).rows is None) == bool(found)
    assert [str(one) for one in found] == (
        ["column x is compressed with BROTLI"] if codec == "brotli" else []
    )


def test_the_old_lz4_is_not_left_to_spark(spark, tmp_path):
    """In Hadoop's framing, which Spark itself writes, it could be read; in another it may kill the JVM."""
    folder = tmp_path / "lz4"
    spark.range(3).coalesce(1).write.option("compression", "lz4").parquet(str(folder))
    (path,) = folder.glob("*.parquet")

    assert [one.column for one in undecodable(pq.read_metadata(path))] == ["id"]
    assert sorted(pq.ParquetFile(path).read()["id"].to_pylist()) == [0, 1, 2]


def edited(path, edit):
    data = path.read_bytes()
    start = len(data) - TAIL_BYTES - footer_length(data[-TAIL_BYTES:], str(path))
    footer, _ = read_struct(data, start)
    edit(footer)
    made = write_struct(footer)
    path.write_bytes(data[:start] + made + len(made).to_bytes(4, "little") + MAGIC)


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("precision", [4, 18, 30])
def test_decimals_of_bytes_are_not_left_to_spark(spark, tmp_path, precision, dictionary):
    path = tmp_path / "x.parquet"
    stored = pa.array([n.to_bytes(2, "big", signed=True) for n in (1, -200, 1234)])
    pq.write_table(pa.table({"x": stored}), path, use_dictionary=dictionary, store_schema=False)

    def as_decimals(footer):
        element = footer[2].value.values[1]
        element[6], element[7], element[8] = (ThriftField(ModuleKind.I32, one) for one in (5, 2, precision))
        element.pop(10, None)

    edited(path, as_decimals)
    table = pq.ParquetFile(path).read()

    assert table["x"].type == pa.decimal128(precision, 2)
    assert table["x"].to_pylist() == [Decimal("0.01"), Decimal("-2.00"), Decimal("12.34")]
    assert [one.reason for one in undecodable(pq.read_metadata(path))] == ["holds decimals as BYTE_ARRAY"]
    if precision <= 18:
        assert read(spark, path).rows is None


def test_a_logical_type_of_later_versions_is_not_left_to_spark(spark, tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [b"a"], "y": [1]}), path, store_schema=False)

    def of_no_version(footer):
        footer[2].value.values[1][10] = ThriftField(
            ModuleKind.STRUCT, {555: ThriftField(ModuleKind.STRUCT, {})}
        )

    edited(path, of_no_version)
    metadata = pq.read_metadata(path)

    assert [one.column for one in undecodable(metadata)] == ["x"]
    assert [one.column for one in undecodable(metadata, [1])] == ["x"]
    assert read(spark, path, t.StructType([t.StructField("y", t.LongType())])).rows is None


def test_halves_are_not_left_to_spark(spark, tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": pa.array([1.5], pa.float64()).cast(pa.float16())}), path)

    assert [str(one) for one in undecodable(pq.read_metadata(path))] == ["column x is FLOAT16"]
    assert read(spark, path, t.StructType([t.StructField("x", t.FloatType())])).rows is None


def test_a_column_that_does_not_say_its_encodings_is_not_left_to_spark(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1]}), path, use_dictionary=False)

    def silent(footer):
        chunk = footer[4].value.values[0][1].value.values[0]
        chunk[3].value[2].value.values.clear()

    edited(path, silent)

    assert [one.reason for one in undecodable(pq.read_metadata(path))] == ["does not say how it is encoded"]


def as_impala_s(path, writer="impala version 1.2-INTERNAL"):
    """Write texts in a dictionary as Impala does: the last eight indexes of a page are fewer."""
    rows = pa.table({"x": [f"text {n}" for n in range(25)]})
    pq.write_table(rows, path, compression="none")
    data, start = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0).data_page_offset
    header, end = read_struct(data, start)
    size = header[3].value
    header[2] = header[3] = ThriftField(
        ModuleKind.I32, size - 4
    )  # of 32 indexes, each of five bits, 25 are needed
    page = write_struct(header) + data[end : end + size - 4]
    path.write_bytes(data[:start] + page + data[end + size :])

    def of_impala(footer):
        footer[6] = ThriftField(ModuleKind.BINARY, writer.encode())
        chunk = footer[4].value.values[0][1].value.values[0][3].value
        for place in (6, 7):
            chunk[place] = ThriftField(ModuleKind.I64, chunk[place].value - (end + size - start - len(page)))

    edited(path, of_impala)
    return rows


def with_a_key_without_value(path):
    rows = pa.table({"x": ["a"]})
    pq.write_table(rows.replace_schema_metadata({"key": "value"}), path)

    def without_value(footer):
        for entry in footer[5].value.values:
            if entry[1].value == b"key":
                del entry[2]

    edited(path, without_value)
    return rows


UNREAD = {
    "Impala": (
        as_impala_s,
        "column x has a dictionary of Impala's, whose last indexes are fewer than Spark wants",
    ),
    "a key": (with_a_key_without_value, "a key of its footer has no value"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_spark_cannot_open_is_not_left_to_it(spark, tmp_path, name):
    write, words = UNREAD[name]
    path = tmp_path / "x.parquet"
    rows = write(path)

    assert pq.read_table(path).replace_schema_metadata() == rows
    assert read(spark, path).rows is None
    assert [str(one) for one in undecodable(pq.read_metadata(path))] == [words]


def test_keys_without_value_of_spark_s_own_are_no_hint(spark, tmp_path):
    path = tmp_path / "x.parquet"
    rows = pa.table({"x": ["a"]}).replace_schema_metadata({"org.apache.spark.legacyINT96": ""})
    pq.write_table(rows, path)

    assert read(spark, path).rows == ["a"]
    assert not any(undecodable(pq.read_metadata(path)))
