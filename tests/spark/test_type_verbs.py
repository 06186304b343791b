"""What each verb does with columns of each type: it works as the reference reads it, or says why not.

The table of docs/types.md says the same.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidValueError, SchemaMismatchError
from airflow_provider_ducklake.lake.format.types.ducklake_types import SCALARS, Exact
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.comparison import difference, tables_of
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
# tests/spark/test_lakes_of_1_1.py has those of 1.1; the reference writes no files of time_ns
ELSEWHERE = {name for name, row in SCALARS.items() if row.since} | {"time_ns", "unknown"}
NEVER_INLINED = {"geometry", "variant"}
# DuckDB's spelling and two values of each type; a NULL is added
TYPES = {
    "boolean": ("BOOLEAN", "true", "false"),
    "int8": ("TINYINT", "-128", "127"),
    "int16": ("SMALLINT", "-32768", "1"),
    "int32": ("INTEGER", "-2147483648", "1"),
    "int64": ("BIGINT", "-9223372036854775808", "1"),
    "int128": ("HUGEINT", "-7", "1267650600228229401496703205376"),
    "uint8": ("UTINYINT", "0", "255"),
    "uint16": ("USMALLINT", "0", "65535"),
    "uint32": ("UINTEGER", "0", "4294967295"),
    "uint64": ("UBIGINT", "0", "18446744073709551615"),
    "uint128": ("UHUGEINT", "0", "1267650600228229401496703205376"),
    "float32": ("FLOAT", "1.1", "-2.5"),
    "float64": ("DOUBLE", "1.1", "'-inf'"),
    "decimal(9,2)": ("DECIMAL(9,2)", "-1.5", "1234567.89"),
    "varchar": ("VARCHAR", "'a'", "'é'"),
    "json": ("JSON", """'{"a": [1, null]}'""", "'7'"),
    "blob": ("BLOB", r"'\x00\xFF'", "'ab'"),
    "uuid": ("UUID", "'00000000-0000-0000-0000-0000000000ff'", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    "date": ("DATE", "'1500-01-01'", "'2024-02-29'"),
    "time": ("TIME", "'00:00:00'", "'12:34:56.789'"),
    "timetz": ("TIMETZ", "'00:00:00+00'", "'12:34:56.789+00'"),
    "timestamp": ("TIMESTAMP", "'1500-01-01 00:00:00.000001'", "'2024-03-10 02:30:00'"),
    "timestamp_s": ("TIMESTAMP_S", "'1969-12-31 23:59:59'", "'2024-03-10 02:30:00'"),
    "timestamp_ms": ("TIMESTAMP_MS", "'1969-12-31 23:59:59.123'", "'2024-03-10 02:30:00'"),
    "timestamp_ns": ("TIMESTAMP_NS", "'1969-12-31 23:59:59.123456789'", "'2024-03-10 02:30:00'"),
    "timestamptz": ("TIMESTAMPTZ", "'1969-12-31 23:59:59.123456+00'", "'2024-03-10 02:30:00+00'"),
    "interval": ("INTERVAL", "INTERVAL '1 month 2 days 3 seconds'", "INTERVAL '5 days'"),
    "variant": ("VARIANT", "{'a': 1, 'b': 'x'}::VARIANT", "'text'::VARIANT"),
    "geometry": ("GEOMETRY", "'POINT (1 2)'", "'LINESTRING (0 0, 1 1)'"),
    "int32[]": ("INTEGER[]", "[1, NULL]", "[]"),
    "struct(a int32, b varchar)": (
        "STRUCT(a INTEGER, b VARCHAR)",
        "{'a': 1, 'b': 'x'}",
        "{'a': NULL, 'b': ''}",
    ),
    "map(varchar, int64)": ("MAP(VARCHAR, BIGINT)", "MAP {'a': 1}", "MAP {}"),
}


@dataclass(frozen=True)
class Given:
    """A table ``t (id, v0, v1, …)`` of ids 1 to 3, in files; the last values are NULL."""

    names: tuple[str, ...]  # of the columns' types
    catalog: CatalogDatabase
    lake: Lake
    session: LakeSession
    folder: Path

    @property
    def columns(self) -> str:
        return ", ".join(f"v{number}" for number in range(len(self.names)))

    def theirs(self, table: str = "t") -> list[tuple[object, ...]]:
        values = ", ".join(f"v{number}::VARCHAR" for number in range(len(self.names)))
        return by_duckdb(self.catalog, f"SELECT id, [{values}]::VARCHAR FROM {table} ORDER BY id, 2")

    def check(self, ids: dict[int, int], table: str = "t") -> None:
        """Check that the reference reads so many rows of each id, the values those of the three rows."""
        values = dict(self.theirs("given"))
        wanted = sorted((id_, values[(id_ - 1) % 3 + 1]) for id_, count in ids.items() for _ in range(count))
        assert sorted(self.theirs(table)) == wanted

    def check_reads(self) -> None:
        with open_lake(self.catalog) as reference:
            *_, (version, tables) = tables_of(reference)
        (name,) = (one for one in tables if one.name == "t")
        assert difference(self.lake, name, version, tables[name], with_bounds=False) is None


Verb = Callable[[Given], None]


def read_arrow(given: Given) -> None:
    given.check_reads()


def read_spark(given: Given) -> None:
    assert len(given.session.read("t").collect()) == 3
    where = " AND ".join(f"v{number} IS NULL" for number in range(len(given.names)))
    assert given.session.read("t", filter=where).select("id").collect() == [(3,)]


def spark_insert(given: Given) -> None:
    given.session.sql(f"INSERT INTO t SELECT id + 3, {given.columns} FROM t")
    given.check({**dict.fromkeys(range(1, 7), 1)})


def append_arrow(given: Given) -> None:
    given.lake.append_arrow("t", given.lake.read_arrow("t"))
    given.check(dict.fromkeys((1, 2, 3), 2))


def update(given: Given) -> None:
    given.session.update("t", {"id": "id + 3"}, "id < 3")
    given.check({4: 1, 5: 1, 3: 1})


def merge(given: Given) -> None:
    given.session.merge(
        "t",
        sql=f"SELECT id + 2 AS id, {given.columns} FROM t",
        sources={"t": given.session.read("t")},
        on=["id"],
        update_all=True,
        insert_all=True,
    )
    values = dict(given.theirs("given"))
    assert dict(given.theirs()) == {1: values[1], 2: values[2], 3: values[1], 4: values[2], 5: values[3]}


def compaction(given: Given) -> None:
    by_duckdb(given.catalog, "DELETE FROM t WHERE id = 2", data_inlining_row_limit=0)
    given.session.rewrite_data_files("t", delete_threshold=0)
    assert all(file.delete_file is None for file in given.lake.table_snapshot("t", with_files=True).files)
    given.check({1: 1, 3: 1})


def flush(given: Given) -> None:
    with open_lake(given.catalog, data_inlining_row_limit=10) as reference:
        reference.sql(f"INSERT INTO t SELECT id + 3, {given.columns} FROM given")
    flushed = given.lake.flush_inlined_data("t")
    assert sum(one.row_count for one in flushed) == (0 if NEVER_INLINED & {*given.names} else 3)
    given.check(dict.fromkeys(range(1, 7), 1))


def restore(given: Given) -> None:
    then = given.lake.current_snapshot().id
    with open_lake(given.catalog, data_inlining_row_limit=0) as reference:
        reference.sql("DELETE FROM t WHERE id = 2")
        reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
    given.lake.restore("t", at=then)
    given.check({1: 1, 2: 1, 3: 1})


def add_files(given: Given) -> None:
    (file,) = given.lake.table_snapshot("t", with_files=True).files
    copy = shutil.copy(file.path, given.folder / "copy.parquet")
    alone(given.lake).add_data_files("t", [str(copy)])
    given.check(dict.fromkeys((1, 2, 3), 2))


def filter_(given: Given) -> None:
    for number, name in enumerate(given.names):
        assert given.lake.read_arrow("t", filter=f"v{number} IS NOT NULL").num_rows == 2
        literal = re.sub(r"^INTERVAL ", "", TYPES[name][1])
        assert given.lake.read_arrow("t", filter=f"v{number} = {literal}")["id"].to_pylist() == [1]


VERBS: dict[str, Verb] = {
    "read": read_arrow,
    "Spark read": read_spark,
    "Spark insert": spark_insert,
    "`append_arrow`": append_arrow,
    "update": update,
    "merge": merge,
    "compaction": compaction,
    "flush": flush,
    "restore": restore,
    "`add_files`": add_files,
    "filter by value": filter_,
}


def cells() -> dict[tuple[str, str], str]:
    """Return the table of the page by type and verb."""
    header, _, *rows = PAGE.split("## What each verb does with them", 1)[1].split("\n\n")[2].splitlines()
    verbs = [cell.strip() for cell in header.strip("|").split("|")][1:]
    found = {}
    for row in rows:
        name, *marks = (cell.strip() for cell in row.strip("|").split("|"))
        found.update({(name.strip("`"), verb): mark for verb, mark in zip(verbs, marks, strict=True)})
    return found


@contextmanager
def made(names: tuple[str, ...], catalog: CatalogDatabase, spark: object, folder: Path) -> Iterator[Given]:
    types, ones, twos = zip(*(TYPES[name] for name in names), strict=True)
    definition = ", ".join(f"v{number} {type_}" for number, type_ in enumerate(types))
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        for table in ("given", "t"):
            reference.sql(f"CREATE TABLE {table} (id INT, {definition})")
        nulls = ", ".join(["NULL"] * len(names))
        reference.sql(
            f"INSERT INTO given VALUES (1, {', '.join(ones)}), (2, {', '.join(twos)}), (3, {nulls})"
        )
        reference.sql("INSERT INTO t FROM given")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield Given(names, catalog, lake, LakeSession(spark, lake), folder)


def test_the_table_has_every_type_and_verb():
    plain = {name for name in TYPES if name.isidentifier()}
    assert plain == SCALARS.keys() - ELSEWHERE
    assert cells().keys() == {(name, verb) for name in TYPES for verb in VERBS}


@pytest.mark.parametrize("verb", VERBS)
def test_all_types_that_the_table_says_work_do_so_side_by_side(sqlite_catalog, spark, tmp_path, verb):
    left_out = NEVER_INLINED if verb == "flush" else ()
    works = tuple(name for name in TYPES if cells()[name, verb] == "✓" and name not in left_out)

    with made(works, sqlite_catalog, spark, tmp_path) as given:
        VERBS[verb](given)


@pytest.mark.drawn(one_in=24)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", TYPES)
def test_the_table_says_what_works(new_catalog, spark, tmp_path, name, verb):
    with made((name,), new_catalog("sqlite"), spark, tmp_path) as given:
        if cells()[name, verb] == "✓":
            VERBS[verb](given)
            return
        before = given.theirs()
        with pytest.raises(DuckLakeError) as refused:
            VERBS[verb](given)
        assert name in str(refused.value) or "filters do not support" in str(refused.value)
        if verb not in ("compaction", "flush"):  # for which the reference changes rows first
            assert given.theirs() == before


COMPUTED = {"blob", "interval"} | NEVER_INLINED  # whose defaults here are expressions, or cannot be
FIRST = [name for name in TYPES if name.isidentifier() and name not in COMPUTED]


def test_defaults_of_every_type_fill_rows_that_lack_them(sqlite_catalog, spark, tmp_path):
    with made(tuple(FIRST), sqlite_catalog, spark, tmp_path) as given:
        with open_lake(sqlite_catalog) as reference:
            for number, name in enumerate(FIRST):
                literal = TYPES[name][1].replace("true", "'true'")  # else DuckDB makes an expression of it
                reference.sql(f"ALTER TABLE t ALTER v{number} SET DEFAULT {literal}")
        insert = [{"insert": {"id": "source.id"}}]
        given.session.merge("t", sql="SELECT 4 AS id", on=["id"], when_not_matched=insert)
        given.session.insert("t", sql="SELECT 7 AS id, 1 AS more", schema_evolution="add_columns")
        given.check(dict.fromkeys((1, 2, 3, 4, 7), 1))


@pytest.mark.drawn(one_in=8)
@pytest.mark.parametrize("name", [name for name in FIRST if SCALARS[name].exact_bounds is not Exact.NEVER])
def test_rows_of_a_value_are_overwritten_and_merged_in_its_order(sqlite_catalog, spark, tmp_path, name):
    with made((name,), sqlite_catalog, spark, tmp_path) as given:
        rows = {
            "sql": "SELECT id + 3 AS id, v0 FROM t WHERE id = 1",
            "sources": {"t": given.session.read("t")},
        }
        given.session.insert("t", mode="overwrite", overwrite_where=f"v0 = {TYPES[name][1]}", **rows)
        given.check({2: 1, 3: 1, 4: 1})
        given.session.rewrite_data_files("t", delete_threshold=0, zorder_by=["v0", "id"])
        assert not any(file.delete_file for file in given.lake.table_snapshot("t", with_files=True).files)
        given.check({2: 1, 3: 1, 4: 1})


@pytest.mark.parametrize("format_", ["csv", "json"])
@pytest.mark.parametrize("options", [{}, {"timestampNTZFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]"}])
def test_text_files_keep_what_a_type_has(sqlite_catalog, spark, tmp_path, format_, options):
    texts = {
        "timestamp_s": "2024-01-31 12:30:01",
        "timestamp_ms": "2024-01-31 12:30:01.123",
        "timestamp": "2024-01-31 12:30:01.123456",
        "timestamp_ns": "2024-01-31 12:30:01.123456" if options else "2024-01-31 12:30:01.123456789",
        "time": "12:30:01.123456",
        "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    }
    path = tmp_path / f"in.{format_}"
    if format_ == "csv":
        path.write_text(f"{','.join(texts)}\n{','.join(texts.values())}\n")
    else:
        path.write_text(json.dumps({**texts, "all": texts}))
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        columns = {name: name for name in texts}
        if format_ == "json":
            columns["all"] = f"struct({', '.join(f'{name} {name}' for name in texts)})"
        alone(lake).create_table("t", columns)
        LakeSession(spark, lake).insert("t", {"format": format_, "path": str(path), "options": options})
    with open_lake(sqlite_catalog) as reference:
        values = ", ".join(f"{name}::VARCHAR" for name in texts)
        assert reference.sql(f"SELECT {values} FROM t") == [tuple(texts.values())]
        if format_ == "json":
            nested = ", ".join(f'"all".{name}::VARCHAR' for name in texts)
            assert reference.sql(f"SELECT {nested} FROM t") == [tuple(texts.values())]


@pytest.mark.parametrize("limit", [0, 10])
def test_integers_longer_than_spark_has_are_an_error_that_names_their_column(sqlite_catalog, spark, limit):
    with open_lake(sqlite_catalog, data_inlining_row_limit=limit) as reference:
        reference.sql("CREATE TABLE t (id INT, v HUGEINT)")
        reference.sql(f"INSERT INTO t VALUES (1, {2**126 + 2**125})")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        with pytest.raises((DuckLakeError, PySparkException), match="Column v has type int128, and a value"):
            session.read("t").collect()
        assert session.read("t", columns=["id"]).collect() == [(1,)]


BEFORE = "named_struct('months', 0, 'days', 0, 'microseconds', -1000L)"
FINE = "named_struct('months', 1, 'days', 0, 'microseconds', 1L)"


def test_intervals_and_times_that_no_file_holds_are_refused_by_spark_s_tasks(sqlite_catalog, spark):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int32", "v": "interval", "z": "timetz"})
        session = LakeSession(spark, lake)
        for value, shown in {BEFORE: "-00:00:00.001", FINE: "1 month 00:00:00.000001"}.items():
            with pytest.raises(InvalidValueError, match=f"column v: 1 value .*'{shown}' in row 1 of"):
                session.sql(f"INSERT INTO t SELECT 1, {value}, '01:00:00+02'")
        for value in ("01:00:00", "25:00:00+00", "01:00:00+16"):
            with pytest.raises(
                DuckLakeError, match=rf"Column z: value {re.escape(value)} does not fit timetz"
            ):
                session.sql(f"INSERT INTO t SELECT 1, NULL, '{value}'")
        with pytest.raises(SchemaMismatchError, match="column v is interval in the table"):
            session.sql("INSERT INTO t SELECT 1, interval '1' month, NULL")
        assert lake.table_snapshot("t", with_files=True).files == ()


def test_spark_writes_into_partitions_of_intervals_and_zoned_times(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for name, type_ in {"v": "INTERVAL", "z": "TIMETZ"}.items():
            reference.sql(
                f"CREATE TABLE {name} (id INT, k {type_}); ALTER TABLE {name} SET PARTITIONED BY (k)"
            )
        reference.sql(
            "INSERT INTO v VALUES (1, INTERVAL '1 month 2 days'), (2, NULL), (3, INTERVAL '1 hour')"
        )
        reference.sql("INSERT INTO z VALUES (1, '10:00:00.5+00'), (2, NULL), (3, '00:00:00+00')")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        for name in ("v", "z"):
            session.sql(f"INSERT INTO {name} SELECT id + 3, k FROM {name}")
    with open_lake(sqlite_catalog) as reference:
        for name in ("v", "z"):
            rows = reference.sql(f"SELECT id, k::VARCHAR FROM {name} ORDER BY id")
            assert rows[3:] == [(id_ + 3, text) for id_, text in rows[:3]]
        values = reference.sql(
            "SELECT partition_value, count(*) FROM __ducklake_metadata_lake.ducklake_file_partition_value "
            "GROUP BY ALL ORDER BY ALL"
        )
    texts = ("00:00:00+00", "01:00:00", "1 month 2 days", "10:00:00.5+00")
    assert values == [*((text, 2) for text in texts), (None, 4)]
