"""Inlined rows of every type: tables, cells and statistics as the reference has them."""

import math

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import select, text
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.dialects.duckdb import DuckDbDialect
from airflow_provider_ducklake.lake.catalog.dialects.mysql import MySqlDialect
from airflow_provider_ducklake.lake.catalog.dialects.postgres import PostgresDialect
from airflow_provider_ducklake.lake.catalog.dialects.sqlite import SqliteDialect
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_delete_marks, read_inlined
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    cell_key,
    inlined_delete_table,
    inlined_table,
    why_not_inlined,
)
from airflow_provider_ducklake.lake.errors import CatalogError, UnsupportedFeatureError
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
from tests.interop.lakes import alone, by_duckdb
from tests.interop.reference_table import schema_of
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

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


# Tables with inlined rows and deletes, written by the reference, are read by us at every snapshot.


HISTORIES = {
    "rename, add, drop, delete and update": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE t RENAME i TO j",
        "INSERT INTO t VALUES (3, 'c')",
        "ALTER TABLE t ADD COLUMN k INTEGER DEFAULT 7",
        "INSERT INTO t VALUES (4, 'd', 8)",
        "ALTER TABLE t DROP COLUMN s",
        "DELETE FROM t WHERE j = 2",
        "UPDATE t SET k = 9 WHERE j = 1",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE u RENAME TO t",
        "DELETE FROM t",
    ],
    "wider types": [
        "CREATE TABLE t (f FLOAT, b TINYINT, d DATE, n DECIMAL(4,2), u UINTEGER, s STRUCT(a INTEGER)[])",
        "INSERT INTO t VALUES (1.1, 1, '2020-01-01', 1.5, 4294967295, [{'a': 1}]), (NULL, 2, NULL, 0, 0, [])",
        "ALTER TABLE t ALTER f TYPE DOUBLE",
        "ALTER TABLE t ALTER b TYPE BIGINT",
        "ALTER TABLE t ALTER d TYPE TIMESTAMP",
        "ALTER TABLE t ALTER n TYPE DECIMAL(9,4)",
        "ALTER TABLE t ALTER u TYPE UBIGINT",
        "INSERT INTO t VALUES (0.1, 3, '2020-01-01 00:00:01', 1.2345, 18446744073709551615, NULL)",
    ],
    "fields of a struct": [
        "CREATE TABLE t (s STRUCT(a INTEGER, b VARCHAR))",
        "INSERT INTO t VALUES ({'a': 1, 'b': 'x'}), (NULL), ({'a': NULL, 'b': ''})",
        "ALTER TABLE t RENAME s.a TO z",
        "ALTER TABLE t ADD COLUMN s.n INTEGER",
        "INSERT INTO t VALUES ({'z': 2, 'b': 'y', 'n': 3})",
        "ALTER TABLE t DROP COLUMN s.b",
    ],
    "names that trade places": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t RENAME i TO x",
        "ALTER TABLE t RENAME s TO i",
        "ALTER TABLE t RENAME x TO s",
        "INSERT INTO t VALUES (2, 'b')",
    ],
    "a name used again": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t DROP COLUMN s",
        "ALTER TABLE t ADD COLUMN s VARCHAR DEFAULT 'new'",
        "INSERT INTO t VALUES (2, 'b')",
    ],
    "odd names": [
        'CREATE TABLE t ("A b" INTEGER, "%(x)s" VARCHAR, "q""q" VARCHAR, "ä:b" INTEGER, "Value" INTEGER)',
        "INSERT INTO t VALUES (1, 'a', 'b', 2, 3)",
        'ALTER TABLE t RENAME "A b" TO "C"',
        'UPDATE t SET "C" = 3, "%(x)s" = \'c\'',
    ],
    "inlined deletes of rows in files": [
        "CREATE TABLE t (i INTEGER)",
        "INSERT INTO t SELECT range::INTEGER FROM range(20)",
        "DELETE FROM t WHERE i IN (0, 3, 4)",
        "INSERT INTO t SELECT 100 + range::INTEGER FROM range(20)",
        "DELETE FROM t WHERE i IN (7, 119)",
        "INSERT INTO t VALUES (200)",
        "UPDATE t SET i = i + 1000 WHERE i IN (5, 105, 200)",
        "ALTER TABLE t ADD COLUMN z INTEGER DEFAULT 5",
        "DELETE FROM t WHERE i = 9",
    ],
    "several changes in one transaction": [
        "CREATE TABLE t (i INTEGER)",
        "BEGIN; INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN z INTEGER",
        "INSERT INTO t VALUES (2, 3); COMMIT",
        "BEGIN; UPDATE t SET i = 5 WHERE i = 1; DELETE FROM t WHERE i = 2",
        "INSERT INTO t VALUES (6, 7); COMMIT",
    ],
    "an expiry": [
        "CREATE TABLE t (i INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t RENAME i TO j",
        "ALTER TABLE t DROP COLUMN s",
        "INSERT INTO t VALUES (2)",
        "CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3])",
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_every_snapshot_is_read_as_the_reference_reads_it(catalog, history):
    with open_lake(catalog) as reference:
        for statement in history:
            reference.sql(statement)
        versions = [version for (version,) in reference.sql("SELECT snapshot_id FROM snapshots()")]
        theirs = {version: _at(reference, version) for version in versions if _exists(reference, version)}

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        ours = {version: _rows(lake.read_arrow("t", at=version)) for version in theirs}

    assert ours == theirs
    assert len(theirs) > 1


def _exists(reference: DuckLakeConnection, version: int) -> bool:
    names = reference.sql(
        f"SELECT table_name FROM __ducklake_metadata_lake.ducklake_table WHERE begin_snapshot <= {version}"
        f" AND (end_snapshot IS NULL OR end_snapshot > {version})"
    )
    return ("t",) in names


def _at(reference: DuckLakeConnection, version: int) -> list[object]:
    return _rows(reference.arrow(f"SELECT * FROM t AT (VERSION => {version})"))


def _rows(table: pa.Table) -> list[object]:
    return sorted((shown(list(row.items())) for row in table.to_pylist()), key=repr)


def test_row_ids_and_marks_are_those_of_the_reference(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT range AS i FROM range(20)")
        reference.sql("DELETE FROM t WHERE i IN (4, 2)")
        reference.sql("INSERT INTO t VALUES (50), (51)")
        reference.sql("UPDATE t SET i = 70 WHERE i = 7")
        theirs = {(i, row_id) for i, row_id in reference.sql("SELECT i, rowid FROM t") if i > 20}

    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.opened.reading() as connection:
        table = lake.table_snapshot("t", with_files=True)
        parts = read_inlined(connection, lake.opened.catalog, table)
        now = inlined_delete_marks(connection, lake.opened.catalog, table.table_id, table.snapshot.id)
        before = inlined_delete_marks(connection, lake.opened.catalog, table.table_id, 2)

    assert {
        (row["i"], row_id) for part in parts for row, row_id in zip(part.rows, part.row_ids, strict=True)
    } == theirs
    (positions,) = now.values()
    assert positions == [2, 4, 7]
    assert list(before.values()) == [[2, 4]]


def test_some_columns_are_read_in_the_order_asked_for(catalog):
    by_duckdb(catalog, "CREATE TABLE t (a HUGEINT, b INTEGER, c VARCHAR)", "INSERT INTO t VALUES (1, 2, 'x')")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t", columns=["C", "b"]).to_pylist() == [{"c": "x", "b": 2}]


def test_rows_that_duckdb_inlines_into_our_table_are_read(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64", "l": "uuid[]"})
        alone(lake).append_arrow("t", pa.table({"i": [1, 2], "l": pa.nulls(2, pa.list_(pa.uuid()))}))
        with open_lake(catalog) as reference:
            reference.sql("INSERT INTO t VALUES (3, [uuid()])")
            reference.sql("DELETE FROM t WHERE i = 1")
            theirs = reference.sql("SELECT i, l FROM t ORDER BY i")

        assert sorted(lake.read_arrow("t").to_pylist(), key=lambda row: row["i"]) == [
            {"i": i, "l": uuids} for i, uuids in theirs
        ]
        assert lake.read_arrow("t", at=2).num_rows == 2


def test_columns_that_the_catalog_does_not_know_are_not_guessed(catalog):
    by_duckdb(catalog, "CREATE TABLE t (i INTEGER)", "INSERT INTO t VALUES (1)")
    with database(catalog) as connection:
        connection.execute(text("UPDATE ducklake_column SET column_name = 'J'"))

    with (
        Lake.connect(catalog.sqlalchemy_url) as lake,
        pytest.raises(CatalogError, match=r"row_id, begin_snapshot, end_snapshot, i, but"),
    ):
        lake.read_arrow("t")


def test_a_registration_without_its_table_is_passed_over(catalog):
    by_duckdb(catalog, "CREATE TABLE t AS SELECT range AS i FROM range(20)")
    with database(catalog) as connection:
        connection.execute(text("DROP TABLE ducklake_inlined_data_1_1"))

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 20


def test_rows_inlined_in_mariadb_are_refused(mariadb_catalog):
    catalog = mariadb_catalog
    by_duckdb(catalog, "CREATE TABLE t (i INTEGER)", "INSERT INTO t VALUES (1)")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError, match=r"main\.t at snapshot 2"):
            lake.read_arrow("t")
        assert lake.read_arrow("t", at=1).num_rows == 0


def test_a_column_that_came_later_can_be_read_alone(catalog):
    with open_lake(catalog) as reference:
        for statement in HISTORIES["rename, add, drop, delete and update"][:6]:
            reference.sql(statement)
        theirs = reference.sql("SELECT k FROM t ORDER BY ALL")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        ours = lake.read_arrow("t", columns=["k"])

        assert sorted(ours["k"].to_pylist()) == [k for (k,) in theirs] == [7, 7, 7, 8]
        assert lake.read_arrow("t", columns=["k"], filter="k = 7").num_rows == 3


# Inlined rows find their columns however a database spells their names.


def test_names_with_capitals_and_keywords(catalog):
    columns = dict.fromkeys(("Total", "Value", 'odd "Name"', "50%", "%(x)s %%"), "int32")
    one = pa.table({name: pa.array([number], pa.int32()) for number, name in enumerate(columns)})
    nothing = pa.table({name: pa.nulls(1, pa.int32()) for name in columns})
    many = pa.concat_tables([one] * 20)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", columns)
        for rows in (nothing, one, many):
            lake.append_arrow("t", rows)
        assert lake.read_arrow("t").num_rows == 22

    with open_lake(catalog) as duck:
        duck.sql("INSERT INTO t VALUES (7, 8, 9, 10, 11)")
        assert duck.sql('SELECT count(*), max("Total"), max("Value"), min("odd ""Name""") FROM t') == [
            (23, 7, 8, 2)
        ]
        assert duck.sql('SELECT min("50%"), min("%(x)s %%") FROM t') == [(3, 4)]


# What SQLite keeps and DuckDB does not, and what SQLAlchemy takes for free.
OTHERS = {"autoincrement", "nothing", "returning", "indexed", "notnull", "isnull", "glob"}


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.capitalize])
def test_any_keyword_names_a_column(catalog, spelled):
    kept = {"row_id", "begin_snapshot", "end_snapshot"} | PostgresDialect.inlined_form.kept_names
    names = [spelled(word) for word in sorted((KEYWORDS | OTHERS) - kept)]
    rows = pa.table({name: pa.array([place], pa.int32()) for place, name in enumerate(names)})
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", dict.fromkeys(names, "int32"))
        lake.append_arrow("t", rows)
        assert lake.files("t") == []
        assert lake.read_arrow("t").equals(rows)
    with open_lake(catalog) as duck:
        assert duck.sql("FROM t") == [tuple(range(len(names)))]
        duck.sql("INSERT INTO t FROM t")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").equals(pa.concat_tables([rows, rows]))


