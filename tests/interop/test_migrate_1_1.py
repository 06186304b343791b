"""Lakes of 1.0 and older become lakes of 1.1: as ducklakepy migrates them, and every snapshot as it was.

ducklakepy leaves one step out, which forgets the bounds of columns whose type has changed.
"""

import random
import sqlite3
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogError, UnsupportedVersionError
from tests.interop.lakes import alone
from tests.interop.old_lakes import OLD_VERSIONS, copy_lake, old_lake, read_alike, writing
from tests.interop.test_migrate import our_rows, texts
from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.catalog_dump import Dump, dump_catalog, dump_schema
from tests.reference.catalogs import CATALOG_KINDS, CatalogDatabase
from tests.reference.test_next_migration import HISTORY, write_history

DRAWN = {"ci": 4, "full": 110}
TABLES = ("t", "u")
# without the renamed field, whose default comes back
PLAIN = tuple(statement for statement in HISTORY if "k2" not in statement)


# --- lakes that are drawn ---


def drawn_history(draw: random.Random) -> list[str]:
    """Return statements for DuckDB: rows in files and in the catalog, deletes, and what changes columns."""
    columns = "i INTEGER, f FLOAT, d DATE, s VARCHAR, st STRUCT(a INTEGER)"
    statements = [f"CREATE TABLE {table} ({columns})" for table in TABLES]
    for number in range(draw.randrange(6, 16)):
        table = draw.choice(TABLES)
        rows = f"{number}00 + n AS i, n / 3 AS f, DATE '2020-01-01' + n::INTEGER AS d, 's' || n AS s"
        fields = f"{{'a': n}} AS st FROM range({draw.choice([1, 3, 9, 30])}) r(n)"
        statement = draw.choice(
            [
                *[f"INSERT INTO {table} BY NAME SELECT {rows}, {fields}"] * 4,
                f"DELETE FROM {table} WHERE i % {draw.randrange(2, 9)} = 1",
                f"UPDATE {table} SET s = 'u' WHERE i % {draw.randrange(2, 9)} = 0",
                f"ALTER TABLE {table} ADD COLUMN c{number} INTEGER DEFAULT {number}",
                f"ALTER TABLE {table} ADD COLUMN st.k{number} INTEGER DEFAULT 7",
                f"ALTER TABLE {table} ALTER f TYPE DOUBLE",
                f"ALTER TABLE {table} ALTER i TYPE BIGINT",
                f"ALTER TABLE {table} ALTER d TYPE TIMESTAMP",
                "CALL ducklake_flush_inlined_data('lake')",
                f"COMMENT ON COLUMN {table}.s IS 'a string'",
            ]
        )
        statements.append(statement)
        if "ADD COLUMN st." in statement and draw.random() < 0.7:
            statements.append(f"ALTER TABLE {table} RENAME COLUMN st.k{number} TO r{number}")
    return statements


def write(catalog: CatalogDatabase, statements: list[str]) -> int:
    """Write a history, without the statements that the reference refuses; return the newest snapshot."""
    with duckdb_lake.open_lake(catalog) as lake:
        for statement in statements:
            try:
                lake.sql(statement)
            except duckdb.Error as error:
                if "TYPE" not in statement:
                    raise AssertionError(statement) from error
        ((newest,),) = lake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
    return newest


def copied(catalog: CatalogDatabase, target: CatalogDatabase) -> CatalogDatabase:
    """Copy a SQLite catalog; the files stay where they are."""
    with (
        closing(sqlite3.connect(catalog.location)) as source,
        closing(sqlite3.connect(target.location)) as copy,
    ):
        source.backup(copy)
    return CatalogDatabase("sqlite", target.location, catalog.data_path)


def retyped(dump: Dump) -> set[tuple[int, int]]:
    """Return the columns that had types with bounds of different spellings."""
    types: dict[tuple[int, int], set[str]] = {}
    for row in dump["ducklake_column"]:
        types.setdefault((row["table_id"], row["column_id"]), set()).add(row["column_type"])
    return {key for key, names in types.items() if len(names) > 1 and names != {"int32", "int64"}}


