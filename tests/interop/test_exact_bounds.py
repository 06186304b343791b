"""Whether bounds are values of the column, as 1.1 notes it: what DuckDB 2.0 writes, and what follows."""

import uuid

import pyarrow as pa
import pytest
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.files import ColumnStats, TableColumnStats
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.planning.reading.pruning import TextBounds, covers
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.compacting import rewrite
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_core import open_core

# the type, the SQL of a least and a greatest value
COLUMNS = {
    "int32": ("INTEGER", "-5", "7"),
    "uint64": ("UBIGINT", "0", "18446744073709551615"),
    "decimal(9,2)": ("DECIMAL(9,2)", "-1.50", "2.25"),
    "boolean": ("BOOLEAN", "false", "true"),
    "float64": ("DOUBLE", "-0.5", "1e300"),
    "date": ("DATE", "'1969-12-31'", "'2024-01-01'"),
    "timestamp": ("TIMESTAMP", "'1969-12-31 23:59:59.5'", "'2024-01-01'"),
    "timestamptz": ("TIMESTAMPTZ", "'1969-12-31 23:59:59.5+00'", "'2024-01-01 00:00:00+00'"),
    "uuid": ("UUID", "'00000000-0000-0000-0000-000000000001'", "'ffffffff-0000-0000-0000-000000000001'"),
    "varchar": ("VARCHAR", "'a'", "'é'"),
    "blob": ("BLOB", "'\\x00'::BLOB", "'\\xFF'::BLOB"),
}
TEXTS = {
    "of 256 bytes": ("VARCHAR", "repeat('a', 256)", "repeat('b', 256)"),
    "of 257 bytes": ("VARCHAR", "repeat('a', 257)", "repeat('b', 257)"),
    "one of both": ("VARCHAR", "repeat('a', 300)", "'b'"),
    "another of both": ("VARCHAR", "'a'", "repeat('b', 300)"),
    "blob of 257 bytes": ("BLOB", "repeat('a', 257)::BLOB", "repeat('b', 257)::BLOB"),
    "no value": ("VARCHAR", "NULL", "NULL"),
}


CASES = COLUMNS | TEXTS


@pytest.mark.parametrize(("type_", "low", "high"), CASES.values(), ids=CASES)
def test_a_file_says_what_duckdb_2_0_says(sqlite_catalog, tmp_path, type_, low, high):
    query = f"SELECT x::{type_} AS x FROM (VALUES ({low}), ({high})) t(x)"
    with open_core() as core:
        said = core.write_parquet(query, f"{tmp_path}/theirs.parquet")["column_statistics"]['"x"']
        rows = core.arrow(query)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"x": _ducklake_type(type_)})
        lake.append_arrow("t", _plain(rows, type_))
        assert lake.verify() == []

    (row,) = dump_catalog(sqlite_catalog)["ducklake_file_column_stats"]
    for name in ("min", "max"):
        exact = row[f"{name}_is_exact"]
        assert (None if exact is None else str(bool(exact)).lower()) == said.get(f"{name}_is_exact"), name
    (of_table,) = dump_catalog(sqlite_catalog)["ducklake_table_column_stats"]
    assert (of_table["min_is_exact"], of_table["max_is_exact"]) == (row["min_is_exact"], row["max_is_exact"])


def _ducklake_type(type_: str) -> str:
    names = {sql: name for name, (sql, *_) in COLUMNS.items()}
    return names[type_]


def _plain(rows: pa.Table, type_: str) -> pa.Table:
    if type_ != "UUID":
        return rows
    values = [uuid.UUID(text).bytes for text in rows["x"].to_pylist()]
    return pa.table({"x": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))})


@pytest.mark.parametrize("first", [256, 300])
def test_of_two_equal_bounds_the_cut_one_counts(lake, catalog, first):
    """Cut to 256 bytes they are one text, of which only one file has the value."""
    alone(lake).create_table("t", {"s": "varchar"})
    for length in (first, 556 - first):
        lake.append_arrow("t", pa.table({"s": ["a" * length]}))

    (row,) = dump_catalog(catalog)["ducklake_table_column_stats"]
    assert (row["min_value"], bool(row["min_is_exact"])) == ("a" * 256, False)


