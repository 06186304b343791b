"""Every storable type: our files and the reference's say and hold the same."""

import math
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    InvalidValueError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile
from airflow_provider_ducklake.lake.format.snapshots import SnapshotId
from airflow_provider_ducklake.lake.format.types.ducklake_types import DuckLakeType, ScalarType, parse_type
from airflow_provider_ducklake.lake.format.types.values import Physical, identity_text, order_key
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_field, arrow_schema, from_physical
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.nested_values.geometries import WKB
from airflow_provider_ducklake.lake.storage.parquet.footer import read_footer
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.interop.reference_table import WrittenTable, put_in_place, write_by_reference
from tests.interop.type_values import NULL_STRUCTS, TYPES
from tests.reference.catalogs import USUAL_KINDS, CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

every_type = pytest.mark.parametrize("name", [*TYPES, *NULL_STRUCTS])


@dataclass(frozen=True)
class Written:
    """The reference's tables by name of the case, and our files of the same rows."""

    catalog: CatalogDatabase
    theirs: dict[str, WrittenTable]
    ours: dict[str, DataFile]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Written:
    folder = tmp_path_factory.mktemp("types")
    catalog = file_catalog("sqlite", folder)
    theirs = write_by_reference(catalog, TYPES | NULL_STRUCTS)
    ours = {
        name: write_ours(table, read_file(table.file.path, table), folder / f"{table.name}.parquet")
        for name, table in theirs.items()
    }
    return Written(catalog, theirs, ours)