def without_bounds_of(dump: Dump, columns: set[tuple[int, int]]) -> Dump:
    """Do to a migrated lake what ducklakepy leaves out."""
    keys = ("min_value", "max_value")
    files = [
        row | (dict.fromkeys(keys) if (row["table_id"], row["column_id"]) in columns else {})
        for row in dump["ducklake_file_column_stats"]
    ]
    tables = [
        row
        for row in dump["ducklake_table_column_stats"]
        if (row["table_id"], row["column_id"]) not in columns
    ]
    return dump | {"ducklake_file_column_stats": files, "ducklake_table_column_stats": tables}


def but_restored_fields(rows: pa.Table) -> list[str]:
    """Return the rows without the renamed fields, of which DuckDB 1.5.5 forgets the default."""
    for row in (found := rows.to_pylist()):
        if row["st"] is not None:
            row["st"] = {name: value for name, value in row["st"].items() if not name.startswith("r")}
    return sorted(map(str, found))


def names(layout: dict[str, list[tuple[str, str, bool]]]) -> dict[str, list[str]]:
    return {table: [column[0] for column in columns] for table, columns in layout.items()}


def test_drawn_lakes_are_migrated_as_ducklakepy_migrates_them(new_catalog, seed, size, capsys):
    cleared = repaired = inlined = 0
    for number in range(DRAWN[size]):
        draw = random.Random(f"{seed} {number}")
        source = new_catalog("sqlite")
        newest = write(source, drawn_history(draw))
        ours, theirs = copied(source, new_catalog("sqlite")), copied(source, new_catalog("sqlite"))
        with Lake.connect(source.sqlalchemy_url) as lake:
            before = {
                (table, at): but_restored_fields(lake.read_arrow(table, at=at))
                for at in range(len(TABLES), newest + 1)
                for table in TABLES
            }
            faults = lake.verify()  # of DuckDB 1.5.5

        with Lake.connect(ours.sqlalchemy_url) as lake:
            result = lake.migrate("1.1", backup=False)
            assert (result.from_version, result.to_version) == ("1.0", "1.1")
            assert lake.migrate("1.1").steps == ()
            assert [one for one in lake.verify() if one not in faults] == []
            after = {key: but_restored_fields(lake.read_arrow(key[0], at=key[1])) for key in before}
        ducklakepy_lake.open_lake(theirs, migrate=True).close()

        assert after == before, number
        mine, other = dump_catalog(ours), dump_catalog(theirs)
        columns = retyped(other)
        assert mine == without_bounds_of(other, columns), number
        assert names(dump_schema(ours)) == names(dump_schema(theirs))
        cleared += len(columns)
        repaired += mine["ducklake_column"] != dump_catalog(source)["ducklake_column"]
        inlined += any(step.startswith("rename column ducklake_inlined_data_") for step in result.steps)
    with capsys.disabled():
        print(  # noqa: T201
            f"\nseed {seed}: {DRAWN[size]} lakes; bounds of {cleared} columns cleared, defaults restored in "
            f"{repaired} lakes, inlined tables in {inlined}"
        )


# --- other databases and versions ---


@pytest.fixture(params=CATALOG_KINDS)
def kind(request):
    return request.param


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_a_lake_older_than_1_0_is_migrated_at_once(version, kind, new_catalog, tmp_path):
    old = old_lake(version, tmp_path / "old")
    if kind != "sqlite":
        old = copy_lake(old, new_catalog(kind))
    expected = {
        at: {name: read_alike(rows) for name, rows in tables.items()}
        for at, tables in old.rows.items()
        if kind == "sqlite" or int(at) in (3, 17, 26)
    }
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        assert {client.where for client in lake.clients()} == {"made the catalog", "wrote data files"}
        plan = lake.migrate("1.1", dry_run=True)
        result = lake.migrate("1.1")

        assert (result.from_version, result.to_version, result.refusals) == (version, "1.1", ())
        assert result.steps == plan.steps
        assert lake.version.value == "1.1"
        assert our_rows(lake, expected) == expected
        assert lake.verify() == []
        assert lake.migrate("1.1").steps == ()
    assert names(dump_schema(old.catalog))["ducklake_schema"][-1] == "parent_schema_id"


