"""No row is lost by what was written of its file before its column got a wider type.

The reference makes every promotion that it takes; bounds and partition values are those of the old type then.
"""

import random
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.partitioning import (
    PartitionField,
    Transform,
    TransformKind,
    partition_value,
)
from airflow_provider_ducklake.lake.planning.reading.predicates import Comparison, Operator
from airflow_provider_ducklake.lake.planning.reading.pruning import all_match, file_may_match
from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import values_of
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

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
