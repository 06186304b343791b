"""Who opens which version of a lake: the table of the rules of DuckLake 1.1, row by row, in every database.

A row is what is there, what a connection of ours or an ATTACH of DuckDB 1.5.5 asks for, and what becomes of
it; `tests/reference/test_next.py` has the rows of a client of 1.1. What is refused changes nothing.
"""

import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import text, update

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    DuckLakeError,
    InvalidInputError,
    InvalidOptionError,
    UnsupportedVersionError,
)
from airflow_provider_ducklake.lake.format.versions import SpecVersion
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
from tests.interop.lakes import alone
from tests.interop.old_lakes import writing
from tests.interop.vectors import container, vector
from tests.reference import duckdb_lake
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.catalogs import CATALOG_KINDS, CatalogDatabase

ROW = pa.table({"i": pa.array([1], pa.int64())})
OPENED_BY = {
    "0.4": "once it is migrated",
    "1.0": "DuckDB 1.5 and newer open it",
    "1.1": "DuckDB 2.0 and newer open it, and no DuckDB 1.x",
}
MISMATCH = "DuckLake catalog version mismatch: catalog version is {}, but the connection requires version {}."
DOWNGRADE = (
    "DuckLake catalog version is '1.1', which is newer than the requested version '1.0'. "
    "Cannot downgrade a DuckLake catalog."
)


@dataclass(frozen=True)
class Ours:
    """``there`` is the version of the lake that exists, ``becomes`` that of the lake then (None: refused).

    ``asks`` are fields of the connection; ``migrates`` is what the operator is to migrate to.
    """

    there: str | None
    asks: dict[str, str] = field(default_factory=dict)
    migrates: str | None = None
    becomes: str | None = None
    says: str = ""

    def __str__(self) -> str:
        asked = " ".join(f"{name} {value}" for name, value in self.asks.items()) or "nothing"
        then = f", migrate to {self.migrates}" if self.migrates else ""
        return f"{self.there or 'no lake'}, {asked}{then}: {self.becomes or 'refused'}"


AT_1_0, AT_1_1 = {"ducklake_version": "1.0"}, {"ducklake_version": "1.1"}
UP_TO_1_0, UP_TO_1_1 = {"max_version": "1.0"}, {"max_version": "1.1"}
TABLE = [
    # the catalog's own version, and never migrated unasked
    Ours("1.0", becomes="1.0"),
    Ours("1.1", becomes="1.1"),
    # asked to migrate
    Ours("1.0", migrates="1.1", becomes="1.1"),
    Ours("1.0", migrates="1.0", becomes="1.0"),
    Ours("1.1", migrates="1.1", becomes="1.1"),
    Ours("1.1", migrates="1.0", becomes="1.1"),
    # a version is asked for
    Ours("1.0", AT_1_0, becomes="1.0"),
    Ours("1.0", AT_1_0, migrates="1.0", becomes="1.0"),
    Ours("1.0", AT_1_0, migrates="1.1", says="The connection requires DuckLake 1.0"),
    Ours("1.0", AT_1_1, says=MISMATCH.format("1.0", "1.1")),
    Ours("1.0", AT_1_1, migrates="1.1", becomes="1.1"),
    Ours("1.1", AT_1_1, becomes="1.1"),
    Ours("1.1", AT_1_0, says=DOWNGRADE),
    Ours("1.1", AT_1_0, migrates="1.0", says=DOWNGRADE),
    # older than 1.0, and development versions: only migrated; ours reads older ones
    Ours("0.4", says="Migrate it to 1.0 with DuckLakeMigrateOperator"),
    Ours("0.4", AT_1_0, says=MISMATCH.format("0.4", "1.0")),
    Ours("0.4", migrates="1.0", becomes="1.0"),
    Ours("0.4", migrates="1.1", becomes="1.1"),
    Ours("1.1-dev1", says="'1.1-dev1'"),
    Ours("1.1-dev1", migrates="1.0", says="'1.1-dev1'"),
    Ours("1.1-dev1", migrates="1.1", becomes="1.1"),
    Ours("1.2", says="'1.2'"),
    Ours("1.2", migrates="1.1", says="'1.2'"),
    # none yet
    Ours(None, becomes="1.0"),
    Ours(None, AT_1_0, becomes="1.0"),
    Ours(None, AT_1_1, becomes="1.1"),
    Ours(None, UP_TO_1_0, becomes="1.0"),
    Ours(None, AT_1_1 | UP_TO_1_0, says="'1.1' is newer than '1.0', the max_version"),
    # what colleagues open
    Ours("1.0", UP_TO_1_0, becomes="1.0"),
    Ours("1.0", UP_TO_1_0, migrates="1.1", says="The connection allows DuckLake 1.0 at most"),
    Ours("1.0", UP_TO_1_1, migrates="1.1", becomes="1.1"),
    Ours("1.1", UP_TO_1_0, says="The connection allows DuckLake 1.0 at most"),
    Ours("1.1", UP_TO_1_0, migrates="1.0", says="The connection allows DuckLake 1.0 at most"),
]


