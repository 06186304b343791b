"""Parquet files as six writers make them: a column of each shape, with a null where it can have one."""

import json
import uuid
import warnings
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

Shapes = Mapping[str, Any]
_MOMENT = datetime(2024, 2, 29, 23, 59, 58, 123456)  # noqa: DTZ001 - a shape without a zone
_OLD = datetime(1969, 12, 31, 23, 59, 59, 999000)  # noqa: DTZ001
_FIRST = datetime(1, 1, 1)  # noqa: DTZ001
_LAST = datetime(9999, 12, 31)  # noqa: DTZ001
_SECOND = _MOMENT.replace(microsecond=0)
_UUIDS = [uuid.UUID(int=1), None, uuid.UUID("ffffffff-0000-4000-8000-00000000000a")]
_DECIMALS = {9: "1234567.89", 18: "123456789012.345678", 38: "12345678901234567890123456789.123456789"}
_TEXTS = ["a", None, "b"]
_UNICODE = ["ü€𝄞 \u202e", None, "日本\n\t\"'"]
_LARGE = ["x" * 100_000, None, "y"]
_STRUCTS = [{"a": 1, "b": "x"}, None, {"a": None, "b": None}]
_LISTS = [[1, 2, None], None, []]
_NESTED_NULLS = [[{"a": None, "b": [None, "x"]}, None], None, []]
_SIGNED = {f"int{bits}": [-(2 ** (bits - 1)), None, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)}
_UNSIGNED = {f"uint{bits}": [0, None, 2**bits - 1] for bits in (8, 16, 32, 64)}


def _decimals(digits: int) -> list[Decimal | None]:
    return [Decimal(_DECIMALS[digits]), None, -Decimal(_DECIMALS[digits])]


_NANOSECONDS = [1_709_251_198_123_456_789, None, -1]
_ARROW: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    **{name: pa.array(values, getattr(pa, name)()) for name, values in (_SIGNED | _UNSIGNED).items()},
    "half": pa.array(np.array([0.5, -1.25, 65504], np.float16)),
    "float": pa.array([1.5, None, float("nan")], pa.float32()),
    "double": pa.array([0.1, None, float("-inf")], pa.float64()),
    **{f"decimal_{n}": pa.array(_decimals(n), pa.decimal128(n, {9: 2, 18: 6, 38: 9}[n])) for n in _DECIMALS},
    "decimal_as_int32": pa.array(_decimals(9), pa.decimal128(9, 2)),
    "decimal_as_int64": pa.array(_decimals(18), pa.decimal128(18, 6)),
    "date": pa.array([date(2024, 2, 29), None, date(1, 1, 1)]),
    "date64": pa.array([date(2024, 2, 29), None, date(1969, 12, 31)], pa.date64()),
    "time_ms": pa.array([time(23, 59, 58, 123000), None, time(0)], pa.time32("ms")),
    "time_us": pa.array([time(23, 59, 58, 123456), None, time(0)], pa.time64("us")),
    "time_ns": pa.array([86_399_123_456_789, None, 0], pa.time64("ns")),
    "timestamp_s": pa.array([_SECOND, None, _FIRST], pa.timestamp("s")),
    "timestamp_ms": pa.array([_SECOND, None, _OLD], pa.timestamp("ms")),
    "timestamp_us": pa.array([_MOMENT, None, _LAST], pa.timestamp("us")),
    "timestamp_ns": pa.array(_NANOSECONDS, pa.timestamp("ns")),
    "timestamptz_ms": pa.array([_SECOND, None, _OLD], pa.timestamp("ms", "UTC")),
    "timestamptz_us": pa.array([_MOMENT, None, _OLD], pa.timestamp("us", "Europe/Berlin")),
    "timestamptz_ns": pa.array(_NANOSECONDS, pa.timestamp("ns", "UTC")),
    "int96": pa.array([_MOMENT, None, _OLD], pa.timestamp("us")),
    "duration": pa.array([1, None, -1], pa.duration("us")),
    "uuid": pa.array([one and one.bytes for one in _UUIDS], pa.uuid()),
    "json": pa.array(['{"a": [1, null]}', None, "1"], pa.json_()),
    "binary": pa.array([b"\x00\xff", None, b""]),
    "fixed_binary": pa.array([b"\x00\xff\x01", None, b"abc"], pa.binary(3)),
    "dictionary": pa.array(_TEXTS).dictionary_encode(),
    "dictionary_of_int": pa.array([1, None, 2]).dictionary_encode(),
    "list": pa.array(_LISTS, pa.list_(pa.int32())),
    "large_list": pa.array(_LISTS, pa.large_list(pa.int32())),
    "fixed_list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)),
    "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array(_STRUCTS, pa.struct({"a": pa.int64(), "b": pa.string()})),
    "list_of_structs": pa.array([_STRUCTS, None, []]),
    "nested_nulls": pa.array(_NESTED_NULLS),
    "nulls_only": pa.nulls(3),
    "empty_text": pa.array(["", None, " "]),
    "unicode": pa.array(_UNICODE),
    "large_text": pa.array(_LARGE, pa.large_string()),
    "text_view": pa.array(["a longer text than twelve", None, "b"], pa.string_view()),
}
_ARROW_OPTIONS = {
    "decimal_as_int32": {"store_decimal_as_integer": True},
    "decimal_as_int64": {"store_decimal_as_integer": True},
    "int96": {"use_deprecated_int96_timestamps": True},
}