def test_a_lake_of_1_0_in_any_database_is_migrated(kind, new_catalog):
    catalog = new_catalog(kind)
    if kind == "mariadb":  # which DuckDB does not write
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            alone(lake).create_table("t", {"i": "int32"})
            lake.append_arrow("t", duckdb.sql("SELECT 1::INTEGER AS i").to_arrow_table())
    else:
        write_history(catalog, PLAIN)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        newest = lake.current_snapshot().id
        before = {at: texts(lake.read_arrow("t", at=at)) for at in range(1, newest + 1)}

        result = lake.migrate("1.1")

        assert lake.current_snapshot().id == newest
        assert {at: texts(lake.read_arrow("t", at=at)) for at in before} == before
        assert (result.steps[-1], lake.version.value) == ("set the version to 1.1", "1.1")
        assert lake.verify() == []
        with lake.transaction() as tx:
            tx.create_schema("sales")
            tx.create_schema("sales.europe")
        assert lake.verify() == []


def test_what_duckdb_writes_after_the_migration_is_read_by_ducklakepy(catalog, judge):
    write_history(catalog, PLAIN)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.migrate("1.1", backup=False)
        lake.append_arrow("t", lake.read_arrow("t").slice(0, 3))
        rows = texts(lake.read_arrow("t"))

    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.version() == "1.1"
        assert texts(theirs.read("t")) == rows
    with duckdb_lake.open_lake(judge(catalog)) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(len(rows),)]


# --- who is locked out ---


def test_a_dry_run_names_clients_that_are_locked_out(catalog):
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", pa.concat_tables([lake.read_arrow("t")] * 10))
        clients = {client.name: client for client in lake.clients()}
        plan = lake.migrate("1.1", dry_run=True)

    (duckdb_files,) = (name for name in clients if name.startswith("DuckDB version v1.5"))
    assert plan.locked_out == (duckdb_files,)
    assert clients[duckdb_files].where == "wrote data files"
    assert [one.where for one in clients.values() if one.name.startswith("DuckDB ")] == [
        "made the catalog",
        "wrote data files",
    ]
    assert any(name.startswith("parquet-cpp-arrow") for name in clients)
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.insert("t", [{"i": 1}])
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        newest = lake.current_snapshot().id
        assert ("ducklakepy", newest) in [(one.name, one.snapshot_id) for one in lake.clients(files=0)]


# --- inlined columns as DuckLake 0.3 declared them in PostgreSQL ---

TYPED = (
    "CREATE TABLE o (s VARCHAR, j JSON, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ, i INTEGER, Total VARCHAR)",
    """INSERT INTO o VALUES ('é', '{"a": 1}', '2024-02-29', '2024-02-29 12:30:00.5',
    '2024-02-29 12:30:00+02', 1, 'q'), (NULL, NULL, NULL, NULL, NULL, 2, NULL)""",
)
FORMER = (
    "ALTER COLUMN s TYPE text USING convert_from(s, 'UTF8')",
    "ALTER COLUMN j TYPE jsonb USING convert_from(j, 'UTF8')::jsonb",
    "ALTER COLUMN d TYPE date USING d::date",
    "ALTER COLUMN ts TYPE timestamp USING ts::timestamp",
    "ALTER COLUMN total TYPE text USING convert_from(total, 'UTF8')",
    "ALTER COLUMN tz TYPE timestamptz USING tz::timestamptz",
)
FAR = (
    "INSERT INTO {} VALUES "
    "(2, 2, NULL, 'x', '[]', '0044-03-15 BC', '0044-03-15 12:00:00 BC', "
    "'0044-03-15 12:00:00+00 BC', 3, 'y'), (3, 2, NULL, 'x', '[]', 'infinity', "
    "'-infinity', 'infinity', 4, NULL)"
)