def make(catalog: CatalogDatabase, version: str) -> None:
    """Make a lake of one row that says it has a version."""
    like = "1.1" if version > "1.0" else "1.0"
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=like) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        lake.append_arrow("t", ROW)
    metadata = catalog_tables(SpecVersion.V1_0)["metadata"]
    with writing(catalog) as connection:
        connection.execute(update(metadata).where(metadata.c.key == "version").values(value=version))


def version_in(catalog: CatalogDatabase) -> str:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return lake.version.value


def everything(catalog: CatalogDatabase) -> tuple[Any, Any]:
    return dump_schema(catalog), dump_catalog(catalog)


@pytest.mark.every_catalog
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_ours(catalog, connect, row: Ours):
    if row.there is not None:
        make(catalog, row.there)
    connect(catalog, data_path=catalog.data_path, **row.asks)

    if row.becomes is None:
        assert_refused(catalog, row)
    elif row.migrates is not None:
        assert_migrated(catalog, row)
    else:
        assert_opened(catalog, row)


def assert_refused(catalog: CatalogDatabase, row: Ours) -> None:
    before = None if row.there is None else everything(catalog)
    for dry_run in (True, False):
        with pytest.raises((DuckLakeError, AirflowFailException)) as refused:
            migrate(row, dry_run=dry_run) if row.migrates else DuckLakeHook().get_or_create_lake()
        assert row.says in str(refused.value)
        assert not row.asks or any(f"({name})" in str(refused.value) for name in row.asks)
    if row.migrates is None:
        works, message = DuckLakeHook().test_connection()
        assert (works, row.says in message) == (False, True)
    if before is not None:
        assert everything(catalog) == before


def migrate(row: Ours, *, dry_run: bool) -> dict[str, Any]:
    return DuckLakeMigrateOperator(task_id="t", to_version=row.migrates, dry_run=dry_run).execute({})


def assert_migrated(catalog: CatalogDatabase, row: Ours) -> None:
    before = everything(catalog)
    planned = migrate(row, dry_run=True)
    assert everything(catalog) == before

    done = migrate(row, dry_run=False)

    assert (planned["to_version"], done["to_version"]) == (row.becomes, row.becomes)
    assert planned["steps"] == done["steps"]
    assert (planned["refusals"], planned["opened_by"]) == ([], OPENED_BY[row.becomes])
    assert version_in(catalog) == row.becomes
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", ROW)
        assert lake.read_arrow("t").num_rows == 2


def assert_opened(catalog: CatalogDatabase, row: Ours) -> None:
    works, message = DuckLakeHook().test_connection()
    assert works
    assert f"DuckLake {row.becomes}" in message
    assert OPENED_BY[row.becomes] in message
    lake = DuckLakeHook().get_or_create_lake()

    assert lake.version.value == row.becomes
    with lake.transaction() as tx:
        if row.there is None:
            tx.create_table("t", {"i": "int64"})
        tx.append_arrow("t", ROW)
    assert lake.read_arrow("t").num_rows == (2 if row.there else 1)
    lake.close()
    assert version_in(catalog) == row.becomes


