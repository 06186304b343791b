"""Inlined rows of every type: tables, cells and statistics as the reference has them."""

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import select
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.dialects.duckdb import DuckDbDialect
from airflow_provider_ducklake.lake.catalog.dialects.mysql import MySqlDialect
from airflow_provider_ducklake.lake.catalog.dialects.postgres import PostgresDialect
from airflow_provider_ducklake.lake.catalog.dialects.sqlite import SqliteDialect
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    cell_key,
    inlined_delete_table,
    inlined_table,
    why_not_inlined,
)
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.names.identifiers import KEYWORDS
from airflow_provider_ducklake.lake.format.versions import DEFAULT, write_version
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import values_of
from airflow_provider_ducklake.lake.storage.rows.inlined_values import cells, inlined_stats, rows_of
from tests.interop.inlined_lake import (
    LEGACY,
    NAMES,
    NESTED,
    VALUES,
    database,
    inlined,
    schema,
    shown,
    type_of,
    write_all,
)
from tests.interop.lakes import by_duckdb
from tests.interop.reference_table import schema_of
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.duckdb_lake import open_lake

QUOTED = "SELECT keyword_name FROM duckdb_keywords()"
FORMS = {"sqlite": SqliteDialect.inlined_form, "postgres": PostgresDialect.inlined_form}
# The reference stores an SQL expression for a struct, and cannot read it or misreads it.
MISREAD = {"struct of struct", "struct of texts", "struct with names", "struct of all"}
# ... quotes nothing where its reader will need it, and reads no list of JSON from text.
UNREADABLE = {"list of texts", "list of list of texts", "list of struct of texts", "map of texts"}


def test_the_tables_are_the_reference_s(catalog, reference_catalog):
    types = {type_ for type_, _ in VALUES.values()} | set(LEGACY.values())
    columns = {f'c "{number}" %(x)s': type_ for number, type_ in enumerate(sorted(types))}
    columns |= dict.fromkeys(("Value", "Value2", "camelCase", "ORDER", "_A", "A$", "1A", "user"), "INTEGER")
    listed = ", ".join('"' + name.replace('"', '""') + f'" {type_}' for name, type_ in columns.items())
    with open_lake(reference_catalog) as lake:
        lake.sql(f"CREATE TABLE t ({listed})")
        lake.sql("CREATE TABLE d AS FROM range(20)")
        lake.sql("DELETE FROM d WHERE range = 1")

    ours = inlined_table(schema_of(**columns), 1, 1, catalog_tables(DEFAULT))
    with database(catalog) as connection:
        connection.execute(CreateTable(ours))
        connection.execute(CreateTable(inlined_delete_table(2, None)))

    made = dump_schema(reference_catalog)
    assert dump_schema(catalog) == {
        name: made[name] for name in ("ducklake_inlined_data_1_1", "ducklake_inlined_delete_2")
    }


@pytest.fixture
def twins(catalog, reference_catalog):
    """Two lakes of the reference with the same values: inlined in one, in files in the other."""
    with open_lake(catalog, data_inlining_row_limit=100) as lake:
        write_all(lake)
    with open_lake(reference_catalog, data_inlining_row_limit=0) as lake:
        write_all(lake)
    return catalog, reference_catalog


def _read_all(catalog) -> dict[str, pa.Table]:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return {name: lake.read_arrow(table) for name, table in NAMES.items()}


def _values(name: str, rows: pa.Table) -> object:
    return shown(list(values_of(rows.column("c"), type_of(name))))


def test_every_type_is_read_inlined_as_from_a_file(twins):
    from_catalog, from_files = (_read_all(catalog) for catalog in twins)

    for name in NAMES:
        assert _values(name, from_catalog[name]) == _values(name, from_files[name]), name
        assert from_catalog[name].schema.equals(from_files[name].schema, check_metadata=True), name


def test_our_cells_are_the_reference_s_and_it_reads_them(twins, catalog_kind):
    catalog, in_files = twins
    different = set()
    with database(catalog) as connection:
        for name in set(NAMES) - {"list of json"}:
            table = inlined(name)
            stored = [dict(row) for row in connection.execute(select(table)).mappings()]
            rows = rows_of(stored, schema(name))
            system = ("row_id", "begin_snapshot", "end_snapshot")
            ours = [
                {cell_key(key): value for key, value in cell.items()} | {key: one[key] for key in system}
                for one, cell in zip(stored, cells(rows, schema(name), FORMS[catalog_kind]), strict=True)
            ]
            connection.execute(table.delete())
            connection.execute(table.insert(), ours)
            if shown([dict(row) for row in connection.execute(select(table)).mappings()]) != shown(stored):
                different.add(name)

    with open_lake(catalog) as ours_read, open_lake(in_files) as theirs:
        for name in set(NAMES) - {"list of json"}:
            query = f"SELECT c::VARCHAR FROM {NAMES[name]}"
            assert ours_read.sql(query) == theirs.sql(query), name
    assert different <= MISREAD | UNREADABLE
    assert different > {"struct of texts", "struct of all"}