# Columns that keep rows out of the catalog, given to tables that have rows in it: those stay.


LONG = "x" * 80  # more than PostgreSQL has for a name
CHANGES = {
    "a geometry": ("ADD COLUMN g GEOMETRY", lambda tx: tx.add_column("t", "g", "geometry")),
    "a variant": ("ADD COLUMN g VARIANT", lambda tx: tx.add_column("t", "g", "variant")),
    "a long name": (f"ADD COLUMN {LONG} INTEGER", lambda tx: tx.add_column("t", LONG, "int32")),
    "a name that becomes long": (f"RENAME COLUMN j TO {LONG}", lambda tx: tx.rename_column("t", "j", LONG)),
}


def registered(catalog):
    return [
        (one["table_name"], one["schema_version"])
        for one in dump_catalog(catalog)["ducklake_inlined_data_tables"]
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_rows_in_the_catalog_stay_there_and_are_read_and_flushed(catalog, new_catalog, name):
    statement, change = CHANGES[name]
    theirs = new_catalog(catalog.kind)
    with open_lake(theirs) as reference:
        reference.sql("CREATE TABLE t (i INTEGER, j INTEGER)")
        reference.sql("INSERT INTO t VALUES (1, 10), (2, 20)")
        reference.sql(f"ALTER TABLE t {statement}")
        expected = reference.sql("SELECT * FROM t ORDER BY i")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int32", "j": "int32"})
        lake.append_arrow(
            "t", pa.table({"i": [1, 2], "j": [10, 20]}).cast(pa.schema([("i", "int32"), ("j", "int32")]))
        )
        with lake.transaction() as tx:
            change(tx)

        assert registered(catalog) == registered(theirs)
        assert [tuple(row.values()) for row in lake.read_arrow("t").sort_by("i").to_pylist()] == expected
        with open_lake(catalog) as reference:
            assert reference.sql("SELECT * FROM t ORDER BY i") == expected
            reference.sql("INSERT INTO t (i) VALUES (3)")
        alone(lake).delete_rows("t", "i IN (1, 3)")
        lake.flush_inlined_data("t")
        assert [tuple(row.values()) for row in lake.read_arrow("t").to_pylist()] == expected[1:]
        assert lake.verify() == []
    assert by_duckdb(catalog, "SELECT * FROM t") == expected[1:]


# Bounds that the reference leaves behind rows inlined in the catalog, and our appends after them.


def append(catalog, rows: pa.Table) -> None:
    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.append_arrow("t", rows)


def test_an_inlined_nan_hides_no_number_that_we_append(catalog):
    by_duckdb(catalog, "CREATE TABLE t (d DOUBLE)", "INSERT INTO t VALUES ('nan')")

    append(catalog, pa.table({"d": [1.0]}))

    assert dump_catalog(catalog)["ducklake_table_column_stats"] == []
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT d FROM t WHERE d = 1") == [(1.0,)]
        assert reference.sql("SELECT d FROM t WHERE d < 2") == [(1.0,)]
        assert reference.sql("SELECT count(*) FROM t WHERE d > 1") == [(1,)]


def test_an_inlined_text_that_no_bound_covers_is_found_after_our_append(catalog):
    by_duckdb(catalog, "CREATE TABLE t (s VARCHAR)", "INSERT INTO t VALUES ('a' || chr(0))")

    append(catalog, pa.table({"s": ["m"]}))

    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES ('q')")
        assert reference.sql("SELECT length(s) FROM t WHERE s < 'b'") == [(2,)]


def test_inlined_nulls_are_no_reason_to_know_nothing(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (i INTEGER)")
        reference.sql("INSERT INTO t VALUES (NULL)")
        reference.sql("CALL ducklake_flush_inlined_data('lake')")

    append(catalog, pa.table({"i": pa.array([5], pa.int32())}))

    (stats,) = dump_catalog(catalog)["ducklake_table_column_stats"]
    assert (stats["min_value"], stats["max_value"], bool(stats["contains_null"])) == ("5", "5", True)


def test_whether_a_column_has_nan_stays_unknown_after_inlined_numbers(catalog):
    append_nan = pa.table({"d": [math.nan, 1.0]})
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (d DOUBLE)")
        append(catalog, append_nan)
        reference.sql("INSERT INTO t VALUES (2)")

    append(catalog, pa.table({"d": [3.0]}))

    (stats,) = dump_catalog(catalog)["ducklake_table_column_stats"]
    assert stats["contains_nan"] in (None, 1, True)
    assert by_duckdb(catalog, "SELECT count(*) FROM t WHERE isnan(d)") == [(1,)]


@pytest.mark.parametrize("inlining", [0, 10])
def test_our_append_heals_a_row_without_bounds_over_values(catalog, inlining):
    """The reference leaves one when one of the files of a statement holds only NULLs."""
    with open_lake(catalog, data_inlining_row_limit=inlining) as reference:
        reference.sql("CREATE TABLE t (k VARCHAR, i INTEGER)")
        reference.sql("ALTER TABLE t SET PARTITIONED BY (k)")
        reference.sql(
            "INSERT INTO t SELECT chr((97 + r % 2)::INT), CASE r % 2 WHEN 1 THEN r END FROM range(20) x(r)"
        )

    append(catalog, pa.table({"k": ["a"], "i": pa.array([500], pa.int32())}))

    assert {row["column_id"] for row in dump_catalog(catalog)["ducklake_table_column_stats"]} == {1}
    with open_lake(catalog, data_inlining_row_limit=inlining) as reference:
        reference.sql("INSERT INTO t VALUES ('c', 1000)")
        assert reference.sql("SELECT count(*) FROM t WHERE i < 100") == [(10,)]


# With the default inlining limit small inserts share the catalog with DuckDB's, and large ones the files.


def rows(*numbers: int) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


@pytest.mark.both_versions
def test_we_and_duckdb_inline_into_one_table(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("main.t", {"i": "int64", "s": "varchar"})
        alone(lake).append_arrow("main.t", rows(1, 2))
        assert not dump_catalog(catalog)["ducklake_data_file"]

        with open_lake(catalog) as duck:  # nobody turned inlining off
            duck.sql("INSERT INTO t VALUES (3, 'row 3'), (4, 'row 4')")
            duck.sql("DELETE FROM t WHERE i IN (1, 3)")
        with lake.transaction() as tx:
            tx.append_arrow("main.t", rows(5))
            tx.append_arrow("main.t", rows(*range(10, 30)))
            tx.append_arrow("main.t", rows(6))

    with open_lake(catalog) as duck:
        assert duck.sql("SELECT i, s, rowid FROM t WHERE i < 11 ORDER BY i") == [
            (2, "row 2", 1),
            (4, "row 4", 3),
            (5, "row 5", 24),
            (6, "row 6", 25),
            (10, "row 10", 4),
        ]
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
        assert duck.sql("SELECT i FROM t WHERE i BETWEEN 4 AND 10 ORDER BY i") == [(4,), (5,), (6,), (10,)]
        assert duck.sql("SELECT count(*) FROM t") == [(24,)]


@pytest.mark.both_versions
@pytest.mark.only_1_0("DuckDB has the lake open while we alter its table")
def test_duckdb_inserts_small_after_each_alter_of_ours(catalog):
    with (
        Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake,
        open_lake(catalog) as duck,
    ):
        alone(lake).create_table("t", {"i": "int32"})
        duck.sql("INSERT INTO t VALUES (1)")
        alone(lake).add_column("t", "s", "varchar", "none")
        duck.sql("INSERT INTO t VALUES (2, 'two')")
        with lake.transaction() as tx:
            tx.rename_column("t", "s", "word")
            tx.set_column_type("t", "i", "int64")
        duck.sql("INSERT INTO t VALUES (3000000000, 'three')")
        with lake.transaction() as tx:
            tx.rename_table("t", "u")
            tx.append_arrow("u", pa.table({"i": pa.array([4], pa.int64()), "word": ["four"]}))
        alone(lake).drop_column("u", "i")
        duck.sql("INSERT INTO u VALUES ('five')")

        assert duck.sql("SELECT word, rowid FROM u ORDER BY rowid") == [
            ("none", 0),
            ("two", 1),
            ("three", 2),
            ("four", 3),
            ("five", 4),
        ]
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
        assert duck.sql("SELECT word FROM u ORDER BY rowid") == [
            ("none",),
            ("two",),
            ("three",),
            ("four",),
            ("five",),
        ]


@pytest.mark.both_versions
@pytest.mark.only_1_0("DuckDB has the lake open while we commit")
def test_a_layout_is_made_where_there_is_none(catalog):
    with (
        Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake,
        open_lake(catalog) as duck,
    ):
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64", "s": "varchar"})
        assert not dump_catalog(catalog)["ducklake_inlined_data_tables"]
        lake.set_option("data_inlining_row_limit", 5, table="t")
        alone(lake).append_arrow("t", rows(1))
        alone(lake).append_arrow("t", rows(2))
        duck.sql("INSERT INTO t VALUES (3, 'row 3')")

        assert duck.sql("SELECT i, rowid FROM t ORDER BY i") == [(1, 0), (2, 1), (3, 2)]
        assert len(dump_catalog(catalog)["ducklake_inlined_data_tables"]) == 1