# DuckDB 1.5.5, a client of 1.0
NEEDS_1_0 = (
    "DuckLake catalog version mismatch: catalog version is 1.1, but the extension requires version 1.0. "
    "To automatically migrate, set AUTOMATIC_MIGRATION to TRUE when attaching."
)
ONLY_UP_TO_1_0 = "Only DuckLake versions 0.1, 0.2, 0.3-dev1, 0.3, 0.4-dev1, 0.4, 1.0 are supported"


@pytest.mark.every_catalog
@pytest.mark.parametrize(
    ("options", "says"),
    [({}, NEEDS_1_0), ({"read_only": True}, NEEDS_1_0), ({"automatic_migration": True}, ONLY_UP_TO_1_0)],
    ids=["attach", "read only", "automatic migration"],
)
def test_duckdb_1_5_5_on_1_1(catalog, options, says):
    make(catalog, "1.1")
    before = everything(catalog)

    with pytest.raises(duckdb.Error) as refused:
        duckdb_lake.open_lake(catalog, **options)

    assert says in str(refused.value)
    assert everything(catalog) == before


@pytest.mark.parametrize("says", [NEEDS_1_0, ONLY_UP_TO_1_0])
def test_the_guide_explains_what_duckdb_1_5_5_says(says):
    guide = (Path(__file__).parents[2] / "docs" / "connection.md").read_text()

    assert f"```text\n{says}\n```" in guide


@pytest.mark.every_catalog
def test_duckdb_1_5_5_on_1_0(catalog):
    make(catalog, "1.0")

    with duckdb_lake.open_lake(catalog, automatic_migration=True) as reference:
        assert reference.sql("FROM t") == [(1,)]
        reference.sql("CREATE TABLE u AS SELECT 2 AS i")

    assert version_in(catalog) == "1.0"


# --- the versions that a connection allows ---

TOO_NEW = "The connection allows DuckLake 1.0 at most. The lake has DuckLake 1.1"


@pytest.fixture(params=CATALOG_KINDS)
def new(request, new_catalog) -> CatalogDatabase:
    return new_catalog(request.param)


def create(catalog: CatalogDatabase, version: str) -> None:
    Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version).close()


def test_versions_may_be_numbers(sqlite_catalog, connect):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path, ducklake_version=1.1, max_version=1.1)

    DuckLakeHook().get_or_create_lake().close()

    assert version_in(sqlite_catalog) == "1.1"


@pytest.mark.parametrize("extra", [{"max_version": "1.0"}, {"ducklake_version": "1.0"}])
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_lake_of_a_hook_is_not_migrated_beyond_the_connections_version(
    sqlite_catalog, connect, extra, dry_run, is_there
):
    if is_there:
        create(sqlite_catalog, "1.0")
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path, **extra)

    with pytest.raises(InvalidInputError) as refused:
        DuckLakeHook().get_or_create_lake().migrate("1.1", dry_run=dry_run)

    for part in ("to_version: '1.1'", "'1.0'", "no DuckDB 1.x", "Nothing was changed", "max_version '1.1'"):
        assert part in str(refused.value)
    assert version_in(sqlite_catalog) == "1.0"


def test_a_lake_that_is_too_new_is_not_even_migrated(new, connect):
    create(new, "1.1")
    connect(new, max_version="1.0")

    with pytest.raises(AirflowFailException, match=TOO_NEW):
        DuckLakeMigrateOperator(task_id="t").execute({})