def as_of_0_3(catalog: CatalogDatabase) -> str:
    write_history(catalog, TYPED)
    (name,) = (row["table_name"] for row in dump_catalog(catalog)["ducklake_inlined_data_tables"])
    with writing(catalog) as connection:
        for change in FORMER:
            connection.exec_driver_sql(f"ALTER TABLE {name} {change}")
        connection.exec_driver_sql(FAR.format(name))
    return name


def test_columns_of_0_3_in_postgresql_are_converted_as_ducklakepy_converts_them(new_catalog):
    ours, theirs = new_catalog("postgres"), new_catalog("postgres")
    name = as_of_0_3(ours)
    as_of_0_3(theirs)

    with Lake.connect(ours.sqlalchemy_url) as lake:
        converted = [step for step in lake.migrate("1.1").steps if step.startswith("convert")]
        assert lake.migrate("1.1").steps == ()
        rows = lake.read_arrow("o")
    ducklakepy_lake.open_lake(theirs, migrate=True).close()

    assert len(converted) == len(FORMER)
    assert dump_catalog(ours)[name] == dump_catalog(theirs)[name]
    assert dump_schema(ours)[name] == dump_schema(theirs)[name]
    assert rows.column("s").to_pylist() == ["é", None, "x", "x"]
    assert rows.column("i").to_pylist() == [1, 2, 3, 4]


# --- what is in the way ---


