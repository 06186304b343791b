"""Whether bounds are values of the column, as 1.1 notes it: what DuckDB 2.0 writes, and what follows."""

import random
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.files import ColumnStats, TableColumnStats
from airflow_provider_ducklake.lake.format.partitioning import (
    PartitionField,
    Transform,
    TransformKind,
    partition_value,
)
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.planning.reading.predicates import Comparison, Operator
from airflow_provider_ducklake.lake.planning.reading.pruning import (
    TextBounds,
    all_match,
    covers,
    file_may_match,
)
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import values_of
from tests.interop.corpus import FILES_ONLY, FLUSH
from tests.interop.jobs import rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

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


# Row counts and bounds of columns, answered by the catalog while the data files are away.


CUT = Path(__file__).parents[1] / "golden" / "parquet_mr" / "text_cut.parquet"
ANSWERED = {  # SQL type: least and greatest of three values and a NULL, where the catalog can tell them
    "INTEGER": ("-5", "7", (-5, 7)),
    "UBIGINT": ("0", "18446744073709551615", (0, 2**64 - 1)),
    "DECIMAL(9,2)": ("-1.50", "2.25", (Decimal("-1.50"), Decimal("2.25"))),
    "DATE": ("'1969-12-31'", "'2024-02-29'", (date(1969, 12, 31), date(2024, 2, 29))),
    "VARCHAR": ("''", "'zz'", ("", "zz")),
    "BLOB": (r"'\x00'", r"'\xFF'", (b"\0", b"\xff")),
    "BOOLEAN": ("false", "true", (False, True)),
    "DOUBLE": ("-1.5", "'inf'", (-1.5, float("inf"))),
    "DOUBLE ": ("-1.5", "'nan'", None),
    "VARCHAR ": ("'a'", "repeat('z', 300)", None),
    "INTEGER[]": ("[1]", "[2]", None),
    "STRUCT(a INTEGER)": ("{'a': 1}", "{'a': 2}", None),
}