def test_the_library_has_the_same_limit(new):
    create(new, "1.0")
    with Lake.connect(new.sqlalchemy_url, max_version="1.0") as lake:
        with pytest.raises(InvalidInputError, match=r"'1\.1' is newer than '1\.0'"):
            lake.migrate("1.1")
        assert lake.migrate("1.0").steps == ()
    with Lake.connect(new.sqlalchemy_url, max_version="1.1") as lake:
        assert lake.migrate("1.1", backup=False).to_version == "1.1"

    with pytest.raises(UnsupportedVersionError) as refused:
        Lake.connect(new.sqlalchemy_url, max_version="1.0")

    for part in ("'1.1'", "supports 1.0", "no DuckDB 1.x", "max_version '1.1'"):
        assert part in str(refused.value)
    with pytest.raises(InvalidInputError, match=r"max_version: '0\.9'"):
        Lake.connect(new.sqlalchemy_url, max_version="0.9")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"ducklake_version": "0.4"}, "'0.4' is not a DuckLake version to work on. Write '1.0' or '1.1'."),
        ({"max_version": "1.1-dev1"}, "'1.1-dev1'"),
        ({"max_version": ["1.0"]}, r"['1.0']"),
        ({"ducklake_version": "1.1", "max_version": "1.0"}, "'1.1' is newer than '1.0', the max_version"),
    ],
)
def test_versions_that_make_no_sense_are_refused(sqlite_catalog, connect, extra, said):
    connect(sqlite_catalog, **extra)

    with pytest.raises(InvalidOptionError) as refused:
        DuckLakeHook().settings()

    assert said in str(refused.value)


# --- what is wrong with a version, or with what only 1.1 has ---

ROWS = pa.table({"i": pa.array([1, 2], pa.int32()), "s": ["a", "b"]})
MIGRATE = "DuckLakeMigrateOperator"
SAY = "UPDATE ducklake_metadata SET value = '{}' WHERE key = 'version'"


def run(catalog: CatalogDatabase, *statements: str) -> None:
    quoted = "`key`" if catalog.kind == "mariadb" else "key"
    with writing(catalog) as connection:
        for statement in statements:
            connection.execute(text(re.sub(r"\bkey\b", quoted, statement)))


def make_rows(catalog: CatalogDatabase, version: str) -> None:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int32", "s": "varchar"})
            tx.append_arrow("t", ROWS)


@contextmanager
def refusal(kind: type[errors.DuckLakeError], *parts: str):
    """Expect an error that says all of that."""
    with pytest.raises(kind) as refused:
        yield
    for part in parts:
        assert part in str(refused.value)


# --- the version itself ---


@dataclass(frozen=True)
class Case:
    """``says`` is the error of opening the lake."""

    name: str
    damage: str
    says: tuple[str, ...]
    of: str = "1.0"
    kind: type[errors.DuckLakeError] = errors.UnsupportedVersionError


def versions(found: str, *what_to_do: str) -> tuple[str, ...]:
    return (f"has DuckLake version '{found}'", "supports 1.0, 1.1", *what_to_do)


