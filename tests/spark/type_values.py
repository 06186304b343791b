"""Values of every type that Spark can bring, and what DuckDB is to read of them."""

import datetime as dt
import uuid
from decimal import Decimal


def moment(*parts: int, zone: dt.tzinfo | None = None) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=zone)


NAN = float("nan")
INF = float("inf")
UTC = dt.UTC

POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")  # 1 2
EMPTY = bytes.fromhex("010300000000000000")  # a polygon
WEEK = "named_struct('months', 0, 'days', 7, 'microseconds', 0L)"
NESTED = """named_struct(
    'u', 255,
    'l', array(named_struct(
        'x', '00000000-0000-0000-0000-000000000007', 't', timestamp_ntz'2024-01-01 00:00:00.5')))"""
# (DuckLake type, Spark SQL of the incoming values, the values as DuckDB reads them); nulls are added
VALUES = [
    ("boolean", ["true", "false"], [True, False]),
    ("int8", ["-128Y", "127Y"], [-128, 127]),
    ("int16", ["-32768S", "32767S"], [-32768, 32767]),
    ("int32", ["int('-2147483648')", "2147483647"], [-(2**31), 2**31 - 1]),
    ("int64", ["bigint('-9223372036854775808')", "9223372036854775807L"], [-(2**63), 2**63 - 1]),
    ("uint8", ["0", "255"], [0, 255]),
    ("uint16", ["0", "65535"], [0, 65535]),
    ("uint32", ["0L", "4294967295L"], [0, 2**32 - 1]),
    ("uint64", ["0BD", "18446744073709551615BD"], [0, 2**64 - 1]),
    ("int128", ["-7BD", "1267650600228229401496703205376BD"], [-7, 2**100]),
    ("uint128", ["0BD", "1267650600228229401496703205376BD"], [0, 2**100]),
    ("float32", ["float('1.1')", "float('-inf')", "float('nan')"], [1.1, -INF, NAN]),
    ("float64", ["1.5D", "-0.0D", "double('nan')", "1e300D"], [1.5, -0.0, NAN, 1e300]),
    ("decimal(9,2)", ["-1.50BD", "1234567.89BD"], [Decimal("-1.50"), Decimal("1234567.89")]),
    (
        "decimal(18,4)",
        ["-12345678901234.5678BD", "0.0001BD"],
        [Decimal("-12345678901234.5678"), Decimal("0.0001")],
    ),
    (
        "decimal(38,10)",
        ["-1234567890123456789012345678.0123456789BD", "1.0000000000BD"],
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal(1)],
    ),
    ("date", ["date'1500-01-01'", "date'9999-12-31'"], [dt.date(1500, 1, 1), dt.date(9999, 12, 31)]),
    (
        "time",
        ["'00:00:00'", "'23:59:59.999999'", "'12:34:56.7'"],
        [dt.time(), dt.time(23, 59, 59, 999999), dt.time(12, 34, 56, 700000)],
    ),
    (
        "timetz",
        ["'00:00:00+00'", "'01:00:00.5+02'", "'20:00:00-05:30'", "'12:00:00.000001Z'", "'24:00:00+00'"],
        [
            dt.time(tzinfo=UTC),
            dt.time(23, 0, 0, 500000, UTC),
            dt.time(1, 30, tzinfo=UTC),
            dt.time(12, 0, 0, 1, UTC),
            dt.time(tzinfo=UTC),
        ],
    ),
    (
        "interval",
        [
            "named_struct('months', 0, 'days', 400, 'microseconds', 3001000L)",
            "named_struct('MONTHS', 0, 'DAYS', 0, 'MICROSECONDS', 4294967295000L)",
            "cast(null as struct<months:int,days:int,microseconds:bigint>)",
        ],
        [dt.timedelta(days=400, seconds=3.001), dt.timedelta(milliseconds=2**32 - 1), None],
    ),
    (
        "timestamp",
        ["timestamp_ntz'1500-01-01 00:00:00.000001'", "timestamp_ntz'2024-03-10 02:30:00'"],
        [moment(1500, 1, 1, 0, 0, 0, 1), moment(2024, 3, 10, 2, 30)],
    ),
    (
        "timestamp_s",
        ["timestamp_ntz'1969-12-31 23:59:59'", "timestamp_ntz'2024-03-10 02:30:00'"],
        [moment(1969, 12, 31, 23, 59, 59), moment(2024, 3, 10, 2, 30)],
    ),
    (
        "timestamp_ms",
        ["timestamp_ntz'1969-12-31 23:59:59.123'", "timestamp_ntz'2024-03-10 02:30:00'"],
        [moment(1969, 12, 31, 23, 59, 59, 123000), moment(2024, 3, 10, 2, 30)],
    ),
    (
        "timestamp_ns",
        ["timestamp_ntz'1677-09-22 00:00:00.000001'", "timestamp_ntz'2262-04-11 00:00:00'"],
        [moment(1677, 9, 22, 0, 0, 0, 1), moment(2262, 4, 11)],
    ),
    (
        "timestamptz",
        ["timestamp'1500-01-01 00:00:00.000001 UTC'", "timestamp'2024-03-10 02:30:00 UTC'"],
        [moment(1500, 1, 1, 0, 0, 0, 1, zone=UTC), moment(2024, 3, 10, 2, 30, zone=UTC)],
    ),
    ("varchar", ["''", "'Ω über'", "repeat('y', 300)"], ["", "Ω über", "y" * 300]),
    ("json", ["""'{"a": 1}'""", "'[]'"], ['{"a": 1}', "[]"]),
    ("blob", ["x'00FF'", "x''"], [b"\x00\xff", b""]),
    (
        "geometry",
        ["x'0101000000000000000000F03F0000000000000040'", "x'010300000000000000'"],
        [POINT, EMPTY],
    ),
    (
        "uuid",
        ["'00000000-0000-0000-0000-000000000001'", "'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'"],
        [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)],
    ),
    (
        "struct(a int32, b varchar)",
        ["named_struct('B', 'x', 'A', 1)", "named_struct('B', cast(null as string), 'A', 2)"],
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
    ),
    ("int32[]", ["array(1, null, 3)", "array()"], [[1, None, 3], []]),
    (
        "map(varchar, int64)",
        ["map('k', 1L, 'l', null)", "cast(map() as map<string, bigint>)"],
        [{"k": 1, "l": None}, {}],
    ),
    (
        "struct(z timetz, l map(varchar, interval)[])",
        [f"named_struct('z', '00:30:00+01', 'l', array(map('k', {WEEK})))"],
        [{"z": dt.time(23, 30, tzinfo=UTC), "l": [{"k": dt.timedelta(7)}]}],
    ),
    (
        "struct(u uint8, l struct(t timestamp_ms, x uuid)[])",
        [NESTED],
        [{"u": 255, "l": [{"t": moment(2024, 1, 1, 0, 0, 0, 500000), "x": uuid.UUID(int=7)}]}],
    ),
]  # fmt: skip