@pytest.mark.parametrize("inlined", [False, True])
def test_bounds_of_every_type(catalog, inlined):
    with open_lake(catalog) as reference:
        if not inlined:
            reference.sql(FILES_ONLY)
        for number, (type_, (low, high, _)) in enumerate(ANSWERED.items()):
            reference.sql(f"CREATE TABLE t{number} (c {type_})")
            reference.sql(f"INSERT INTO t{number} VALUES ({high}), (NULL), ({low})")
    _take_away(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for number, (type_, (_, _, wanted)) in enumerate(ANSWERED.items()):
            found = lake.column_bounds(f"t{number}", "c")
            assert (found and (found.min.as_py(), found.max.as_py())) == wanted, type_
            assert lake.row_count(f"t{number}") == 3


def _take_away(catalog) -> None:
    shutil.rmtree(Path(catalog.data_path))
    Path(catalog.data_path).mkdir()


def test_counts_need_no_file_but_a_flushed_one_of_a_later_snapshot(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i FROM range(50) r(x)")
        reference.sql("DELETE FROM t WHERE i < 3")  # marks in the catalog
        reference.sql("CREATE TABLE u AS SELECT x AS i FROM range(5) r(x)")
        reference.sql("INSERT INTO u VALUES (5)")
        reference.sql("DELETE FROM u WHERE i < 2")
        counts = [
            (name, at, reference.sql(f"SELECT count(*) FROM {name} AT (VERSION => {at})")[0][0])
            for name, at in [("t", 1), ("t", 2), ("u", 3), ("u", 4), ("u", 5)]
        ]
        reference.sql(FLUSH)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert [(name, at, lake.row_count(name, at)) for name, at, _ in counts] == counts
        assert lake.row_count("u") == 4
        assert lake.column_bounds("u", "i", at=3) is None
        _take_away(catalog)
        assert lake.row_count("t", 1) == 50
        with pytest.raises(errors.StorageError):
            lake.row_count("u", 3)


def test_what_hides_the_bounds(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i, 1.5::FLOAT AS f FROM range(50) r(x)")
        reference.sql("ALTER TABLE t ADD COLUMN late INT DEFAULT 7")
        reference.sql("INSERT INTO t SELECT x, 2.5, 3 FROM range(50, 99) r(x)")
        reference.sql("ALTER TABLE t ALTER f SET DATA TYPE DOUBLE")
        reference.sql("DELETE FROM t WHERE i = 0")
    with Lake.connect(catalog.sqlalchemy_url) as lake:

        def bounds(column, at):
            found = lake.column_bounds("t", column, at)
            return found and (found.min.as_py(), found.max.as_py())

        assert [bounds("i", at) for at in (1, 2, 3, 4, 5)] == [(0, 49), (0, 49), (0, 98), (0, 98), None]
        assert [bounds("late", at) for at in (2, 3)] == [(7, 7), (3, 7)]
        assert [bounds("f", at) for at in (3, 4)] == [(1.5, 2.5), None]
        with pytest.raises(errors.ColumnNotFoundError):
            bounds("late", 1)
        with pytest.raises(errors.TableNotFoundError):
            lake.row_count("t", at=0)


def test_a_table_without_rows_has_bounds_without_values(catalog):
    by_duckdb(catalog, "CREATE TABLE t (i INT)", "INSERT INTO t VALUES (NULL)")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for at in (1, 2):
            found = lake.column_bounds("t", "i", at)
            assert (found.min.as_py(), found.max.as_py()) == (None, None)


def test_bounds_that_another_writer_may_have_cut_are_no_answer_and_lose_no_row(sqlite_catalog, tmp_path):
    path, copy = (shutil.copy(CUT, tmp_path / name) for name in ("cut.parquet", "copy.parquet"))
    statistics = pq.read_metadata(path).row_group(0).column(0).statistics
    assert (statistics.min_raw, statistics.max_raw) == (b"abc", b"abd")  # of abcdef to abd
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (c VARCHAR)")
        reference.sql("CREATE TABLE p (c VARCHAR)")
        reference.sql("ALTER TABLE p SET PARTITIONED BY (c)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            alone(lake).add_data_files("t", [str(path)])
            assert lake.column_bounds("t", "c") is None
            for where in ("c = 'abcxyz'", "c >= 'abcxyz' AND c < 'abd'", "c > 'abcz'"):
                found = lake.read_arrow("t", filter=where).num_rows
                assert [(found,)] == reference.sql(f"SELECT count(*) FROM t WHERE {where}") == [(1,)]
            with pytest.raises(errors.InvalidPartitionError), lake.transaction() as transaction:
                transaction.add_data_files("p", [str(copy)])


# No row is lost by what was written of its file before its column got a wider type.
#
# The reference makes every promotion that it takes; bounds and partition values are those of the old
# type then.


_DAYS = ("0044-03-15 (BC)", "1500-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31")
_MOMENTS = (*_DAYS, "1969-12-31 23:59:59", "2024-02-29 12:30:01", "infinity", "-infinity")
_NANO_DAYS = ("1700-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "infinity", "-infinity")
_SMALL = ("-128", "-7", "-1", "0", "3", "5", "127")
VALUES = {
    "BOOLEAN": ("false", "true"),
    "TINYINT": _SMALL,
    "SMALLINT": (*_SMALL, "-32768", "32767"),
    "INTEGER": (*_SMALL, "16777217", "-16777219", "2147483647"),
    "BIGINT": (*_SMALL, "16777217", "9007199254740993", "-9007199254740993", "9223372036854775807"),
    "UTINYINT": ("0", "3", "255"),
    "USMALLINT": ("0", "3", "65535"),
    "UINTEGER": ("0", "3", "16777217", "4294967295"),
    "UBIGINT": ("0", "3", "9007199254740993", "18446744073709551615"),
    "DECIMAL(9,2)": ("-7.00", "0.05", "0.10", "1.50", "167772.17", "9999999.99"),
    "DECIMAL(38,2)": ("-0.50", "0.10", "90071992547409.93", "123456789012345678901234.55"),
    "FLOAT": ("0.1", "1.1", "nan", "inf", "-inf", "-0.0", "1e-45", "16777216", "3.4e38", "-0.3"),
    "DATE": (*_DAYS, "infinity", "-infinity"),
    "TIMESTAMP": _MOMENTS,
    "TIMESTAMP_S": _MOMENTS[:-2],  # DuckDB cannot partition by the infinite ones
    "TIMESTAMP_MS": _MOMENTS[:-2],
}
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
PROMOTIONS = [
    *(("BOOLEAN", wider) for wider in ("TINYINT", "BIGINT", "UBIGINT")),
    *((one, wider) for place, one in enumerate(_INTEGERS) for wider in _INTEGERS[place + 1 :]),
    *((one, wider) for place, one in enumerate(_UNSIGNED) for wider in _UNSIGNED[place + 1 :]),
    *(("UTINYINT", one) for one in _INTEGERS[1:]),
    *(("USMALLINT", one) for one in _INTEGERS[2:]),
    ("UINTEGER", "BIGINT"),
    *((one, wider) for one in (*_INTEGERS, *_UNSIGNED) for wider in ("FLOAT", "DOUBLE", "DECIMAL(38,2)")),
    *(("DECIMAL(9,2)", wider) for wider in ("DECIMAL(18,4)", "DECIMAL(38,2)", "FLOAT", "DOUBLE")),
    *(("DECIMAL(38,2)", wider) for wider in ("FLOAT", "DOUBLE")),
    ("FLOAT", "DOUBLE"),
    *(("DATE", wider) for wider in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")),
    *(("TIMESTAMP_S", wider) for wider in ("TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_NS")),
    *(("TIMESTAMP_MS", wider) for wider in ("TIMESTAMP", "TIMESTAMP_NS")),
    ("TIMESTAMP", "TIMESTAMP_NS"),
]
ALWAYS = [("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP"), ("INTEGER", "FLOAT")]
OPERATORS = {
    Operator.EQUAL: "=",
    Operator.UNEQUAL: "<>",
    Operator.LESS: "<",
    Operator.AT_MOST: "<=",
    Operator.GREATER: ">",
    Operator.AT_LEAST: ">=",
}


@dataclass(frozen=True)
class Promoted:
    """A table of which each file has one row, by its id, and its rows in a DuckDB without a lake."""

    lake: Lake
    name: str
    rows: pa.Table
    plain: duckdb.DuckDBPyConnection

    def ids_where(self, condition: str) -> set[int]:
        return {one for (one,) in self.plain.execute(f"SELECT id FROM rows WHERE {condition}").fetchall()}


def id_of(file) -> int:
    return int(file.partition_values[0])


@pytest.fixture
def promotions(seed, size) -> list[tuple[str, str]]:
    if size == "full":
        return PROMOTIONS
    return list(dict.fromkeys((*ALWAYS, *random.Random(seed).sample(PROMOTIONS, 5))))


def test_no_row_is_lost_by_what_was_written_before_a_promotion(sqlite_catalog, promotions):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        for number, (old, new) in enumerate(promotions):
            values = [one for one in VALUES[old] if new != "TIMESTAMP_NS" or one in _NANO_DAYS]
            duck.sql(f"CREATE TABLE t{number} (id BIGINT, c {old})")
            duck.sql(f"ALTER TABLE t{number} SET PARTITIONED BY (id, c)")
            rows = ", ".join(f"({place}, '{one}')" for place, one in enumerate([*values, values[0]]))
            duck.sql(f"INSERT INTO t{number} SELECT id, c::{old} FROM (VALUES {rows}, (99, NULL)) r(id, c)")
            duck.sql(f"ALTER TABLE t{number} ALTER c SET DATA TYPE {new}")
        read_by_duckdb = [duck.sql(f"SELECT id, c::VARCHAR FROM t{one}") for one in range(len(promotions))]
    lost = []
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for number, (old, new) in enumerate(promotions):
            rows = lake.read_arrow(f"t{number}")
            with duckdb.connect() as plain:
                plain.register("arrow", rows)
                plain.execute("CREATE TABLE rows AS FROM arrow")  # filters on Arrow itself know NaN otherwise
                ours = plain.execute("SELECT id, c::VARCHAR FROM rows").fetchall()
                assert sorted(ours) == sorted(read_by_duckdb[number]), (old, new)
                table = Promoted(lake, f"t{number}", rows, plain)
                lost += [(old, new, problem) for problem in problems(table)]
    assert lost == []


def problems(table: Promoted):
    snapshot = table.lake.table_snapshot(table.name)
    types = {column.id: column.type for column in snapshot.schema.columns}
    spec = snapshot.partition_spec
    specs = {spec.id: spec}
    column = snapshot.schema.find("c")
    files = table.lake.scan(table.name).files
    values = list(values_of(table.rows["c"], column.type))
    for place, value in enumerate(values):
        if value is None:
            continue
        one = table.rows["id"][place].as_py()
        for operator, sign in OPERATORS.items():
            wanted = table.ids_where(f"c {sign} (SELECT c FROM rows WHERE id = {one})")
            condition = Comparison(column.id, operator, value)
            kept = {id_of(file) for file in files if file_may_match(condition, file, types, specs)}
            covered = {id_of(file) for file in files if all_match(condition, file, types, specs)}
            if wanted - kept:
                yield f"pruned: c {sign} {value}: {wanted - kept}"
            if covered - wanted:
                yield f"taken for covered: c {sign} {value}: {covered - wanted}"
        yield from of_partition(table, files, column, types, specs, value, one)
    yield from of_bounds(table)


def of_partition(table: Promoted, files, column, types, specs, value, one):
    field = PartitionField(column.id, Transform(TransformKind.IDENTITY))
    wanted = partition_value(field.transform, column.type, value)
    replaced = Partitions((field,), frozenset({(wanted,)}), types, specs, {}).replaced(files)
    equal = table.ids_where(f"c = (SELECT c FROM rows WHERE id = {one})")
    whole, partly = ({id_of(file) for file in found} for found in (replaced.whole, replaced.partly))
    if whole - equal:
        yield f"replaced: {value}: {whole - equal}"
    if equal - whole - partly:
        yield f"left beside: {value}: {equal - whole - partly}"


def of_bounds(table: Promoted):
    bounds = table.lake.column_bounds(table.name, "c")
    if bounds is None:
        return
    table.plain.register("bounds", pa.table({"low": pa.array([bounds.min]), "high": pa.array([bounds.max])}))
    same = "SELECT (SELECT min(c) = any_value(low) AND max(c) = any_value(high) FROM rows, bounds)"
    if table.plain.execute(same).fetchone() != (True,):
        yield f"bounds {bounds}"


def test_filters_judged_by_the_database_lose_no_row_either(catalog):
    with open_lake(catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (f FLOAT, d DATE, i INTEGER, n DECIMAL(9,2))")
        duck.sql("INSERT INTO t SELECT 0.1::FLOAT, '2024-02-29', 7, 0.5 FROM range(100)")
        for name, type_ in (("f", "DOUBLE"), ("d", "TIMESTAMP"), ("i", "BIGINT"), ("n", "DECIMAL(18,4)")):
            duck.sql(f"ALTER TABLE t ALTER {name} SET DATA TYPE {type_}")
    conditions = ("f > 0.1", "f < 0.11", "d = '2024-02-29'", "d < TIMESTAMP '2024-02-29 00:00:01'", "i = 7")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for where in (*conditions, "n = 0.5", "n >= 0.5 AND f > 0.1 AND d >= '2024-02-29'"):
            assert lake.read_arrow("t", filter=where).num_rows == 100, where
        assert alone(lake).delete_rows("t", conditions[0]) == 100


RETYPED = (
    "CREATE TABLE t (v FLOAT, d DATE, s STRUCT(v FLOAT), i INTEGER)",
    "INSERT INTO t SELECT 0.1::FLOAT, '2024-02-29', {'v': 0.1::FLOAT}, 7 FROM range(100)",
    "ALTER TABLE t ALTER v SET DATA TYPE DOUBLE",
    "ALTER TABLE t ALTER d SET DATA TYPE TIMESTAMP",
    "ALTER TABLE t ALTER s SET DATA TYPE STRUCT(v DOUBLE)",
    "ALTER TABLE t ALTER i SET DATA TYPE BIGINT",
)


def bounded_columns(catalog) -> list[str]:
    """Return the columns of which the table has bounds."""
    engine = create_engine(catalog.sqlalchemy_url)
    columns = (
        "SELECT column_name FROM ducklake_column JOIN ducklake_table_column_stats "
        "USING (table_id, column_id) WHERE end_snapshot IS NULL ORDER BY column_id"
    )
    with engine.begin() as connection:
        names = list(connection.execute(text(columns)).scalars())
    engine.dispose()
    return names


@pytest.mark.parametrize("count", [1, 50], ids=["inlined", "file"])
def test_a_commit_keeps_no_table_bounds_of_the_type_before(catalog, count):
    by_duckdb(catalog, *RETYPED)
    rows = pa.table(
        {
            "v": [0.05] * count,
            "d": pa.array([0] * count, pa.timestamp("us")),
            "s": [{"v": 0.05}] * count,
            "i": range(count),
        }
    )
    assert bounded_columns(catalog) == ["v", "d", "v", "i"]
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows)

    assert bounded_columns(catalog) == ["i"]


@pytest.mark.parametrize("limit", [0, 10], ids=["files", "inlined"])
def test_infinite_dates_are_infinite_times(sqlite_catalog, limit):
    """Both those from before the promotion and those that are appended to times."""
    days = pa.array([2**31 - 1, 19_000, 1 - 2**31, None], pa.int32()).cast(pa.date32())
    with open_lake(sqlite_catalog, data_inlining_row_limit=limit) as duck:
        duck.sql("CREATE TABLE t (x DATE)")
        duck.sql("INSERT INTO t VALUES ('infinity'), ('2022-01-08'), ('-infinity'), (NULL)")
        duck.sql("ALTER TABLE t ALTER x SET DATA TYPE TIMESTAMP")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", pa.table({"x": days}))
        ours = lake.read_arrow("t")["x"].cast(pa.int64()).to_pylist()
        lake.flush_inlined_data("t")
        assert lake.verify() == []

    assert ours == [2**63 - 1, 19_000 * 86_400 * 10**6, 1 - 2**63, None] * 2
    with open_lake(sqlite_catalog) as duck:
        infinite = "count(*) FILTER (x = 'infinity'), count(*) FILTER (x = '-infinity')"
        assert duck.sql(f"SELECT {infinite}, count(x) FROM t") == [(2, 2, 6)]


# Bounds of a table's column that are NULL over rows with values, as DuckDB 2.0 leaves them, are unknown.


MADE = (
    "CREATE TABLE t (i BIGINT, s STRUCT(x VARCHAR, y DOUBLE))",
    "INSERT INTO t SELECT range, {'x': 'v' || range, 'y': range} FROM range(1000, 1200)",
    "CREATE TABLE small (i BIGINT, s STRUCT(x VARCHAR, y DOUBLE))",
    "INSERT INTO small VALUES (1100, {'x': 'v1100', 'y': 1100})",
)
TABLES = ("t", "small")  # of rows in a file, and in the catalog


def forget_bounds(catalog: CatalogDatabase) -> None:
    """Have table bounds as DuckDB 2.0 does after a delete that drops a whole data file."""
    engine = create_engine(catalog.sqlalchemy_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL"))
    engine.dispose()


def rows(first: int, count: int) -> pa.Table:
    values = range(first, first + count)
    return pa.table({"i": values, "s": [{"x": f"v{one}", "y": float(one)} for one in values]})


def no_values(_first: int, count: int) -> pa.Table:
    nothing = pa.struct([("x", pa.string()), ("y", pa.float64())])
    return pa.table({"i": pa.nulls(count, pa.int64()), "s": pa.nulls(count, nothing)})


def insert_by_duckdb(duck: DuckLakeConnection, _lake: Lake, table: str) -> None:
    duck.sql(f"INSERT INTO {table} SELECT range, {{'x': 'v' || range, 'y': range}} FROM range(5, 10)")


def append_rows(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    lake.append_arrow(table, rows(5, 5))


def append_file(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    lake.append_arrow(table, rows(5, 50))


def append_nulls_first(duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    lake.append_arrow(table, no_values(0, 5))
    append_rows(duck, lake, table)


def delete_and_restore(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    before = lake.current_snapshot().id
    alone(lake).delete_rows(table, "i <= 1100")
    lake.restore(table, at=before)


def flush(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    append_rows(_duck, lake, table)
    lake.flush_inlined_data(table)


def find(duck: DuckLakeConnection, table: str) -> list[tuple]:
    conditions = ("i = 1100", "s.x = 'v1100'", "s.y >= 1100 AND s.y < 1101")
    return [duck.sql(f"SELECT count(*) FROM {table} WHERE {one}")[0] for one in conditions]


Verb = Callable[[DuckLakeConnection, Lake, str], None]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("verb", [append_rows, append_file, append_nulls_first, delete_and_restore, flush])
def test_no_commit_of_ours_narrows_them(catalog, verb: Verb, table):
    by_duckdb(catalog, *MADE)
    forget_bounds(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        with open_lake(catalog) as duck:
            verb(duck, lake, table)
        assert lake.read_arrow(table, filter="i = 1100").num_rows == 1
        bounds = lake.column_bounds(table, "i")
        assert bounds is None or bounds.max.as_py() >= 1100
        with open_lake(catalog) as duck:
            insert_by_duckdb(duck, lake, table)  # which widens what it finds
        with open_lake(catalog) as duck:
            assert find(duck, table) == [(1,)] * 3


def test_verify_names_them_and_repair_mends_them(catalog):
    by_duckdb(catalog, *MADE)
    forget_bounds(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        findings = lake.verify()
        assert {one.code for one in findings} == {FindingCode.TABLE_STATS_NARROW}
        assert len({(one.objects["table_id"], one.objects["column_id"]) for one in findings}) == 6
        assert all("bounds are NULL" in one.sentence for one in findings)

        assert lake.repair(findings).left == ()

        assert not lake.verify()
    with open_lake(catalog) as duck:
        for table in TABLES:
            insert_by_duckdb(duck, lake, table)
    with open_lake(catalog) as duck:
        assert [find(duck, table) for table in TABLES] == [[(1,)] * 3] * 2