MISSING = ("says that it has DuckLake 1.1, and lacks {}", "from a backup", "'1.1-dev1'", MIGRATE)
CASES = [
    Case(
        "older",
        SAY.format("0.4"),
        ("version '0.4'", "supports 1.0, 1.1", "once it is migrated", MIGRATE, "to_migrate=True"),
    ),
    Case("older than all", SAY.format("0.0"), versions("0.0", "0.1 was the first", "backup")),
    Case("newer", SAY.format("1.2"), versions("1.2", "newer client", "up to 1.1", "newer release")),
    Case("two digits", SAY.format("1.10"), versions("1.10", "newer client")),
    Case("newer dev", SAY.format("1.2-dev1"), versions("1.2-dev1", "only the DuckDB that made")),
    Case("older dev", SAY.format("0.4-dev1"), versions("0.4-dev1", "development build")),
    Case("1.1-dev1", SAY.format("1.1-dev1"), versions("1.1-dev1", "no released client", MIGRATE), of="1.1"),
    Case("no version", SAY.format("one"), versions("one", "key 'version'", "backup")),
    Case("a blank", SAY.format("1.0 "), versions("1.0 ", "This is not a DuckLake version")),
    Case(
        "absent",
        "DELETE FROM ducklake_metadata WHERE key = 'version'",
        ("does not say which DuckLake version", "no row with the key 'version'", "backup"),
        kind=errors.CatalogError,
    ),
    Case(
        "two rows",
        "INSERT INTO ducklake_metadata (key, value) VALUES ('version', '1.1')",
        ("the DuckLake versions 1.0, 1.1", "delete the other rows"),
        kind=errors.CatalogError,
    ),
    Case(
        "1.1 by word",
        SAY.format("1.1"),
        (MISSING[0].format("ducklake_"), *MISSING[1:]),
        kind=errors.CatalogError,
    ),
    *(
        Case(
            f"1.1 without {name}",
            f"ALTER TABLE {name.replace('.', ' DROP COLUMN ')}" if "." in name else f"DROP TABLE {name}",
            (MISSING[0].format(name), *MISSING[1:]),
            of="1.1",
            kind=errors.CatalogError,
        )
        for name in (
            "ducklake_schema.parent_schema_id",
            "ducklake_data_file.row_group_count",
            "ducklake_delete_file.row_group_count",
            "ducklake_file_column_stats.min_is_exact",
            "ducklake_table_column_stats.max_is_exact",
            "ducklake_view_column_tag",
        )
    ),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case on SQLite; in CI each of the others gets a quarter of them a day."""
    if "case" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.option
    kinds = [kind for kind in CATALOG_KINDS if chosen.catalog in ("all", kind)]
    cases = [
        (kind, case)
        for kind in kinds
        for place, case in enumerate(CASES)
        if kind == "sqlite" or chosen.size == "full" or place % 4 == (chosen.seed + kinds.index(kind)) % 4
    ]
    metafunc.parametrize(("kind", "case"), cases, ids=[f"{kind}-{case.name}" for kind, case in cases])


def test_a_version_that_is_wrong(new_catalog, connect, kind, case: Case):
    catalog = new_catalog(kind)
    make_rows(catalog, case.of)
    run(catalog, case.damage)
    before = dump_catalog(catalog)
    connect(catalog)

    file = catalog.database if catalog.kind in ("postgres", "mariadb") else catalog.location
    with refusal(case.kind, file, *case.says):
        Lake.connect(catalog.sqlalchemy_url)
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert all(part in message for part in case.says)
    with refusal(case.kind, *case.says):
        DuckLakeHook().get_or_create_lake()
    assert dump_catalog(catalog) == before


@pytest.mark.every_catalog
def test_tables_without_rows_are_no_lake_yet(catalog):
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    run(catalog, *(f"DELETE FROM ducklake_{one}" for one in ("metadata", "snapshot", "schema")))
    run(catalog, "DELETE FROM ducklake_snapshot_changes")

    with refusal(errors.NotADuckLakeError, "holds no DuckLake catalog", "Lake.create"):
        Lake.connect(catalog.sqlalchemy_url)
    make_rows(catalog, "1.0")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 2


@pytest.mark.every_catalog
@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (
            "ALTER TABLE ducklake_table_column_stats ADD COLUMN min_is_exact BOOLEAN",
            "ducklake_table_column_stats.min_is_exact",
        ),
        ("CREATE TABLE ducklake_view_column_tag (view_id BIGINT)", "ducklake_view_column_tag"),
    ],
)
def test_1_0_with_what_only_1_1_has(catalog, statement, name):
    make_rows(catalog, "1.0")
    run(catalog, statement)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 2
        (found,) = lake.verify()

    assert (found.code.value, found.objects) == ("columns-too-new", {"name": name})
    assert name in found.sentence
    assert "1.0" in found.sentence
    assert found.remedy


# --- what only 1.1 has ---


@pytest.fixture
def nested(sqlite_catalog) -> CatalogDatabase:
    make_rows(sqlite_catalog, "1.1")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.create_schema("a")
        tx.create_schema("a.b")
        tx.create_table("a.b.u", {"i": "int32"})
    return sqlite_catalog


def test_schemas_in_a_circle(nested):
    run(
        nested,
        "UPDATE ducklake_schema SET parent_schema_id = (SELECT schema_id FROM ducklake_schema "
        "WHERE schema_name = 'b') WHERE schema_name = 'a'",
    )
    said = ('Schema "', "(id ", "lies in itself", "parent_schema_id", "Correct it", "backup")

    with Lake.connect(nested.sqlalchemy_url) as lake:
        assert "schema-circle" in {one.code.value for one in lake.verify()}
        for act in (lake.tables, lambda: lake.read_arrow("a.b.u"), lambda: writes(lake)):
            with refusal(errors.CatalogError, *said):
                act()


def writes(lake: Lake) -> None:
    alone(lake).create_schema("a.c")


def test_a_parent_that_is_nowhere(nested):
    run(nested, "UPDATE ducklake_schema SET parent_schema_id = 99 WHERE schema_name = 'b'")

    with Lake.connect(nested.sqlalchemy_url) as lake:
        assert [str(name) for name in lake.tables()] == ["main.t"]
        found = next(one for one in lake.verify() if one.code.value == "schema-missing")
        with refusal(errors.DuckLakeError, "a.b"):
            lake.read_arrow("a.b.u")

    for part in ("Schema b", "lies in schema 99", "does not exist"):
        assert part in found.sentence
    assert found.remedy


def deleted(catalog: CatalogDatabase, content: bytes) -> None:
    """Delete a row of `t` by a container, then put something else there."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.set_option("write_deletion_vectors", "true")
        alone(lake).delete_rows("t", "i = 1")
    (row,) = dump_catalog(catalog)["ducklake_delete_file"]
    (file,) = Path(catalog.data_path).rglob(Path(row["path"]).name)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (container(("3", vector(0)), (None, vector(1))), "only some of its vectors say by which snapshot"),
        (container(("3", vector(0)))[:-3], "its footer is not where it should be"),
        (vector(0)[:-1] + b"\0", "truncated or has a wrong checksum"),
        (container(("x", vector(0))), "a vector has the snapshot 'x'"),
    ],
    ids=["mixed", "truncated", "wrong CRC", "no snapshot"],
)
def test_a_container_that_is_damaged(sqlite_catalog, content, problem):
    make_rows(sqlite_catalog, "1.1")
    deleted(sqlite_catalog, content)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with refusal(errors.StorageError, ".puffin is damaged", problem, "Restore the file", "lake.verify()"):
            lake.read_arrow("t")
        found = next(one for one in lake.verify() if one.code.value == "file-unreadable")

    assert problem in found.sentence
    assert "Restore the file" in found.remedy