def test_statistics_are_the_reference_s_where_it_is_right(twins):
    rows = _read_all(twins[0])
    theirs: dict[str, dict[int, tuple]] = {name: {} for name in NAMES}
    ids = list(NAMES)
    for row in dump_catalog_stats(twins[0]):
        theirs[ids[row["table_id"] - 1]][row["column_id"]] = (
            bool(row["contains_null"]),
            row["min_value"],
            row["max_value"],
        )

    for name in NAMES:
        ours = inlined_stats(rows[name], schema(name))
        leaves = {leaf.id: str(leaf.type) for leaf in schema(name).leaves()}
        for column_id, stats in ours.items():
            known = theirs[name][column_id]
            if stats is None:
                assert None in known or name == "blob all FF", name
                continue
            assert stats.contains_null == known[0], name
            if leaves[column_id] == "blob" or "nan" in known:
                continue
            if leaves[column_id] != "float32":  # the reference does not always find the shortest text
                assert (stats.min_value, stats.max_value) == known[1:], name


def dump_catalog_stats(catalog) -> list[dict]:
    """Return the statistics; a whole dump would need a time of 24:00:00 in Python."""
    with database(catalog) as connection:
        return [
            dict(row)
            for row in connection.exec_driver_sql("SELECT * FROM ducklake_table_column_stats").mappings()
        ]


def test_bounds_leave_nan_out():
    one = schema_of(d="float64", b="blob", f="boolean", l="float64[]")
    rows = rows_of(
        [
            {"d": "nan", "b": b"\xff", "f": 1, "l": "[nan]"},
            {"d": "-0.5", "b": b"a", "f": 0, "l": "[]"},
            {"d": None, "b": b"", "f": None, "l": None},
        ],
        one,
    )

    found = inlined_stats(rows, one)

    texts = {
        key: stats and (stats.contains_null, stats.contains_nan, stats.min_value, stats.max_value)
        for key, stats in found.items()
    }
    assert texts == {
        1: (True, True, "-0.5", "-0.5"),
        2: (False, None, "", "FF"),
        3: (True, None, "false", "true"),
        5: (False, True, None, None),
    }


def test_a_text_that_no_bound_covers_has_no_statistics():
    one = schema_of(s="varchar")

    assert inlined_stats(rows_of([{"s": "a\0"}], one), one) == {1: None}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"Row_Id": "int64"}, "system column"),
        ({"_ducklake_internal_row_id": "int64"}, "system column"),
        ({"g": "geometry"}, "geometry"),
        ({"s": "struct(g geometry[])"}, "geometry"),
        ({"v": "variant"}, "variant"),
    ],
)
def test_what_no_catalog_holds_inlined(columns, reason):
    for form in FORMS.values():
        assert reason in (why_not_inlined(schema_of(**columns), form, write_version(DEFAULT)) or "")


def test_names_are_limited_by_postgresql_as_the_reference_has_it(catalog, catalog_kind):
    names = {"a": "x" * 63, "b": "x" * 64, "c": "é" * 31, "d": "é" * 32}
    by_duckdb(catalog, *(f'CREATE TABLE {table} ("{name}" INTEGER)' for table, name in names.items()))

    made = {row["table_id"] for row in dump_catalog(catalog)["ducklake_inlined_data_tables"]}

    fit = [
        why_not_inlined(schema_of(**{name: "int32"}), FORMS[catalog_kind], write_version(DEFAULT)) is None
        for name in names.values()
    ]
    assert [number in made for number in range(1, 5)] == fit


def test_words_that_the_reference_quotes_are_known():
    with duckdb.connect() as connection:
        assert {word for (word,) in connection.execute(QUOTED).fetchall()} == KEYWORDS


@pytest.mark.parametrize("dialect", [MySqlDialect, DuckDbDialect])
def test_nothing_is_inlined_in_other_databases(dialect):
    assert why_not_inlined(schema_of(i="int32"), dialect.inlined_form, write_version(DEFAULT)) is not None


@pytest.mark.parametrize(
    ("type_", "kind", "array"),
    [
        ("json[]", "sqlite", pa.array([["1"]])),
        ("varchar[]", "postgres", pa.array([["a\0b"]])),
        ("timestamp", "sqlite", pa.array([-(2**63) + 5]).cast(pa.timestamp("us"))),
        ("timestamp_ns[]", "sqlite", pa.array([[-(2**63) + 5]]).cast(pa.list_(pa.timestamp("ns")))),
        ("time_ns", "sqlite", pa.array([None], pa.time64("ns"))),
    ],
)
def test_rows_that_the_reference_could_not_read_are_refused(type_, kind, array):
    one = schema_of(c=type_)

    with pytest.raises(UnsupportedFeatureError, match="cannot be inlined"):
        cells(pa.table({"c": array}), one, FORMS[kind])


def test_a_nul_in_a_nested_text_fits_sqlite():
    one = schema_of(c="varchar[]")

    assert cells(pa.table({"c": [["a\0b"]]}), one, FORMS["sqlite"]) == [{"c": "[a\0b]"}]


def test_all_nested_values_are_in_the_matrix():
    assert set(NESTED) < set(NAMES)
