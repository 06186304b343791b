"""Every storable type in a lake of ours: rows, statistics and filters as in the reference's own lake."""

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.interop.reference_table import schema_of
from tests.interop.type_values import TYPES
from tests.reference.catalog_dump import Dump, dump_catalog
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake
from tests.type_matrix import noted

NAMES = {name: f"t{number}" for number, name in enumerate(TYPES)}

# Arrow has no value for these, so a table handed to us cannot hold them.
NOT_IN_ARROW = {
    "time 24": "Arrow's time of day ends before 24:00:00",
    "date infinite": "the hand-over from DuckDB to Arrow refuses infinite dates",
}


@dataclass(frozen=True)
class Twins:
    ours: DuckLakeConnection
    theirs: DuckLakeConnection
    our_dump: Dump
    their_dump: Dump


@pytest.fixture(scope="module")
def twins(tmp_path_factory) -> Iterator[Twins]:
    """Two lakes with a table for each type: DuckDB wrote one, `append_arrow` the other, the same rows."""
    catalogs = [
        file_catalog("sqlite", tmp_path_factory.mktemp("matrix") / name) for name in ("ours", "theirs")
    ]
    with open_lake(catalogs[1], data_inlining_row_limit=0) as theirs:
        theirs.sql("SET arrow_lossless_conversion = true")  # uuids as such, not as text
        rows = {name: _write_theirs(theirs, name) for name in TYPES}
        with Lake.create(catalogs[0].sqlalchemy_url, catalogs[0].data_path) as lake:
            lake.set_option("data_inlining_row_limit", 0)
            for name, table in rows.items():
                _write_ours(lake, name, table)
        with open_lake(catalogs[0]) as ours:
            yield Twins(ours, theirs, dump_catalog(catalogs[0]), dump_catalog(catalogs[1]))


def _write_theirs(lake: DuckLakeConnection, name: str) -> pa.Table | None:
    type_, values = TYPES[name]
    lake.sql(f"CREATE TABLE {NAMES[name]} (c {type_})")
    lake.sql(f"INSERT INTO {NAMES[name]} VALUES {', '.join(f'({value})' for value in values)}")
    return None if name in NOT_IN_ARROW else lake.arrow(f"FROM {NAMES[name]}")


def _write_ours(lake: Lake, name: str, rows: pa.Table | None) -> None:
    alone(lake).create_table(("main", NAMES[name]), {"c": str(schema_of(c=TYPES[name][0]).columns[0].type)})
    if rows is not None:
        alone(lake).append_arrow(("main", NAMES[name]), rows)
    else:  # keep the ids of both lakes in step
        alone(lake).create_schema(f"in place of {NAMES[name]}")


@pytest.fixture(autouse=True)
def noted_in_the_matrix(name, record_property):
    noted(record_property, str(schema_of(c=TYPES[name][0]).columns[0].type), "append_arrow")


every_type = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=NOT_IN_ARROW[name]))
        if name in NOT_IN_ARROW
        else name
        for name in TYPES
    ],
)


def _of_table(dump: Dump, catalog_table: str, table: str) -> list[dict]:
    (table_id,) = (row["table_id"] for row in dump["ducklake_table"] if row["table_name"] == table)
    hidden = ("data_file_id", "table_id", "column_size_bytes")
    rows = [row for row in dump[catalog_table] if row["table_id"] == table_id]
    return sorted(
        ({key: value for key, value in row.items() if key not in hidden} for row in rows),
        key=lambda row: row["column_id"],
    )


@every_type
def test_rows_are_read_equal(twins, name):
    query = f"SELECT typeof(c), c::VARCHAR FROM {NAMES[name]}"

    assert twins.ours.sql(query) == twins.theirs.sql(query)


@every_type
def test_file_statistics_are_equal(twins, name):
    ours = _of_table(twins.our_dump, "ducklake_file_column_stats", NAMES[name])

    assert ours == _of_table(twins.their_dump, "ducklake_file_column_stats", NAMES[name])


@every_type
def test_table_statistics_are_equal_or_absent_where_a_bound_is_unknown(twins, name):
    in_files = _of_table(twins.their_dump, "ducklake_file_column_stats", NAMES[name])
    unknown = {row["column_id"] for row in in_files if _lacks_a_bound(row)}

    ours = _of_table(twins.our_dump, "ducklake_table_column_stats", NAMES[name])

    theirs = _of_table(twins.their_dump, "ducklake_table_column_stats", NAMES[name])
    assert ours == [row for row in theirs if row["column_id"] not in unknown]


def _lacks_a_bound(row: dict) -> bool:
    """Whether there are values, not all of them NaN, that the bounds do not cover."""
    bounds = (row["min_value"], row["max_value"])
    only_nan = row["contains_nan"] and bounds == (None, None)
    return bool(row["value_count"]) and None in bounds and not only_nan and row["extra_stats"] is None


@every_type
def test_filters_find_the_same_rows(twins, name):
    type_, values = TYPES[name]
    operators = ("=", "<>", "<=", ">=", "<", ">", "IS DISTINCT FROM")
    conditions = [f"c {operator} ({value})::{type_}" for value in values for operator in operators]
    queries = [
        f"SELECT c::VARCHAR FROM {NAMES[name]} WHERE {condition} ORDER BY ALL"
        for condition in [*conditions, "c IS NULL", "c IS NOT NULL"]
    ]
    queries.append(f"SELECT count(*), count(c), min(c)::VARCHAR, max(c)::VARCHAR FROM {NAMES[name]}")

    for query in queries:
        assert _outcome(twins.ours, query) == _outcome(twins.theirs, query), query


def _outcome(lake: DuckLakeConnection, query: str) -> object:
    try:
        return lake.sql(query)
    except duckdb.ParserException as error:  # DuckDB cannot look for a text with NUL in any lake
        return str(error).split(":")[:2]
