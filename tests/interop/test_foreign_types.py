"""Types of added files that Parquet and Arrow name differently: taken as DuckDB reads them, or refused."""

import re

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SchemaMismatchError
from airflow_provider_ducklake.lake.storage.parquet.modules import ModuleKind, ThriftField
from tests.interop.added_types import ADDED_BY_DUCKDB, FILES, NOT_ADDED_BY_DUCKDB, REFUSED, TAKEN, of
from tests.interop.comparison import multiset
from tests.interop.footers import BYTE_ARRAY, INT32, OPTIONAL, element, parquet, with_schema
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

ADD = "CALL ducklake_add_data_files('lake', 't', '{}')"


# times with more digits than the column, numbers that pyarrow shows as dates, and what it then cannot read
DUCKDB_ADDS = [
    *ADDED_BY_DUCKDB,
    ("logical date", "INTEGER"),
    ("geoparquet", "BLOB"),
    ("geography", "BLOB"),
    ("text of geoparquet", "VARCHAR"),
]


@pytest.fixture
def written(tmp_path):
    def write(name):
        path = tmp_path / "file.parquet"
        path.write_bytes(FILES[name])
        return path

    return write


def make(catalog, sql):
    by_duckdb(catalog, f"CREATE TABLE t (a {sql})")


def add(catalog, path):
    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.add_data_files("t", [str(path)])


@pytest.mark.parametrize(("name", "sql"), TAKEN)
def test_what_duckdb_reads_is_taken_and_read_alike(new_catalog, written, name, sql):
    ours, reference, path = new_catalog("sqlite"), new_catalog("sqlite"), written(name)
    make(ours, sql)
    make(reference, sql)
    with open_lake(reference) as duck:
        if name in NOT_ADDED_BY_DUCKDB:
            duck.sql(f"INSERT INTO t FROM '{path}'")
        else:
            duck.sql(ADD.format(path))
        expected = multiset(duck.arrow("FROM t"))

    add(ours, path)

    with open_lake(ours) as duck:
        assert multiset(duck.arrow("FROM t")) == expected
    with Lake.connect(ours.sqlalchemy_url) as lake:
        assert multiset(lake.read_arrow("t")) == expected
        assert lake.verify() == []
        alone(lake).delete_rows("t", "a IS NULL")
        left = multiset(lake.read_arrow("t"))
    with open_lake(ours) as duck:
        assert multiset(duck.arrow("FROM t")) == left


@pytest.mark.parametrize(("name", "sql", "problem"), REFUSED)
def test_what_duckdb_reads_as_something_else_is_refused(sqlite_catalog, written, name, sql, problem):
    path = written(name)
    make(sqlite_catalog, sql)
    if (name, sql) not in DUCKDB_ADDS:
        with open_lake(sqlite_catalog) as duck, pytest.raises(duckdb.Error, match=r"Expected|type"):
            duck.sql(ADD.format(path))

    with pytest.raises(SchemaMismatchError, match=re.escape(problem)):
        add(sqlite_catalog, path)


def test_filters_lose_no_instant_that_is_cut(sqlite_catalog, written):
    path = written("nanoseconds")
    make(sqlite_catalog, "TIMESTAMPTZ")
    add(sqlite_catalog, path)

    with open_lake(sqlite_catalog) as duck, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for where, count in (
            ("a = '1970-01-01 00:00:00+00'", 4),
            ("a <= '1969-12-31 23:59:59.999999+00'", 2),
            ("a < '1969-12-31 23:59:59.999999+00'", 0),
            ("a >= '2020-09-13 12:26:40.123456+00'", 1),
            ("a > '2020-09-13 12:26:40.123456+00'", 0),
        ):
            assert duck.sql(f"SELECT count(*) FROM t WHERE {where}") == [(count,)]
            assert lake.read_arrow("t", filter=where).num_rows == count


@pytest.mark.parametrize(("name", "sql"), ADDED_BY_DUCKDB)
def test_times_with_more_digits_are_read_as_duckdb_reads_them(sqlite_catalog, written, name, sql):
    make(sqlite_catalog, sql)
    with open_lake(sqlite_catalog) as duck, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        duck.sql(ADD.format(written(name)))
        assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))
        for (value,) in duck.sql("SELECT DISTINCT a::VARCHAR FROM t WHERE a IS NOT NULL"):
            for sign in ("=", "<", "<=", ">", ">="):
                expected = duck.sql(f"SELECT count(*) FROM (SELECT a, 1 FROM t) WHERE a {sign} '{value}'")
                assert [(lake.read_arrow("t", filter=f"a {sign} '{value}'").num_rows,)] == expected


def test_filters_lose_no_half(sqlite_catalog, written):
    make(sqlite_catalog, "FLOAT")
    add(sqlite_catalog, written("halves"))

    with open_lake(sqlite_catalog) as duck, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for where, count in (("a = 1.5", 1), ("a < 0", 1), ("a > -3 AND a < 2", 2)):
            assert duck.sql(f"SELECT count(*) FROM t WHERE {where}") == [(count,)]
        assert lake.read_arrow("t", filter="a < 0").num_rows == 1


def test_filters_lose_no_geometry_of_a_system(sqlite_catalog, written):
    make(sqlite_catalog, "GEOMETRY")
    add(sqlite_catalog, written("geometry of a system"))

    with open_lake(sqlite_catalog) as duck:
        for place, count in (("POINT(1 1)", 1), ("POINT(5 5)", 1), ("POINT(3 3)", 0)):
            assert duck.sql(f"SELECT count(*) FROM t WHERE a && '{place}'::GEOMETRY") == [(count,)]


def test_an_enum_whose_footer_shows_no_utf8_is_refused(sqlite_catalog, tmp_path):
    path = tmp_path / "file.parquet"
    path.write_bytes(of([b"\xff", b"a"], pa.binary(), BYTE_ARRAY, converted=4))
    make(sqlite_catalog, "VARCHAR")

    with pytest.raises(
        SchemaMismatchError, match=r"column a has values that are not valid UTF-8, such as b'\\xff'"
    ):
        add(sqlite_catalog, path)


def test_decimals_beyond_their_own_type_are_refused(sqlite_catalog, tmp_path):
    """pandas and old Arrow wrote them; DuckDB adds the file, and then reads none of its rows."""
    path = tmp_path / "file.parquet"
    of_five = element("a", OPTIONAL, INT32, converted=5) | {
        7: ThriftField(ModuleKind.I32, 2),
        8: ThriftField(ModuleKind.I32, 5),
    }
    path.write_bytes(with_schema(parquet({"a": pa.array([1, -100_000], pa.int32())}), [of_five], ["a"]))
    make(sqlite_catalog, "DECIMAL(5, 2)")

    with pytest.raises(SchemaMismatchError, match=r"column a has values with more digits than its own type"):
        add(sqlite_catalog, path)


def test_a_null_column_is_no_not_null_one(sqlite_catalog, tmp_path):
    path = tmp_path / "file.parquet"
    path.write_bytes(parquet({"a": pa.nulls(3)}))
    make(sqlite_catalog, "INTEGER NOT NULL")

    with pytest.raises(SchemaMismatchError, match=r"column a is NOT NULL but has 3 null value"):
        add(sqlite_catalog, path)