@pytest.fixture
def lake(catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as opened:
        opened.set_option("data_inlining_row_limit", 0)
        yield opened


def test_a_bound_of_unknown_exactness_makes_another_unknown():
    stats = ColumnStats(ColumnId(1), 1, 0, "a", "a")
    known = TableColumnStats.of_file(stats.with_exactness(parse_type("varchar")), parse_type("varchar"))
    unknown = TableColumnStats.of_file(stats, parse_type("varchar"))

    merged = known.merge(unknown, parse_type("varchar"))

    assert (known.min_is_exact, merged.min_is_exact, merged.max_is_exact) == (True, None, None)


def test_no_bound_that_is_not_exact_is_an_answer(lake, catalog):
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.create_table("t", {"s": "varchar"})
        theirs.insert("t", [{"s": "b"}, {"s": "c"}])

    assert lake.column_bounds("t", "s").min.as_py() == "b"
    with create_engine(catalog.sqlalchemy_url, poolclass=NullPool).begin() as connection:
        connection.execute(text("UPDATE ducklake_file_column_stats SET min_is_exact = false"))
    assert lake.column_bounds("t", "s") is None
    assert lake.read_arrow("t", filter="s = 'b'").num_rows == 1


def test_ended_types_leave_no_flags_behind(lake, catalog):
    alone(lake).create_table("t", {"i": "int32", "f": "float32"})
    lake.append_arrow(
        "t", pa.table({"i": pa.array([1, 2], pa.int32()), "f": pa.array([0.1, 2], pa.float32())})
    )
    alone(lake).set_column_type("t", "f", "float64")

    rows = {row["column_id"]: row for row in dump_catalog(catalog)["ducklake_file_column_stats"]}
    assert [rows[2][name] for name in ("min_value", "max_value", "min_is_exact", "max_is_exact")] == [
        None
    ] * 4
    assert rows[1]["min_is_exact"]
    assert lake.verify() == []


def test_the_catalog_knows_how_many_row_groups_a_file_has(lake, catalog):
    lake.set_option("parquet_row_group_size", 4)
    alone(lake).create_table("t", {"i": "int32"})
    lake.append_arrow("t", pa.table({"i": pa.array(range(10), pa.int32())}))

    assert [row["row_group_count"] for row in dump_catalog(catalog)["ducklake_data_file"]] == [3]


def test_a_1_0_lake_has_none_of_it(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int32"})
        lake.append_arrow("t", pa.table({"i": pa.array(range(100), pa.int32())}))

    (row,) = dump_catalog(sqlite_catalog)["ducklake_file_column_stats"]
    assert "min_is_exact" not in row


def test_flags_without_a_bound_are_found_and_mended(lake, catalog):
    alone(lake).create_table("t", {"i": "int32"})
    lake.append_arrow("t", pa.table({"i": pa.array([1, 2], pa.int32())}))
    with create_engine(catalog.sqlalchemy_url, poolclass=NullPool).begin() as connection:
        for table in ("file", "table"):
            connection.execute(text(f"UPDATE ducklake_{table}_column_stats SET min_value = NULL"))

    found = [one for one in lake.verify() if one.code == "exact-without-bound"]
    assert [one.objects.get("data_file_id") for one in found] == [0, None]
    lake.repair(found)
    assert "exact-without-bound" not in {one.code for one in lake.verify()}
    (row,) = dump_catalog(catalog)["ducklake_file_column_stats"]
    assert (row["min_is_exact"], bool(row["max_is_exact"])) == (None, True)


@pytest.mark.parametrize(("type_", "value"), [("varchar", "x" * 300), ("blob", b"\xfe" * 300)])
def test_bounds_that_others_do_not_cut_are_no_fault(sqlite_catalog, type_, value):
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        theirs.set_option("data_inlining_row_limit", 0)
        theirs.create_table("t", {"i": "int32", "c": type_})
        theirs.insert("t", [{"i": n, "c": value} for n in range(2)])
        theirs.delete("t", "i = 0")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        found = [finding.code for finding in lake.verify()]
        rewrite(lake)  # whose statistics are cut
        found += [finding.code for finding in lake.verify()]
    assert set(found) <= ({FindingCode.TABLE_STATS_NARROW} if type_ == "blob" else set())  # it keeps none


@pytest.mark.parametrize(
    ("outer", "inner", "covered"),
    [
        (("x" * 300, "y" * 300), ("x" * 256, "y" * 255 + "z"), True),
        (("x" * 300, "é" * 200), ("x" * 256, "é" * 128), False),
        (("x" * 300, "z"), ("x" * 255, "z"), False),
        (("a", "b" + "é" * 200), ("a", "c"), True),
        (("a", "b" + "é" * 200), ("a", "d"), False),
    ],
)
def test_a_cut_covers_no_more_than_its_value(outer, inner, covered):
    assert covers(TextBounds(*outer), TextBounds(*inner), [parse_type("varchar")]) is covered


def test_a_blob_s_bound_that_is_no_hexadecimal_is_compared_as_it_is():
    for inner, covered in (("a", True), ("z\\x00", False)):
        assert covers(TextBounds("\\x00", "b"), TextBounds(inner, inner), [parse_type("blob")]) is covered
