"""Integers of 128 bits, which DuckDB keeps as DOUBLE in files: exact, or refused."""

from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidValueError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tests.interop.compacting import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalogs import USUAL_KINDS
from tests.reference.duckdb_lake import open_lake

LONG = pa.decimal256(39, 0)
VALUES = (0, -5, 2**53, 2**100, -(2**126), 10**15, None)
TABLE = "CREATE TABLE t (id INT, h HUGEINT, u UHUGEINT)"


def rows(*values, start=0):
    ids = range(start, start + len(values))
    unsigned = [None if one is None else abs(one) for one in values]
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "h": pa.array([one and Decimal(one) for one in values], LONG),
            "u": pa.array([one and Decimal(one) for one in unsigned], LONG),
        }
    )


def read(lake, **options):
    found = lake.read_arrow("t", **options).sort_by("id")
    assert [found.schema.field(name).type for name in ("h", "u")] == [pa.decimal128(38, 0)] * 2
    return [tuple(None if one is None else int(one) for one in row.values()) for row in found.to_pylist()]


@pytest.fixture(params=USUAL_KINDS)
def catalog(request, new_catalog):
    catalog = new_catalog(request.param)
    by_duckdb(catalog, TABLE)
    return catalog


@pytest.fixture
def lake(catalog):
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield lake


def theirs(catalog, where="true"):
    return by_duckdb(catalog, f"FROM t WHERE {where} ORDER BY id")


@pytest.mark.parametrize("inlined", [0, 100])
def test_they_are_read_from_files_and_from_the_catalog(catalog, lake, inlined):
    with open_lake(catalog, data_inlining_row_limit=inlined) as reference:
        reference.sql(
            "INSERT INTO t SELECT x, (x * 2 ** 80)::HUGEINT, (x * 2 ** 90)::UHUGEINT FROM range(9) r(x)"
        )
        reference.sql("INSERT INTO t VALUES (10, -7, 7), (11, NULL, NULL)")

    assert read(lake) == theirs(catalog)
    assert read(lake, filter="h = -7") == [(10, -7, 7)]
    assert read(lake, filter="u >= 1237940039285380274899124224") == theirs(
        catalog, "u >= 1237940039285380274899124224"
    )
    assert read(lake, filter="h IS NULL") == [(11, None, None)]


@pytest.mark.parametrize("limit", [0, 100])
def test_duckdb_reads_and_finds_what_we_write(catalog, lake, limit):
    lake.set_option("data_inlining_row_limit", limit)
    lake.append_arrow("t", rows(*VALUES))
    wanted = [(i, one, one if one is None else abs(one)) for i, one in enumerate(VALUES)]

    assert theirs(catalog) == read(lake) == wanted
    assert theirs(catalog, "h = -5") == [wanted[1]]
    assert theirs(catalog, "u > 9007199254740993 AND h > 0") == [wanted[3]]
    assert [one.code for one in lake.verify()] == []


@pytest.mark.parametrize(
    ("column", "value"),
    [("h", 2**53 + 1), ("h", 2**127 - 1), ("h", 2**127), ("h", -(2**127)), ("u", -1), ("u", 2**128 - 1)],
)
@pytest.mark.parametrize("limit", [0, 100])
def test_a_value_that_no_double_holds_is_refused(lake, limit, column, value):
    lake.set_option("data_inlining_row_limit", limit)
    data = rows(1, 2)
    place = data.column_names.index(column)
    data = data.set_column(place, column, pa.array([Decimal(1), Decimal(value)], LONG))

    with pytest.raises(InvalidValueError, match=rf"column {column}: 1 value is not valid integers.*{value}"):
        lake.append_arrow("t", data)
    assert read(lake) == []


@pytest.mark.parametrize("type_", [pa.int8(), pa.uint64(), pa.decimal128(38, 0), pa.decimal128(5, 0)])
def test_whole_numbers_of_other_types_are_taken(catalog, lake, type_):
    data = pa.table({"id": pa.array([1], pa.int32()), "h": pa.array([7], type_), "u": pa.array([8], type_)})
    lake.append_arrow("t", data)

    assert theirs(catalog) == read(lake) == [(1, 7, 8)]