def execute(catalog: CatalogDatabase, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute(statement, values)


ODD = (
    "CREATE TABLE odd (_ducklake_end_snapshot INTEGER)",
    "INSERT INTO odd VALUES (1)",
    "CREATE TABLE stranger (i INTEGER)",
    "INSERT INTO stranger VALUES (1)",
    "CREATE TABLE missing (i INTEGER)",
    "INSERT INTO missing VALUES (1)",
)


@pytest.fixture
def odd_lake(sqlite_catalog) -> CatalogDatabase:
    write_history(sqlite_catalog, (*HISTORY, *ODD))
    tables = {
        row["table_name"]: f"ducklake_inlined_data_{row['table_id']}_"
        for row in dump_catalog(sqlite_catalog)["ducklake_table"]
    }
    there = dump_schema(sqlite_catalog)
    stranger, missing = (
        next(name for name in there if name.startswith(tables[one])) for one in ("stranger", "missing")
    )
    execute(sqlite_catalog, f"ALTER TABLE {stranger} RENAME COLUMN begin_snapshot TO began")
    execute(sqlite_catalog, f"DROP TABLE {missing}")
    execute(sqlite_catalog, "ALTER TABLE ducklake_delete_file ADD COLUMN ours BIGINT")
    return sqlite_catalog


def test_a_dry_run_gives_every_reason_and_its_remedy(odd_lake):
    before = dump_schema(odd_lake), dump_catalog(odd_lake)
    with Lake.connect(odd_lake.sqlalchemy_url) as lake:
        plan = lake.migrate("1.1", dry_run=True)
        with pytest.raises(CatalogError) as refused:
            lake.migrate("1.1", backup=False)

        assert lake.version.value == "1.0"
    assert (dump_schema(odd_lake), dump_catalog(odd_lake)) == before
    ours, odd, stranger, missing = plan.refusals
    assert "ours" in ours
    assert "main.odd with a column _ducklake_end_snapshot" in odd
    assert "flush the inlined data of main.odd" in odd
    assert "began" in stranger
    assert "does not exist" in missing
    said = str(refused.value)  # which shortens the first of them in its middle
    assert all(one[:200] in said and one[-50:] in said for one in plan.refusals)
    assert "DuckDB 1.x" in plan.opened_by


def test_the_remedy_for_a_column_with_a_new_name_helps(sqlite_catalog):
    write_history(sqlite_catalog, ODD[:2])
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        alone(lake).rename_column("odd", "_ducklake_end_snapshot", "ended")
        assert len(lake.migrate("1.1", dry_run=True).refusals) == 1
        lake.flush_inlined_data("odd")

        assert lake.migrate("1.1", dry_run=True).refusals == ()
        lake.migrate("1.1", backup=False)
        assert lake.read_arrow("odd").to_pydict() == {"ended": [1]}


# --- development versions ---


DEVELOPMENT = {
    "nothing yet": (),
    "renamed": (
        "ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN row_id TO _ducklake_row_id",
        "ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN begin_snapshot TO _ducklake_begin_snapshot",
    ),
    "some columns": (
        "ALTER TABLE ducklake_data_file ADD COLUMN row_group_count BIGINT",
        "ALTER TABLE ducklake_schema ADD COLUMN parent_schema_id BIGINT",
        "ALTER TABLE ducklake_table_column_stats ADD COLUMN min_is_exact BOOLEAN",
    ),
}


@pytest.mark.parametrize("state", DEVELOPMENT)
def test_half_a_migration_keeps_duckdb_1_5_away_and_others_can_complete_it(new_catalog, state):
    half = new_catalog("sqlite")
    write_history(half)
    for statement in DEVELOPMENT[state]:
        execute(half, statement)
    execute(half, "UPDATE ducklake_metadata SET value = '1.1-dev1' WHERE key = 'version'")
    ours, theirs = copied(half, new_catalog("sqlite")), copied(half, new_catalog("sqlite"))

    with pytest.raises(duckdb.Error, match=r"catalog version is 1\.1-dev1"):
        duckdb_lake.open_lake(half)
    ducklakepy_lake.open_lake(theirs, migrate=True).close()
    with Lake.connect(ours.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate("1.1", backup=False)

    assert dump_catalog(ours) == dump_catalog(theirs)
    with Lake.connect(theirs.sqlalchemy_url) as lake:
        assert lake.migrate("1.1").steps == ()


@pytest.mark.parametrize("state", DEVELOPMENT)
def test_a_development_version_is_migrated_and_nothing_else(sqlite_catalog, state):
    write_history(sqlite_catalog, PLAIN)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        rows = texts(lake.read_arrow("t"))
    for statement in DEVELOPMENT[state]:
        execute(sqlite_catalog, statement)
    execute(sqlite_catalog, "UPDATE ducklake_metadata SET value = '1.1-dev1' WHERE key = 'version'")

    with pytest.raises(UnsupportedVersionError, match=r"to_version='1\.1'"):
        Lake.connect(sqlite_catalog.sqlalchemy_url)
    with Lake.connect(sqlite_catalog.sqlalchemy_url, to_migrate=True) as lake:
        for act in (
            lambda: lake.read_arrow("t"),
            lake.transaction,
            lake.migrate,
            lambda: lake.migrate(dry_run=True),
        ):
            with pytest.raises(UnsupportedVersionError, match=r"to_version='1\.1'"):
                act()
        assert lake.migrate("1.1").from_version == "1.1-dev1"
        assert texts(lake.read_arrow("t")) == rows
        assert lake.verify() == []
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        assert theirs.count("t") == len(rows)


def test_nobody_is_migrated_to_1_1_unasked_or_back(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        before = dump_catalog(sqlite_catalog)
        assert lake.migrate().steps == ()
        assert dump_catalog(sqlite_catalog) == before
        lake.migrate("1.1", backup=False)
        result = lake.migrate("1.0")

        assert (result.from_version, result.to_version, result.steps) == ("1.1", "1.1", ())
        for version in ("0.4", "1.1-dev1", "2.0"):
            with pytest.raises(ValueError, match="to_version"):
                lake.migrate(version)