def _by_pyarrow(path: Path, columns: Shapes) -> None:
    (options,) = {json.dumps(_ARROW_OPTIONS.get(name, {})) for name in columns}
    pq.write_table(pa.table(dict(columns)), path, **json.loads(options))


_PANDAS: dict[str, pd.Series] = {
    "bool": pd.Series([True, False, True]),
    "boolean": pd.Series([True, None, False], dtype="boolean"),
    **{
        name: pd.Series([values[0], values[2], 0], dtype=name)
        for name, values in (_SIGNED | _UNSIGNED).items()
    },
    "nullable_int64": pd.Series([1, None, 2], dtype="Int64"),
    "int_with_nan": pd.Series([1, None, 2]),
    "half": pd.Series(np.array([0.5, -1.25, 65504], np.float16)),
    "float": pd.Series([1.5, None, -2.5], dtype="float32"),
    "double": pd.Series([0.1, None, float("-inf")]),
    "decimal": pd.Series(_decimals(9)),
    "date": pd.Series([date(2024, 2, 29), None, date(1970, 1, 1)]),
    "time": pd.Series([time(23, 59, 58, 123456), None, time(0)]),
    **{
        f"datetime_{unit}": pd.Series([_SECOND, None, _OLD]).astype(f"datetime64[{unit}]")
        for unit in ("s", "ms", "us", "ns")
    },
    "datetime_ns_fine": pd.Series(pd.to_datetime([_NANOSECONDS[0], None, -1], unit="ns")),
    **{
        f"datetimetz_{unit}": pd.Series([_SECOND, None, _OLD])
        .astype(f"datetime64[{unit}]")
        .dt.tz_localize("Europe/Berlin")
        for unit in ("s", "ms", "us", "ns")
    },
    "timedelta": pd.Series([timedelta(seconds=1), None, timedelta(-1)]),
    "bytes": pd.Series([b"\x00\xff", None, b""]),
    "categorical": pd.Series(_TEXTS, dtype="category"),
    "categorical_of_int": pd.Series([1, 2, 1], dtype="category"),
    "string": pd.Series(_TEXTS, dtype="string"),
    "text": pd.Series(_TEXTS, dtype=object),
    "empty_text": pd.Series(["", None, " "]),
    "unicode": pd.Series(_UNICODE),
    "large_text": pd.Series(_LARGE),
    "list": pd.Series(_LISTS),
    "struct": pd.Series(_STRUCTS),
    "list_of_structs": pd.Series([_STRUCTS, None, []]),
    "nested_nulls": pd.Series(_NESTED_NULLS),
    "nulls_only": pd.Series([None, None, None], dtype=object),
}


def _by_pandas(path: Path, columns: Shapes) -> None:
    pd.DataFrame(dict(columns)).to_parquet(path, engine="pyarrow")