@pytest.fixture(scope="module")
def duck(written) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB for single files and Arrow tables; the lake is not in use."""
    with open_lake(written.catalog) as lake:
        lake.sql("USE memory")
        yield lake.raw


@pytest.fixture(scope="module")
def lake_of_ours(written, tmp_path_factory) -> Iterator[DuckLakeConnection]:
    """The same lake, but every data file is ours."""
    copy = tmp_path_factory.mktemp("ours") / "catalog.sqlite"
    shutil.copy(written.catalog.location, copy)
    catalog = CatalogDatabase("sqlite", str(copy), written.catalog.data_path)
    put_in_place(catalog, {written.theirs[name].file.id: file for name, file in written.ours.items()})
    with open_lake(catalog) as lake:
        yield lake


def read_file(path: str, table: WrittenTable) -> pa.Table:
    return read_data_file(
        replace(table.file, path=path), table.schema, table="main.t", snapshot_id=SnapshotId(2)
    ).cast()


def write_ours(table: WrittenTable, rows: pa.Table, path: Path, row_group_rows: int = 100) -> DataFile:
    with RollingWriter(
        table.schema, lambda: str(path), ParquetSettings(row_group_rows=row_group_rows)
    ) as writer:
        writer.write(rows)
    (file,) = writer.files
    return file


def as_1_0(stats):
    """What 1.0 records of columns: neither their sizes nor whether bounds are exact."""
    return {
        key: replace(value, column_size_bytes=None, only_nan=False, min_is_exact=None, max_is_exact=None)
        for key, value in stats.items()
    }


def texts(duck: duckdb.DuckDBPyConnection, rows: pa.Table, table: WrittenTable) -> list[str]:
    if table.schema.columns[0].type == ScalarType("geometry"):  # of which DuckDB knows no binary
        typed = [pa.ExtensionArray.from_storage(WKB, one) for one in rows["c"].chunks]
        rows = pa.table({"c": pa.chunked_array(typed, WKB)})
    duck.register("rows", rows)
    return [text for (text,) in duck.execute("SELECT c::VARCHAR FROM rows").fetchall()]


@every_type
def test_their_file_is_read_as_they_read_it(written, duck, name):
    theirs = written.theirs[name]

    rows = read_file(theirs.file.path, theirs)

    assert rows.schema == arrow_schema(theirs.schema)
    rows.validate(full=name != "time 24")  # Arrow's days have no 24:00:00
    assert texts(duck, rows, theirs) == [text for _, text in theirs.shown]


@pytest.mark.parametrize("row_group_rows", [100, 1])
@pytest.mark.parametrize("name", TYPES)
def test_our_statistics_are_theirs(written, name, row_group_rows, tmp_path):
    theirs = written.theirs[name]
    rows = read_file(theirs.file.path, theirs)

    ours = write_ours(theirs, rows, tmp_path / "ours.parquet", row_group_rows)

    assert as_1_0(ours.column_stats) == theirs.stats


@pytest.mark.xfail(
    strict=True, reason="the reference counts the nulls of a null struct in a list or map twice"
)
@pytest.mark.parametrize("name", NULL_STRUCTS)
def test_our_counts_below_null_structs_are_theirs(written, name):
    assert as_1_0(written.ours[name].column_stats) == written.theirs[name].stats


@every_type
def test_our_file_looks_like_theirs_to_duckdb(written, duck, name):
    query = "SELECT typeof(c), c::VARCHAR FROM read_parquet(?)"

    ours = duck.execute(query, [written.ours[name].path]).fetchall()

    assert ours == duck.execute(query, [written.theirs[name].file.path]).fetchall()


@every_type
def test_our_file_serves_the_lake_in_place_of_theirs(written, lake_of_ours, name):
    theirs = written.theirs[name]

    assert lake_of_ours.sql(f"SELECT typeof(c), c::VARCHAR FROM {theirs.name}") == theirs.shown
    found = lake_of_ours.sql(
        f"SELECT count(*) FROM {theirs.name} a WHERE EXISTS (FROM {theirs.name} b WHERE a.c = b.c)"
    )
    assert found == lake_of_ours.sql(f"SELECT count(c) FROM {theirs.name}")


@every_type
def test_our_file_reads_back_as_it_was_written(written, duck, name):
    theirs = written.theirs[name]

    again = read_file(written.ours[name].path, theirs)

    assert again.schema == arrow_schema(theirs.schema)
    assert texts(duck, again, theirs) == [text for _, text in theirs.shown]


@every_type
def test_our_footer_says_what_the_writer_said_or_less(written, name):
    ours = written.ours[name]

    read_back = read_footer(open_filesystem(ours.path), written.theirs[name].schema)

    assert replace(read_back, column_stats={}) == replace(ours, column_stats={})
    for column_id, stats in read_back.column_stats.items():
        assert_not_narrower(stats, ours.column_stats[column_id])


@every_type
def test_their_footer_says_what_their_catalog_says_or_less(written, name):
    theirs = written.theirs[name]

    read_back = read_footer(open_filesystem(theirs.file.path), theirs.schema)

    assert read_back.record_count == theirs.file.record_count
    assert read_back.file_size_bytes == theirs.file.file_size_bytes
    assert read_back.footer_size == theirs.file.footer_size
    for column_id, stats in read_back.column_stats.items():
        assert_not_narrower(stats, theirs.stats[column_id])


def assert_not_narrower(stats: ColumnStats, truth: ColumnStats) -> None:
    counts = (stats.value_count, stats.null_count)
    assert counts in ((truth.value_count, truth.null_count), (None, None))
    assert stats.contains_nan in (None, truth.contains_nan)
    for bound, true_bound in ((stats.min_value, truth.min_value), (stats.max_value, truth.max_value)):
        is_zero = true_bound in ("0.0", "-0.0") and bound in ("0.0", "-0.0")
        assert is_zero or bound in (None, true_bound)


# Integers of 128 bits, which DuckDB keeps as DOUBLE in files: exact, or refused.


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


# Our texts of values are DuckDB's, for random values of every type.


DAY = 86_400
YEARS = 9000 * 365 * DAY
# type → random physical value; times within Arrow's and DuckDB's common range
DRAW = {
    "boolean": lambda r: r.random() < 0.5,
    "int8": lambda r: r.randint(-128, 127),
    "int64": lambda r: r.randint(-(2**63), 2**63 - 1),
    "uint64": lambda r: r.randint(0, 2**64 - 1),
    "float32": lambda r: struct.unpack("<f", r.randbytes(4))[0],
    "float64": lambda r: struct.unpack("<d", r.randbytes(8))[0],
    "decimal(4,4)": lambda r: r.randint(-9999, 9999),
    "decimal(18,3)": lambda r: r.randint(-(10**18) + 1, 10**18 - 1),
    "decimal(38,38)": lambda r: r.randint(-(10**38) + 1, 10**38 - 1),
    "decimal(38,0)": lambda r: r.randint(-(10**38) + 1, 10**38 - 1),
    "date": lambda r: r.randint(-2_000_000, 10_000_000),
    "time": lambda r: r.randint(0, DAY * 10**6 - 1),
    "timestamp": lambda r: r.randint(-YEARS, YEARS) * 10**6 + r.choice([0, 1, 500_000, 999_999]),
    "timestamp_s": lambda r: r.randint(-YEARS, YEARS) * 10**6,
    "timestamp_ms": lambda r: r.randint(-YEARS, YEARS) * 10**3 + r.choice([0, 1, 500, 999]),
    "timestamp_ns": lambda r: r.randint(-(2**63) + 2 * DAY * 10**9, 2**63 - 2),
    "timestamptz": lambda r: r.randint(-YEARS, YEARS) * 10**6 + r.choice([0, 1, 500_000, 999_999]),
    "blob": lambda r: r.randbytes(r.randint(0, 12)),
    "uuid": lambda r: r.randbytes(16),
}
_ROUND = {
    "float32": [
        1.0,
        10.0,
        1e7,
        1e8,
        123456789.0,
        1e15,
        1e16,
        1e17,
        1e-4,
        1e-5,
        16777216.0,
        34061768.0,
        3.4028234663852886e38,
    ],
    "float64": [
        1.0,
        1e15,
        1e16,
        123456789012345680.0,
        1e-4,
        1e-5,
        9007199254740993.0,
        5e-324,
        1.7976931348623157e308,
    ],
}


def as_float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


_ROUND["float32"] = [as_float32(value) for value in _ROUND["float32"]]


def texts_of_duckdb(type_: DuckLakeType, values: list[Physical]) -> list[str]:
    column = from_physical(type_, values)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", pa.table({"c": column}))
        return [text for (text,) in connection.execute("SELECT c::VARCHAR FROM rows").fetchall()]


def random_values(name: str, seed: int, size: str) -> list[Physical]:
    draw = random.Random(seed)
    values = [*_ROUND.get(name, []), *(DRAW[name](draw) for _ in range(3_000 if size == "ci" else 100_000))]
    return [
        value for value in values if not (isinstance(value, float) and math.isnan(value))
    ]  # no bound is NaN


@pytest.mark.parametrize("name", [name for name in DRAW if name != "float32"])
def test_random_values_have_duckdbs_text(name, seed, size):
    type_, values = parse_type(name), random_values(name, seed, size)

    assert [identity_text(type_, value) for value in values] == texts_of_duckdb(type_, values)


def test_random_float32_texts_mean_the_same_float_as_duckdbs(seed, size):
    """DuckDB writes all nine digits where it cannot decide between two shorter texts (1 value in 100)."""
    type_, values = parse_type("float32"), random_values("float32", seed, size)

    ours = [identity_text(type_, value) for value in values]
    theirs = texts_of_duckdb(type_, values)

    assert [order_key(type_, text) for text in ours] == values
    assert [order_key(type_, text) for text in theirs] == values
    differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert len(differing) < len(values) / 25
    assert all(len(our) <= len(their) for our, their in differing)


@pytest.mark.parametrize("name", ["int32", "decimal(9,2)"])
@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-inf"])
def test_texts_that_are_numbers_to_python_alone_order_nothing(name, text):
    with pytest.raises(ValueError, match="is not a number"):
        order_key(parse_type(name), text)


# Strings that DuckDB could not read again reach no table, whoever brings them.


LATIN = "café".encode("latin-1")
STRINGS = "CREATE TABLE t (id BIGINT, s VARCHAR, l STRUCT(j JSON)[], j JSON)"


def strings(*values: bytes) -> pa.Array:
    """Return what Arrow takes for strings."""
    return pa.array(values, pa.binary()).view(pa.string())


def with_strings(count: int, s: bytes = b"s", inner: str = "1", j: str = "{}") -> pa.Table:
    """Return rows of which the last has the values given."""
    good = count - 1
    return pa.table(
        {
            "id": range(count),
            "s": strings(*[b"good"] * good, s),
            "l": [[{"j": "[]"}]] * good + [[{"j": "null"}, {"j": inner}]],
            "j": ["true"] * good + [j],
        }
    )


@pytest.fixture(params=[1, 50], ids=["inlined", "file"])
def count(request) -> int:
    return request.param


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"s": LATIN}, "column s: 1 value is not valid UTF-8, such as b'caf\\xe9'"),
        ({"j": ""}, "column j: 1 value is not valid JSON, such as ''"),
        ({"inner": "{a:1}"}, "column l.element.j: 1 value is not valid JSON, such as '{a:1}'"),
        (
            {"j": 501 * "[" + 501 * "]"},
            "column j: 1 value is not valid JSON of at most 500 levels, such as '" + 40 * "[" + "' …",
        ),
        ({"j": '"' + 99 * "x"}, "column j: 1 value is not valid JSON, such as '\"" + 39 * "x" + "' …"),
    ],
)
def test_arrow_rows_are_refused_before_anything_is_written(sqlite_catalog, count, wrong, problem):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(STRINGS)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            lake.append_arrow("t", with_strings(count))
            before = lake.current_snapshot()

            with pytest.raises(InvalidValueError) as caught:
                lake.append_arrow("t", with_strings(count, **wrong))

            assert caught.value.problems == (problem,)
            assert lake.current_snapshot() == before
        assert duck.sql("SELECT count(s), count(l), count(j) FROM t") == [(count, count, count)]


def test_a_partition_by_bad_strings_is_the_same_error(sqlite_catalog, count):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(STRINGS)
        duck.sql("ALTER TABLE t SET PARTITIONED BY (s)")
        with (
            Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
            pytest.raises(InvalidValueError, match="column s: 1 value is not valid UTF-8"),
        ):
            lake.append_arrow("t", with_strings(count, s=LATIN))


def test_inlined_rows_that_hold_no_json_are_not_flushed(sqlite_catalog):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(STRINGS)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            lake.append_arrow("t", with_strings(3))
            _damage_inlined(sqlite_catalog)

            with pytest.raises(InvalidValueError, match="column j: 3 values are not valid JSON"):
                lake.flush_inlined_data()

            assert lake.table_snapshot("t").files in {None, ()}


def _damage_inlined(catalog) -> None:
    """Have rows as an earlier release took them."""
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(catalog.location) as connection:
        (name,) = connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchone()
        connection.execute(f'UPDATE "{name}" SET j = ?', ("not json",))
    connection.close()


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("s", LATIN, "column s has values that are not valid UTF-8, such as b'caf\\xe9'"),
        ("j", b"not json", "column j has values that are not valid JSON, such as 'not json'"),
    ],
)
def test_bad_strings_in_the_footer_of_a_foreign_file_are_refused(
    sqlite_catalog, tmp_path, column, value, problem
):
    path = tmp_path / "foreign.parquet"
    values = {"s": strings(b"a", value if column == "s" else b"b")}
    values["j"] = pa.ExtensionArray.from_storage(pa.json_(), strings(b"1", value if column == "j" else b"2"))
    pq.write_table(pa.table(values), path)
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE t (s VARCHAR, j JSON)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            with pytest.raises(SchemaMismatchError) as caught, lake.transaction() as transaction:
                transaction.add_data_files("t", [str(path)])
            assert caught.value.differences == (problem,)


def test_a_default_that_is_no_json_is_refused(sqlite_catalog):
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE t (id BIGINT)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            for text in ("not json", r'"\ud800"'):
                with pytest.raises(InvalidInputError, match="JSON"), lake.transaction() as transaction:
                    transaction.add_column("t", "j", "json", default=text)


_NAN = float("nan")
_MAPS = {
    "texts": ("map(varchar, int64)", [("k", 1), ("k", 2)]),
    "zeros": ("map(float64, int64)", [(0.0, 1), (-0.0, 2)]),
    "no numbers": ("map(float64, int64)", [(_NAN, 1), (_NAN, 2)]),
    "structs": ("map(struct(a int64), int64)", [({"a": 1}, 1), ({"a": 1}, 2)]),
    "in a list": ("map(varchar, int64)[]", [[("a", 1)], [("k", 1), ("k", 2)]]),
    "in a struct": ("struct(x int64, m map(varchar, int64))", {"x": 1, "m": [("k", 1), ("k", 2)]}),
    "in a map": ("map(varchar, map(int64, int64))", [("a", [(1, 1), (1, 2)])]),
}


@pytest.mark.parametrize("kind", _MAPS)
def test_a_map_with_a_key_twice_is_refused_as_duckdb_reads_none(sqlite_catalog, kind):
    type_, value = _MAPS[kind]
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"v": type_})
        (column,) = lake.table_snapshot("t").schema.columns
        target = arrow_field(column, field_ids=False).type

        said = r"column v\S*: .*maps, each of whose keys is another"
        for count in (1, 200):  # inlined, and in a file
            with pytest.raises(InvalidValueError, match=said):
                lake.append_arrow("t", pa.table({"v": pa.array([None, *[value] * count], target)}))
        once = [value[:1] if isinstance(value, list) else {"x": 1, "m": value["m"][:1]}]
        if kind != "in a map":
            lake.append_arrow("t", pa.table({"v": pa.array([None, *once], target).slice(1)}))
            assert lake.row_count("t") == 1