def test_a_container_whose_vectors_are_unsorted_is_read(sqlite_catalog):
    make_rows(sqlite_catalog, "1.1")
    deleted(sqlite_catalog, container(("9", vector(0, 1)), ("2", vector(0))))

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 1


def test_flags_without_their_bounds(sqlite_catalog):
    make_rows(sqlite_catalog, "1.1")
    run(sqlite_catalog, "UPDATE ducklake_file_column_stats SET max_value = NULL, max_is_exact = 1")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        found = [one for one in lake.verify() if one.code.value == "exact-without-bound"]
        lake.repair(found)
        assert "exact-without-bound" not in {one.code.value for one in lake.verify()}

    assert len(found) == 2
    assert "ducklake_file_column_stats of column 1 of main.t in data file 0" in found[0].sentence
    assert "lake.repair" in found[0].remedy


@pytest.mark.parametrize(
    ("column", "bound", "is_exact", "answer"),
    [
        (1, "min_value = '0'", 1, (0, 2)),
        (1, "max_value = '9'", 1, (1, 9)),
        (2, "min_value = 'A'", 1, ("A", "b")),
        (2, "min_value = 'A'", 0, None),
        (1, "max_value = '9'", None, (1, 9)),
    ],
)
def test_flags_that_call_a_bound_exact_that_is_none(sqlite_catalog, column, bound, is_exact, answer):
    """A wider bound loses no row, but its flag makes an answer of it; of numbers every client takes it so."""
    make_rows(sqlite_catalog, "1.1")
    end = bound[:3]
    flag = "NULL" if is_exact is None else is_exact
    of_column = f"WHERE column_id = {column}"
    run(
        sqlite_catalog,
        f"UPDATE ducklake_file_column_stats SET {bound}, {end}_is_exact = {flag} {of_column}",
        f"UPDATE ducklake_table_column_stats SET {bound}, {end}_is_exact = {flag} {of_column}",
    )
    name = "is"[column - 1]

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        said = lake.column_bounds("t", name)
        assert (said and (said.min.as_py(), said.max.as_py())) == answer
        found = lake.verify()
        if is_exact:
            (one,) = found
            assert one.code.value == "file-stats-inexact"
            for part in ("Data file 0 of main.t", f"in column {column}", repr(bound[-2]), "is a value"):
                assert part in one.sentence
            assert "lake.repair" in one.remedy
            lake.repair(found)
            said = lake.column_bounds("t", name)
            assert said is None or (said.min.as_py(), said.max.as_py()) == (
                (1, 2) if name == "i" else ("a", "b")
            )
        assert lake.verify() == []