_POLARS: dict[str, pl.Series] = {
    "bool": pl.Series([True, None, False]),
    **{
        name: pl.Series(values, dtype=getattr(pl, name.replace("uint", "UInt").replace("int", "Int")))
        for name, values in (_SIGNED | _UNSIGNED).items()
    },
    "float": pl.Series([1.5, None, float("nan")], dtype=pl.Float32),
    "double": pl.Series([0.1, None, float("-inf")], dtype=pl.Float64),
    "decimal_9": pl.Series(_decimals(9), dtype=pl.Decimal(9, 2)),
    "decimal_18": pl.Series(_decimals(18), dtype=pl.Decimal(18, 6)),
    "decimal_38": pl.Series(_decimals(38), dtype=pl.Decimal(38, 9)),
    "date": pl.Series([date(2024, 2, 29), None, date(1, 1, 1)]),
    "time_ns": pl.Series([time(23, 59, 58, 123456), None, time(0)]),
    **{
        f"datetime_{unit}": pl.Series([_SECOND, None, _OLD], dtype=pl.Datetime(unit))
        for unit in ("ms", "us", "ns")
    },
    "datetime_ns_fine": pl.Series(_NANOSECONDS, dtype=pl.Int64).cast(pl.Datetime("ns")),
    **{
        f"datetimetz_{unit}": pl.Series([_SECOND, None, _OLD], dtype=pl.Datetime(unit)).dt.replace_time_zone(
            "UTC"
        )
        for unit in ("ms", "us", "ns")
    },
    "duration": pl.Series([timedelta(seconds=1), None, timedelta(-1)]),
    "binary": pl.Series([b"\x00\xff", None, b""]),
    "categorical": pl.Series(_TEXTS, dtype=pl.Categorical),
    "enum": pl.Series(_TEXTS, dtype=pl.Enum(["a", "b"])),
    "list": pl.Series(_LISTS, dtype=pl.List(pl.Int32)),
    "fixed_list": pl.Series([[1, 2], None, [3, None]], dtype=pl.Array(pl.Int32, 2)),
    "struct": pl.Series(_STRUCTS),
    "list_of_structs": pl.Series([_STRUCTS, None, []]),
    "nested_nulls": pl.Series(_NESTED_NULLS),
    "nulls_only": pl.Series([None, None, None], dtype=pl.Null),
    "empty_text": pl.Series(["", None, " "]),
    "unicode": pl.Series(_UNICODE),
    "large_text": pl.Series(_LARGE),
}


def _by_polars(path: Path, columns: Shapes) -> None:
    pl.DataFrame(dict(columns)).write_parquet(path)


_DUCKDB = {
    "bool": "BOOLEAN: true, NULL, false",
    **{
        name: f"{'U' * name.startswith('u')}{kind}: {values[0]}, NULL, {values[2]}"
        for (name, values), kind in zip(
            (_SIGNED | _UNSIGNED).items(), ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") * 2, strict=True
        )
    },
    "hugeint": "HUGEINT: 1, NULL, -5",
    "float": "FLOAT: 1.5, NULL, 'nan'",
    "double": "DOUBLE: 0.1, NULL, '-inf'",
    **{
        f"decimal_{n}": f"DECIMAL({n}, {s}): {_DECIMALS[n]}, NULL, -{_DECIMALS[n]}"
        for n, s in ((9, 2), (18, 6), (38, 9))
    },
    "decimal_4": "DECIMAL(4, 1): 123.4, NULL, -0.1",
    "date": "DATE: '2024-02-29', NULL, '0001-01-01'",
    "date_infinite": "DATE: '2024-02-29', NULL, 'infinity'",
    "time": "TIME: '23:59:58.123456', NULL, '00:00:00'",
    "timetz": "TIMETZ: '23:59:58.123456+00', NULL, '00:00:00+00'",
    "time_ns": "TIME_NS: '23:59:58.123456789', NULL, '00:00:00'",
    "timestamp_s": "TIMESTAMP_S: '2024-02-29 23:59:58', NULL, '0001-01-01'",
    "timestamp_ms": "TIMESTAMP_MS: '2024-02-29 23:59:58.123', NULL, '0001-01-01'",
    "timestamp_us": "TIMESTAMP: '2024-02-29 23:59:58.123456', NULL, '9999-12-31'",
    "timestamp_ns": "TIMESTAMP_NS: '2024-02-29 23:59:58.123456789', NULL, '1969-12-31'",
    "timestamptz": "TIMESTAMPTZ: '2024-02-29 23:59:58.123456+00', NULL, '1969-12-31 23:59:59+00'",
    "interval": "INTERVAL: '1 month 2 days 3 seconds', NULL, '0 seconds'",
    "uuid": f"UUID: '{_UUIDS[0]}', NULL, '{_UUIDS[2]}'",
    "json": "JSON: '{\"a\": [1, null]}', NULL, '1'",
    "blob": "BLOB: '\\x00\\xff', NULL, ''",
    "enum": "ENUM('a', 'b'): 'a', NULL, 'b'",
    "list": "INTEGER[]: [1, 2, NULL], NULL, []",
    "array": "INTEGER[2]: [1, 2], [NULL, 5], [3, NULL]",
    "array_with_null": "INTEGER[2]: [1, 2], NULL, [3, 4]",
    "map": "MAP(VARCHAR, BIGINT): MAP {'k': 1, 'l': NULL}, NULL, MAP {}",
    "struct": "STRUCT(a BIGINT, b VARCHAR): {'a': 1, 'b': 'x'}, NULL, {'a': NULL, 'b': NULL}",
    "list_of_structs": "STRUCT(a BIGINT, b VARCHAR)[]: [{'a': 1, 'b': 'x'}, NULL], NULL, []",
    "nested_nulls": "STRUCT(a INTEGER, b VARCHAR[])[]: [{'a': NULL, 'b': [NULL, 'x']}, NULL], NULL, []",
    "nulls_only": "INTEGER: NULL, NULL, NULL",
    "empty_text": "VARCHAR: '', NULL, ' '",
    "unicode": "VARCHAR: 'ü€𝄞', NULL, '日本'",
    "large_text": "VARCHAR: repeat('x', 100000), NULL, 'y'",
    "geometry": "GEOMETRY: 'POINT (1 2)', NULL, 'POINT (3 4)'",
    "variant": "VARIANT: 1, NULL, 2",
}
_OF_VERSION_2 = {
    "double": "float_v2",
    "int64": "int_v2",
    "unicode": "text_v2",
}  # pages as `PARQUET_VERSION V2` has them


