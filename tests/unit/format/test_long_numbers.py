"""Numbers of a catalog that are too long are refused at once, by a typed error; caches stay small."""

import gc
import time
import tracemalloc
from decimal import Decimal

import pytest

from airflow_provider_ducklake.lake.errors import CatalogError, DuckLakeError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.defaults import literal_physical
from airflow_provider_ducklake.lake.format.limits import cached
from airflow_provider_ducklake.lake.format.options import parse_bytes
from airflow_provider_ducklake.lake.format.partitioning import Transform
from airflow_provider_ducklake.lake.format.sql.parse import parse_expression
from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    SCALARS,
    DecimalType,
    ScalarType,
    parse_type,
)
from airflow_provider_ducklake.lake.format.types.texts import parse_age
from airflow_provider_ducklake.lake.format.types.values import order_key, parse_physical
from airflow_provider_ducklake.lake.format.types.variant_bytes import ids_of_names, read_names, write_names
from airflow_provider_ducklake.lake.format.versions import WRITABLE, SpecVersion, is_locked_out, refused
from airflow_provider_ducklake.lake.planning.upkeep.migration import stamped_max
from airflow_provider_ducklake.lake.transaction.changes_made import parse_changes

DIGITS = "9" * 30_000
LONG = (
    "1e700000",
    "-1e-700000",
    "1e999999999999999999",
    DIGITS,
    f"0.{DIGITS}",
    f"{DIGITS}-01-01",
    f"{DIGITS} days",
)
TYPES = [*(ScalarType(name) for name in SCALARS), DecimalType(18, 3), DecimalType(38, 0)]
PARSERS = {
    "options": parse_bytes,
    "transforms": lambda text: Transform.parse(f"bucket({text})"),
    "types": lambda text: parse_type(f"decimal({text},0)"),
    "ages": parse_age,
    "versions": lambda text: refused(f"1.{text}", WRITABLE),
    "clients": lambda text: is_locked_out(f"DuckDB v{text}.{text}.0", SpecVersion.V1_1),
    "changes": lambda text: parse_changes(f"inserted_into_table:{text}"),
    "merged files": lambda text: stamped_max(f"partial_max:{text}"),
    "expressions": lambda text: parse_expression(f"CAST(a AS DECIMAL({text}))"),
}


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("parse", [parse_physical, order_key, literal_physical])
def test_a_value_is_parsed_or_refused_at_once(type_, parse):
    started = time.process_time()
    for text in LONG:
        try:
            parse(type_, text)
        except (ValueError, ArithmeticError, DuckLakeError):
            continue

    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["1e330808", "1e700000", "-1e700000", "1e-700000", "1e401", DIGITS])
def test_a_decimal_of_more_digits_than_any_type_has_is_none(text):
    with pytest.raises(ValueError, match="not a number that a column has"):
        parse_physical(DecimalType(18, 3), text)


def test_decimals_of_a_catalog_are_read():
    assert parse_physical(DecimalType(38, 0), "9" * 38) == int("9" * 38)
    assert parse_physical(DecimalType(18, 3), "1E+2") == 100_000
    assert order_key(DecimalType(18, 3), "0.001") == Decimal("0.001")


@pytest.mark.parametrize("name", PARSERS)
def test_a_text_with_long_numbers_is_parsed_or_refused_by_a_typed_error(name):
    for text in LONG:
        try:
            PARSERS[name](text)
        except (DuckLakeError, OverflowError):
            continue
        except ValueError as error:
            assert "integer string conversion" not in str(error)  # noqa: PT017 - Python's own limit


def test_a_version_of_many_digits_is_misspelled():
    assert "This is not a DuckLake version" in str(refused(f"0.{DIGITS}", WRITABLE))


@pytest.mark.parametrize(
    ("parse", "error"),
    [
        (lambda: parse_changes(f"inserted_into_table:{DIGITS}"), CatalogError),
        (lambda: stamped_max(f"partial_max:{DIGITS}"), CatalogError),
        (lambda: Transform.parse(f"bucket({DIGITS})"), UnsupportedFeatureError),
    ],
)
def test_the_error_is_that_of_an_unreadable_text(parse, error):
    with pytest.raises(error):
        parse()


@pytest.mark.parametrize("count", ["0", "00", "2147483648"])
def test_a_number_of_buckets_that_the_reference_cannot_have_is_refused(count):
    with pytest.raises(UnsupportedFeatureError, match="is not supported"):
        Transform.parse(f"bucket({count})")
    assert Transform.parse("bucket(2147483647)").bucket_count == 2**31 - 1


# --- what is kept of others' bytes is bounded by their size ---


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