def test_fractions_are_refused(lake):
    data = rows(1)
    with pytest.raises(SchemaMismatchError, match="column h is int128 in the table; decimal128"):
        lake.append_arrow("t", data.set_column(1, "h", pa.array([Decimal("1.5")], pa.decimal128(5, 1))))
    with pytest.raises(SchemaMismatchError, match="column h is int128 in the table; double"):
        lake.append_arrow("t", data.set_column(1, "h", pa.array([1.0])))


def test_upkeep_leaves_them_as_they_are(catalog, lake):
    lake.set_option("data_inlining_row_limit", 0)
    for start in (0, 10):
        lake.append_arrow("t", rows(*VALUES, start=start))
    then = lake.current_snapshot().id
    with open_lake(catalog) as reference:
        reference.sql("DELETE FROM t WHERE id = 3")
        reference.sql("INSERT INTO t VALUES (30, 5, 6)")
        reference.sql("UPDATE t SET u = 9 WHERE id = 1")
    wanted = theirs(catalog)
    name = lake.tables()[0]

    lake.flush_inlined_data("t")
    assert theirs(catalog) == read(lake) == wanted
    assert rewrite(lake, name, delete_threshold=0) is not None
    assert merge_adjacent(lake, name) is not None
    assert theirs(catalog) == read(lake) == wanted
    lake.restore("t", at=then)
    assert [row[0] for row in theirs(catalog)] == [row[0] for row in read(lake)]
    assert read(lake) == read(lake, at=then)
    assert [one.code for one in lake.verify()] == []


def test_a_flush_refuses_what_duckdb_would_write_as_another_number(catalog, lake):
    by_duckdb(catalog, "INSERT INTO t VALUES (1, 9007199254740993, 1)")
    with pytest.raises(InvalidValueError, match="9007199254740993"):
        lake.flush_inlined_data("t")
    assert read(lake) == theirs(catalog) == [(1, 9007199254740993, 1)]


def test_a_file_with_a_number_beyond_128_bits_is_refused(catalog, lake):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t SELECT x, x, x FROM range(3) r(x)")
        (file,) = lake.table_snapshot("t", with_files=True).files
        reference.sql(
            f"COPY (SELECT x::INT AS id, 1e40 AS h, 1.0::DOUBLE AS u FROM range(3) r(x)) TO '{file.path}' "
            "(FIELD_IDS {id: 1, h: 2, u: 3})"
        )
    with pytest.raises(UnsupportedFeatureError, match="column h is stored as double"):
        read(lake)


def test_a_new_table_has_them(catalog, lake):
    alone(lake).create_table("n", {"h": "int128", "s": "struct(u uint128)[]"})
    lake.append_arrow("n", pa.table({"h": pa.array([5]), "s": [[{"u": 6}]]}))
    with open_lake(catalog) as reference:
        assert reference.sql("FROM n") == [(5, [{"u": 6}])]
        assert reference.sql("DESCRIBE n")[0][1] == "HUGEINT"


def test_duckdb_takes_what_is_read_where_38_digits_hold_it(catalog, lake):
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES (1, 2::HUGEINT ** 100, 7)")
        reference.sql("CREATE TABLE n AS SELECT [sum(id)] AS l, {'h': sum(id)} AS s FROM t")
    found = lake.read_arrow("t")
    nested = lake.read_arrow("n")

    with duckdb.connect() as connection:
        connection.register("found", found)
        connection.register("nested", nested)
        assert connection.sql("SELECT h, u FROM found").fetchall() == [(2**100, 7)]
        assert connection.sql("SELECT l, s FROM nested").fetchall() == [([1], {"h": 1})]
    by_duckdb(catalog, "INSERT INTO t VALUES (2, 170141183460469231731687303715884105726, 7)")
    assert lake.read_arrow("t").schema.field("h").type == LONG
    assert lake.read_arrow("t", filter="id = 1").schema.field("h").type == pa.decimal128(38, 0)