def _by_duckdb(path: Path, columns: Shapes) -> None:
    parts = {name: text.partition(": ") for name, text in columns.items()}
    rows = (
        ", ".join(
            f"CAST({_values(values)[place]} AS {type_}) AS {name}"
            for name, (type_, _, values) in parts.items()
        )
        for place in range(3)
    )
    version = "V2" if all(name.endswith("_v2") for name in columns) else "V1"
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        query = " UNION ALL ".join(f"SELECT {row}" for row in rows)
        duck.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, PARQUET_VERSION {version})")


def _values(text: str) -> list[str]:
    """Split three values, at the commas outside of brackets."""
    found, depth = [""], 0
    for place, sign in enumerate(text):
        depth += (sign in "[{(") - (sign in "]})")
        if depth == 0 and text[place : place + 2] == ", ":
            found.append("")
        else:
            found[-1] += sign
    return found


_DUCKDB |= {v2: _DUCKDB[name] for name, v2 in _OF_VERSION_2.items()}

_SPARK = {
    "bool": "BOOLEAN: true",
    "int8": "TINYINT: -128",
    "int16": "SMALLINT: -32768",
    "int32": "INT: -2147483648",
    "int64": "BIGINT: 9223372036854775807",
    "float": "FLOAT: 1.5",
    "double": "DOUBLE: 'NaN'",
    "decimal_4": "DECIMAL(4, 1): 123.4",
    "decimal_9": f"DECIMAL(9, 2): {_DECIMALS[9]}",
    "decimal_18": f"DECIMAL(18, 6): {_DECIMALS[18]}",
    "decimal_38": f"DECIMAL(38, 9): '{_DECIMALS[38]}'",
    "date": "DATE: '2024-02-29'",
    "date_old": "DATE: '1500-03-01'",
    "timestamp": "TIMESTAMP: '2024-02-29 23:59:58.123456+00'",
    "timestamp_old": "TIMESTAMP: '1500-03-01 01:02:03+00'",
    "timestamp_far": "TIMESTAMP: '9999-12-31 01:02:03+00'",
    "timestamp_ntz": "TIMESTAMP_NTZ: '2024-02-29 23:59:58.123456'",
    "binary": "BINARY: 'abc'",
    "list": "ARRAY<INT>: array(1, 2, NULL)",
    "list_without_nulls": "ARRAY<INT>: sequence(1, 2)",
    "map": "MAP<STRING, BIGINT>: map('k', 1L, 'l', NULL)",
    "map_of_structs": "MAP<STRING, STRUCT<a:INT>>: map('k', named_struct('a', 1))",
    "struct": "STRUCT<a:BIGINT, b:STRING>: named_struct('a', 1L, 'b', NULL)",
    "list_of_structs": "ARRAY<STRUCT<a:INT, b:STRING>>: array(named_struct('a', 1, 'b', 'x'), NULL)",
    "list_of_lists": "ARRAY<ARRAY<INT>>: array(array(1, NULL), array())",
    "nested_nulls": "ARRAY<STRUCT<a:INT, b:ARRAY<STRING>>>: "
    "array(named_struct('a', NULL, 'b', array(NULL, 'x')), NULL)",
    "nulls_only": "INT: NULL",
    "empty_text": "STRING: ''",
    "unicode": "STRING: 'ü€𝄞'",
    "large_text": "STRING: repeat('x', 100000)",
    "interval_year": "INTERVAL YEAR TO MONTH: INTERVAL '1-2' YEAR TO MONTH",
    "interval_day": "INTERVAL DAY TO SECOND: INTERVAL '1 02:03:04.5' DAY TO SECOND",
}
_AS_SPARK_3 = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.session.timeZone": "UTC",
}