def test_bounds_that_only_the_flags_call_exact_are_no_answer(sqlite_catalog):
    """A string that may have been cut is not the greatest value, whatever its flag says."""
    make_rows(sqlite_catalog, "1.1")
    cut = f"max_value = '{'b' * 256}', max_is_exact = 1"
    run(sqlite_catalog, f"UPDATE ducklake_file_column_stats SET {cut} WHERE column_id = 2")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.column_bounds("t", "s") is None
        assert lake.read_arrow("t", filter="s = 'b'").num_rows == 1


@pytest.mark.parametrize("value", ["x", "1.5", "", "99999999999999999999"])
def test_an_epoch_day_that_is_no_integer(sqlite_catalog, value):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"z": "timestamp"}, partition_by=["epoch_day(z)"])
            tx.append_arrow("t", pa.table({"z": pa.array([86_400_000_000], pa.timestamp("us"))}))
        run(sqlite_catalog, f"UPDATE ducklake_file_partition_value SET partition_value = '{value}'")

        assert lake.read_arrow("t", filter="z >= TIMESTAMP '1970-01-02 00:00:00'").num_rows == 1
        (found,) = lake.verify()

    assert found.code.value == "partition-value-differs"
    assert repr(value) in found.sentence
    assert "main.t" in found.sentence
    assert found.remedy


FEATURES: dict[str, Callable[[Lake], object]] = {
    "nested schemas": lambda lake: change(lake, lambda tx: tx.create_schema("main.a")),
    **{
        f"the epoch_{unit} partition transform": lambda lake, unit=unit: ddl(
            lake, f"ALTER TABLE t SET PARTITIONED BY (epoch_{unit}(z))"
        )
        for unit in ("year", "month", "day", "hour")
    },
    "COMMENT ON COLUMN for views": lambda lake: ddl(lake, "COMMENT ON COLUMN v.i IS 'x'"),
    "the NULL type": lambda lake: change(lake, lambda tx: tx.add_column("t", "n", "null")),
    "the type timestamptz_ns": lambda lake: ddl(lake, "ALTER TABLE t ADD COLUMN n TIMESTAMPTZ_NS"),
}


def change(lake: Lake, act: Callable[[LakeTransaction], object]) -> None:
    with lake.transaction() as tx:
        act(tx)


def ddl(lake: Lake, statements: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(statements))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_lake_of_1_0_is_asked_for_what_only_1_1_has(sqlite_catalog, feature):
    make_rows(sqlite_catalog, "1.0")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        ddl(lake, "CREATE VIEW v AS SELECT i FROM t; ALTER TABLE t ADD COLUMN z TIMESTAMP")
        before = dump_catalog(sqlite_catalog)

        said = (
            f"DuckLake 1.0 does not support {feature}.",
            "Nothing was changed.",
            f"{MIGRATE}(to_version='1.1')",
            "DuckDB 2.0 and newer open it, and no DuckDB 1.x",
        )
        with refusal(errors.UnsupportedFeatureError, *said):
            FEATURES[feature](lake)

        assert dump_catalog(sqlite_catalog) == before
