"""What the catalog keeps for a default: `default_of` against the rows that the reference writes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from airflow_provider_ducklake.lake.format.defaults import SqlExpression, default_of
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
# DuckLake type, default in SQL, the same default in Python
LITERALS = [
    ("boolean", "'true'", True),
    ("boolean", "'false'", False),
    ("boolean", "1", 1),
    ("boolean", "'t'", "t"),
    ("int8", "-128", -128),
    ("int16", "7", 7),
    ("int32", "-1", -1),
    ("int32", "'7'", "7"),
    ("int32", "1.0", Decimal("1.0")),
    ("int32", "1e3", 1e3),
    ("int64", "9223372036854775807", 2**63 - 1),
    ("int64", "-9223372036854775808", -(2**63)),
    ("uint8", "255", 255),
    ("uint16", "65535", 65535),
    ("uint32", "4294967295", 2**32 - 1),
    ("uint64", "18446744073709551615", 2**64 - 1),
    ("float32", "1.5", Decimal("1.5")),
    ("float32", "7", 7),
    ("float32", "16777217", 16777217),
    ("float32", "0.1", Decimal("0.1")),
    ("float32", "1e10", 1e10),
    ("float32", "'inf'", float("inf")),
    ("float64", "0.1", Decimal("0.1")),
    ("float64", "1e300", 1e300),
    ("float64", "1e16", 1e16),
    ("float64", "1e-7", 1e-7),
    ("float64", "-0.0", Decimal("-0.0")),
    ("float64", "123456789012345678901234567890", 123456789012345678901234567890),
    ("float64", "'nan'", float("nan")),
    ("float64", "'-inf'", "-inf"),
    ("float64", "'1e5'", "1e5"),
    ("decimal(18,3)", "1.5", Decimal("1.5")),
    ("decimal(18,3)", "1.500", Decimal("1.500")),
    ("decimal(18,3)", "'1.5'", "1.5"),
    ("decimal(18,3)", "7", 7),
    ("decimal(18,3)", "-1", -1),
    ("decimal(18,3)", "1e2", 1e2),
    ("decimal(3,3)", "0.5", Decimal("0.5")),
    ("decimal(38,0)", "9" * 38, 10**38 - 1),
    ("varchar", "'x''y'", "x'y"),
    ("varchar", "''", ""),
    ("varchar", "'null'", "null"),
    ("varchar", "'üñ\n\\'", "üñ\n\\"),
    ("varchar", "7", 7),
    ("varchar", "1.50", Decimal("1.50")),
    ("json", "'{\"a\": [1, null]}'", '{"a": [1, null]}'),
    ("blob", "'ab'", b"ab"),
    ("blob", r"'\x00\xFF'", b"\x00\xff"),
    ("blob", r"'a''\x5c'", r"a'\x5c"),
    ("uuid", f"'{_UUID}'", UUID(_UUID)),
    ("uuid", f"'{_UUID.upper()}'", _UUID.upper()),
    ("date", "'2024-01-01'", date(2024, 1, 1)),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'infinity'", "infinity"),
    ("date", "'0044-03-15 (BC)'", "0044-03-15 (BC)"),
    ("time", "'10:00:00'", time(10)),
    ("time", "'10:00:00.5'", "10:00:00.5"),
    ("timestamp", "'2024-01-01 10:00:00.123456'", datetime.fromisoformat("2024-01-01T10:00:00.123456")),
    ("timestamp", "'2024-01-01'", "2024-01-01"),
    ("timestamp", "'2024-01-01T10:00:00'", "2024-01-01T10:00:00"),
    ("timestamp", "'infinity'", "infinity"),
    ("timestamp_s", "'2024-01-01 10:00:00'", datetime.fromisoformat("2024-01-01T10:00:00")),
    ("timestamp_ms", "'2024-01-01 10:00:00.123'", "2024-01-01 10:00:00.123"),
    ("timestamp_ns", "'2024-01-01 10:00:00.123456789'", "2024-01-01 10:00:00.123456789"),
    ("timestamptz", "'2024-01-01 10:00:00+00'", datetime(2024, 1, 1, 10, tzinfo=UTC)),
    (
        "timestamptz",
        "'2024-01-01 08:00:00+00'",
        datetime(2024, 1, 1, 10, tzinfo=timezone(timedelta(hours=2))),
    ),
    ("timestamptz", "'2024-01-01 10:00:00+02'", "2024-01-01 10:00:00+02"),
    ("timestamptz", "'2024-01-01 10:00:00.25-0330'", "2024-01-01 10:00:00.25-0330"),
    ("int32", "NULL", None),
    ("varchar", "NULL", None),
]
EXPRESSIONS = [
    ("timestamptz", "now()"),
    ("date", "current_date"),
    ("uuid", "uuid()"),
    ("varchar", "upper('x')"),
]
REFUSED_TOO = [
    ("int8", "200", 200),
    ("uint8", "-1", -1),
    ("int32", "2147483648", 2**31),
    ("int64", "9223372036854775808", 2**63),
    ("int32", "'x'", "x"),
    ("float32", "1e300", 1e300),
    ("decimal(18,3)", "9999999999999999.0", Decimal("9999999999999999.0")),
    ("date", "'2024-13-01'", "2024-13-01"),
    ("date", "'2023-02-29'", "2023-02-29"),
    ("time", "'25:00:00'", "25:00:00"),
    ("timestamp", "'2024-01-01 10:60:00'", "2024-01-01 10:60:00"),
    ("uuid", "'x'", "x"),
    ("blob", "'ü'", "ü"),
    ("int32[]", "'[1]'", "[1]"),
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> CatalogDatabase:
    return file_catalog("sqlite", tmp_path_factory.mktemp("defaults") / "lake")


@pytest.fixture(scope="module")
def lake(catalog: CatalogDatabase) -> Iterator[DuckLakeConnection]:
    with open_lake(catalog) as connection:
        yield connection


def _sql_type(type_text: str) -> str:
    """DuckDB reads int8 as eight bytes."""
    names = {"int8": "tinyint", "uint8": "utinyint", "float32": "float", "float64": "double"}
    return names.get(type_text, type_text)


def _stored(catalog: CatalogDatabase) -> tuple[str, str, str, str | None]:
    """Return what the catalog keeps for column `c` of the newest table."""
    with closing(sqlite3.connect(catalog.location)) as database:
        return database.execute(
            "SELECT default_value, default_value_type, default_value_dialect, initial_default"
            " FROM ducklake_column WHERE column_name = 'c' AND end_snapshot IS NULL"
            " ORDER BY table_id DESC LIMIT 1"
        ).fetchone()


def _ours(value, type_text: str) -> tuple[str | None, str | None, str | None, str | None]:
    default, initial = default_of(value, parse_type(type_text))
    return default.value, default.kind, default.dialect, initial


@pytest.mark.parametrize(("type_text", "sql", "value"), LITERALS)
def test_a_literal_is_kept_as_the_reference_keeps_it(lake, catalog, type_text, sql, value):
    expected = _ours(value, type_text)

    lake.sql(f"CREATE OR REPLACE TABLE t (c {_sql_type(type_text)} DEFAULT {sql})")
    assert _stored(catalog) == expected
    lake.sql("CREATE OR REPLACE TABLE t (a int)")
    lake.sql(f"ALTER TABLE t ADD COLUMN c {_sql_type(type_text)} DEFAULT {sql}")
    assert _stored(catalog) == expected
    lake.sql(f"CREATE OR REPLACE TABLE t (c {_sql_type(type_text)})")
    lake.sql(f"ALTER TABLE t ALTER COLUMN c SET DEFAULT {sql}")
    assert _stored(catalog) == (*expected[:3], None)


@pytest.mark.parametrize(("type_text", "sql"), EXPRESSIONS)
def test_an_expression_is_kept_as_the_reference_keeps_it(lake, catalog, type_text, sql):
    lake.sql(f"CREATE OR REPLACE TABLE t (c {type_text} DEFAULT {sql})")

    assert _stored(catalog) == _ours(SqlExpression(sql), type_text)


@pytest.mark.parametrize(("type_text", "sql", "value"), REFUSED_TOO)
def test_what_the_reference_refuses_is_refused(lake, type_text, sql, value):
    with pytest.raises(ValueError, match="default"):
        _ours(value, type_text)
    with pytest.raises(Exception, match=r"(?i)cast|convert|conversion|invalid|not supported|out of range"):
        lake.sql(f"CREATE OR REPLACE TABLE t (c {_sql_type(type_text)} DEFAULT {sql})")


@pytest.mark.parametrize(("type_text", "sql", "value"), LITERALS)
def test_a_literal_of_sql_is_read_as_the_same_value(type_text, sql, value):
    (parsed,) = parse_ddl(f"CREATE TABLE t (c {_sql_type(type_text)} DEFAULT {sql})")

    (made,) = parsed.calls
    assert str(made.arguments[1]["c"]) == type_text
    assert _ours(made.flags.get("defaults", {}).get("c"), type_text) == _ours(value, type_text)