def by_spark(session: SparkSession, path: Path, columns: Shapes) -> None:
    """Write one file, as the settings of Spark 3 and older ones make it."""
    for key, value in _AS_SPARK_3.items():
        session.conf.set(key, value)
    parts = {name: text.rsplit(": ", 1) for name, text in columns.items()}
    rows = (
        ", ".join(
            f"CAST({value if has_value else 'NULL'} AS {type_}) AS {name}"
            for name, (type_, value) in parts.items()
        )
        for has_value in (True, False)
    )
    folder = path.with_suffix(".folder")
    session.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows)).coalesce(1).write.parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    file.rename(path)


_FASTPARQUET: dict[str, pd.Series] = {
    name: _PANDAS[name]
    for name in (
        *_SIGNED, *_UNSIGNED, "bool", "boolean", "nullable_int64", "float", "double", "datetime_ns",
        "datetimetz_ns", "datetime_us", "datetime_ms", "categorical", "categorical_of_int", "nulls_only",
    )
}  # fmt: skip
_FASTPARQUET |= {
    "half": _PANDAS["half"],
    "timedelta": pd.Series([timedelta(seconds=1), None, timedelta(hours=23)]),
    "text": pd.Series(_TEXTS, dtype=object),
    "bytes": pd.Series([b"\x00\xff", b"a", b""]),
    "json": pd.Series([{"a": 1}, None, {"a": [1]}]),
    "decimal": pd.Series(_decimals(9)),
    "empty_text": pd.Series(["", None, " "], dtype=object),
    "unicode": pd.Series(_UNICODE, dtype=object),
    "large_text": pd.Series(_LARGE, dtype=object),
    "int96": pd.Series([_SECOND, _MOMENT, _OLD]).astype("datetime64[ns]"),
}
_ENCODINGS = {
    "text": "utf8",
    "bytes": "bytes",
    "json": "json",
    "decimal": "decimal",
    "empty_text": "utf8",
    "unicode": "utf8",
    "large_text": "utf8",
    "nulls_only": "utf8",
}


def _by_fastparquet(path: Path, columns: Shapes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls what the installed pandas deprecates
        fastparquet.write(
            str(path),
            pd.DataFrame(dict(columns)),
            times="int96" if set(columns) == {"int96"} else "int64",
            object_encoding={name: _ENCODINGS.get(name, "infer") for name in columns},
            write_index=False,
        )


WRITERS: dict[str, tuple[Shapes, Callable[[Path, Shapes], None] | None]] = {
    "pyarrow": (_ARROW, _by_pyarrow),
    "pandas": (_PANDAS, _by_pandas),
    "polars": (_POLARS, _by_polars),
    "duckdb": (_DUCKDB, _by_duckdb),
    "fastparquet": (_FASTPARQUET, _by_fastparquet),
    "spark": (_SPARK, None),
}

# Shapes whose options are those of a whole file, and one that takes seconds.
ALONE = {*_ARROW_OPTIONS, "int96", *_OF_VERSION_2.values(), "variant"}
