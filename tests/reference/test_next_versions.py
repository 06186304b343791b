"""Who opens which version of a lake: ducklakepy, which follows the rules of 1.1, and DuckDB 1.5.5."""

import sqlite3
from contextlib import closing

import duckdb
import pytest

from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.next.process import OracleError

RELEASED = ("1.0", "1.1")


@pytest.fixture
def lake_of(new_catalog):
    """Make a SQLite lake that says it is of a version, with a table of one row."""

    def make(version: str) -> CatalogDatabase:
        catalog = new_catalog("sqlite")
        with ducklakepy_lake.open_lake(catalog, version="1.1" if version > "1.0" else "1.0") as lake:
            lake.create_table("t", {"i": "int64"})
            lake.insert("t", [{"i": 1}])
        with closing(sqlite3.connect(catalog.location)) as connection, connection:
            connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'version'", [version])
        return catalog

    return make


def version_of(catalog: CatalogDatabase) -> str:
    rows = dump_catalog(catalog)["ducklake_metadata"]
    return next(row["value"] for row in rows if row["key"] == "version")


@pytest.mark.parametrize(
    ("request_", "made"), [({}, "1.1"), ({"version": "1.0"}, "1.0"), ({"version": "1.1"}, "1.1")]
)
def test_a_new_lake_is_of_the_newest_version_unless_asked_for_another(sqlite_catalog, request_, made):
    with ducklakepy_lake.open_lake(sqlite_catalog, **request_) as lake:
        assert lake.version() == made


@pytest.mark.parametrize(
    ("version", "request_", "opened"),
    [
        ("1.0", {}, "1.0"),
        ("1.1", {}, "1.1"),
        ("1.0", {"migrate": True}, "1.1"),
        ("1.0", {"version": "1.0"}, "1.0"),
        ("1.0", {"version": "1.0", "migrate": True}, "1.0"),
        ("1.0", {"version": "1.1", "migrate": True}, "1.1"),
        ("1.1", {"version": "1.1"}, "1.1"),
        ("1.1", {"migrate": True}, "1.1"),
    ],
)
def test_a_lake_is_opened_at_its_own_version_and_migrated_only_if_asked(lake_of, version, request_, opened):
    catalog = lake_of(version)

    with ducklakepy_lake.open_lake(catalog, **request_) as lake:
        assert lake.version() == opened
        lake.insert("t", [{"i": 2}])
        assert lake.count("t") == 2

    assert version_of(catalog) == opened


@pytest.mark.parametrize(
    ("version", "request_", "message"),
    [
        ("1.0", {"version": "1.1"}, "catalog is at DuckLake spec 1.0 but 1.1 was requested"),
        ("1.1", {"version": "1.0"}, "newer than the requested 1.0; a catalog cannot be downgraded"),
        ("1.1", {"version": "1.0", "migrate": True}, "a catalog cannot be downgraded"),
        ("0.4", {}, "which predates 1.0"),
        ("0.4", {"migrate": True}, "can only migrate from 1.0 onwards"),
        ("1.1-dev1", {}, "a development version that must be migrated to 1.1"),
        ("1.1-dev1", {"version": "1.0"}, "a catalog cannot be downgraded"),
        ("1.2", {}, "unknown DuckLake spec version '1.2'"),
        ("1.0", {"version": "0.4"}, "spec_version must be '1.0' or '1.1'"),
    ],
)
def test_what_a_client_of_1_1_refuses(lake_of, version, request_, message):
    catalog = lake_of(version)
    before = dump_catalog(catalog)

    with pytest.raises(OracleError) as refused:
        ducklakepy_lake.open_lake(catalog, **request_)

    assert message in str(refused.value)
    assert dump_catalog(catalog) == before


def test_a_development_version_is_migrated_if_asked(lake_of):
    catalog = lake_of("1.1-dev1")

    with ducklakepy_lake.open_lake(catalog, migrate=True) as lake:
        assert lake.version() == "1.1"
        assert lake.read("t").to_pylist() == [{"i": 1}]


@pytest.mark.parametrize("options", [{}, {"read_only": True}])
def test_a_client_of_1_0_refuses_a_lake_of_1_1_and_advises_to_migrate(lake_of, options):
    with pytest.raises(
        duckdb.Error, match=r"catalog version is 1\.1, but the extension requires version 1\.0"
    ):
        duckdb_lake.open_lake(lake_of("1.1"), **options)


def test_a_client_of_1_0_that_is_to_migrate_a_lake_of_1_1_names_what_it_supports(lake_of):
    catalog = lake_of("1.1")
    before = dump_catalog(catalog)

    with pytest.raises(duckdb.Error, match=r"Only DuckLake versions .*, 0\.4, 1\.0 are supported"):
        duckdb_lake.open_lake(catalog, automatic_migration=True)

    assert dump_catalog(catalog) == before


def test_a_client_of_1_0_on_renamed_inlined_tables_reads_nothing_at_all(lake_of):
    catalog = lake_of("1.0")
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute(
            "ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN begin_snapshot TO _ducklake_begin_snapshot"
        )

    with (
        duckdb_lake.open_lake(catalog) as lake,
        pytest.raises(duckdb.Error, match='column "begin_snapshot" not found'),
    ):
        lake.sql("FROM t")


@pytest.mark.parametrize(
    ("feature", "ask"),
    [
        ("nested schemas", lambda lake: lake.create_schema("a.b")),
        ("the epoch_year partition transform", lambda lake: lake.partition_by("t", "epoch_year(d)")),
        ("the epoch_month partition transform", lambda lake: lake.partition_by("t", "epoch_month(d)")),
        ("the epoch_day partition transform", lambda lake: lake.partition_by("t", "epoch_day(d)")),
        ("the epoch_hour partition transform", lambda lake: lake.partition_by("t", "epoch_hour(d)")),
        ("COMMENT ON COLUMN for views", lambda lake: lake.comment("v", "x", column="i")),
        ("the NULL type", lambda lake: lake.create_table("n", {"n": "null"})),
        ("the NULL type", lambda lake: lake.create_table("n", {"n": {"l": ["null"]}})),
    ],
)
def test_what_needs_1_1_is_refused_at_1_0(sqlite_catalog, feature, ask):
    with ducklakepy_lake.open_lake(sqlite_catalog, version="1.0") as lake:
        lake.create_schema("a")
        lake.create_table("t", {"i": "int64", "d": "timestamp"})
        lake.create_view("v", "SELECT i FROM main.t")
        head = lake.head()

        with pytest.raises(OracleError, match=f"DuckLake 1.0 does not support {feature} - ") as refused:
            ask(lake)

        assert refused.value.kind == "UnsupportedSpecVersionError"
        assert lake.head() == head


@pytest.mark.parametrize("version", RELEASED)
def test_which_column_names_are_reserved(sqlite_catalog, version):
    with ducklakepy_lake.open_lake(sqlite_catalog, version=version) as lake:
        taken = {"1.0": "row_id", "1.1": "_DuckLake_x"}[version]
        free = {"1.0": "_DuckLake_x", "1.1": "row_id"}[version]
        with pytest.raises(OracleError) as refused:
            lake.create_table("t", {taken: "int64"})
        lake.create_table("t", {free: "int64"})

    assert refused.value.kind == "ReservedColumnNameError"
