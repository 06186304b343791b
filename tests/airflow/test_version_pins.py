"""The DuckLake versions that a connection allows, on the rules of the reference's ATTACH."""

import pytest
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import update

from airflow_provider_ducklake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.errors import (
    InvalidInputError,
    InvalidOptionError,
    UnsupportedVersionError,
)
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
from airflow_provider_ducklake.spec.versions import SpecVersion
from tests.interop.old_lakes import writing
from tests.reference.catalogs import CATALOG_KINDS, CatalogDatabase

MISMATCH = "DuckLake catalog version mismatch: catalog version is {}, but the connection requires version {}."
NO_WAY_BACK = "version is '1.1', which is newer than the requested version '1.0'. Cannot downgrade"
TOO_NEW = "The connection allows DuckLake 1.0 at most. The lake has DuckLake 1.1"


@pytest.fixture(params=CATALOG_KINDS)
def new(request, new_catalog) -> CatalogDatabase:
    return new_catalog(request.param)


def make(catalog: CatalogDatabase, version: str) -> None:
    Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version).close()


def say(catalog: CatalogDatabase, version: str) -> None:
    metadata = catalog_tables(SpecVersion.V1_0)["metadata"]
    with writing(catalog) as connection:
        connection.execute(update(metadata).where(metadata.c.key == "version").values(value=version))


def version_in(catalog: CatalogDatabase) -> str:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return lake.version.value


@pytest.mark.parametrize(
    ("extra", "made"),
    [
        ({}, "1.0"),
        ({"max_version": "1.1"}, "1.0"),
        ({"ducklake_version": "1.0"}, "1.0"),
        ({"ducklake_version": "1.1"}, "1.1"),
        ({"ducklake_version": 1.1, "max_version": 1.1}, "1.1"),
    ],
)
def test_a_new_lake_gets_the_connections_version(sqlite_catalog, connect, extra, made):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path, **extra)
    _, message = DuckLakeHook().test_connection()

    DuckLakeHook().get_or_create_lake().close()

    assert version_in(sqlite_catalog) == made
    assert f"It gets DuckLake {made}: DuckDB {'1.5' if made == '1.0' else '2.0'} and newer open it" in message


@pytest.mark.parametrize(
    ("version", "extra", "refusal"),
    [
        ("1.0", {}, None),
        ("1.1", {}, None),
        ("1.0", {"ducklake_version": "1.0"}, None),
        ("1.1", {"ducklake_version": "1.1"}, None),
        ("1.0", {"max_version": "1.0"}, None),
        ("1.0", {"ducklake_version": "1.1"}, MISMATCH.format("1.0", "1.1")),
        ("1.1", {"ducklake_version": "1.0"}, NO_WAY_BACK),
        (
            "0.4",
            {"ducklake_version": "1.0"},
            MISMATCH.format("0.4", "1.0"),
        ),
        ("1.1", {"max_version": "1.0"}, TOO_NEW),
        ("1.1-dev1", {}, "'1.1-dev1'"),
        ("1.2", {}, "'1.2'"),
    ],
)
def test_who_opens_which_lake(new, connect, version, extra, refusal):
    make(new, "1.1" if version > "1.0" else "1.0")
    say(new, version)
    connect(new, **extra)

    works, message = DuckLakeHook().test_connection()

    assert works is (refusal is None)
    if refusal is None:
        assert f"DuckLake {version} at snapshot 0" in message
        assert ("DuckDB 1.5 and newer open it" if version == "1.0" else "no DuckDB 1.x") in message
    else:
        assert refusal in message
    if refusal is not None and extra:
        assert f"({next(iter(extra))})" in message
        with pytest.raises(InvalidOptionError):
            DuckLakeHook().lake()


@pytest.mark.parametrize(
    ("version", "extra", "to_version", "becomes"),
    [
        ("1.0", {}, "1.1", "1.1"),
        ("1.0", {}, "1.0", "1.0"),
        ("1.0", {"ducklake_version": "1.1"}, "1.1", "1.1"),
        ("1.0", {"ducklake_version": "1.0"}, "1.0", "1.0"),
        ("1.0", {"max_version": "1.1"}, "1.1", "1.1"),
        ("1.0", {"ducklake_version": "1.0"}, "1.1", None),
        ("1.0", {"ducklake_version": "1.1"}, "1.0", None),
        ("1.0", {"max_version": "1.0"}, "1.1", None),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_lake_is_migrated_to_what_the_connection_allows(
    sqlite_catalog, connect, version, extra, to_version, becomes, dry_run
):
    make(sqlite_catalog, version)
    connect(sqlite_catalog, **extra)
    migrate = DuckLakeMigrateOperator(task_id="t", to_version=to_version, dry_run=dry_run)

    if becomes is None:
        with pytest.raises(AirflowFailException, match=next(iter(extra))):
            migrate.execute({})
    else:
        assert migrate.execute({})["to_version"] == becomes

    assert version_in(sqlite_catalog) == (version if dry_run else becomes or version)


@pytest.mark.parametrize("extra", [{"max_version": "1.0"}, {"ducklake_version": "1.0"}])
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_lake_of_a_hook_is_not_migrated_beyond_the_connections_version(
    sqlite_catalog, connect, extra, dry_run, is_there
):
    if is_there:
        make(sqlite_catalog, "1.0")
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path, **extra)

    with pytest.raises(InvalidInputError) as refused:
        DuckLakeHook().get_or_create_lake().migrate("1.1", dry_run=dry_run)

    for part in ("to_version: '1.1'", "'1.0'", "no DuckDB 1.x", "Nothing was changed", "max_version '1.1'"):
        assert part in str(refused.value)
    assert version_in(sqlite_catalog) == "1.0"


def test_a_lake_that_is_too_new_is_not_even_migrated(new, connect):
    make(new, "1.1")
    connect(new, max_version="1.0")

    with pytest.raises(AirflowFailException, match=TOO_NEW):
        DuckLakeMigrateOperator(task_id="t").execute({})


def test_the_library_has_the_same_limit(new):
    make(new, "1.0")
    with Lake.connect(new.sqlalchemy_url, max_version="1.0") as lake:
        with pytest.raises(InvalidInputError, match=r"'1\.1' is newer than '1\.0'"):
            lake.migrate("1.1")
        assert lake.migrate("1.0").steps == ()
    with Lake.connect(new.sqlalchemy_url, max_version="1.1") as lake:
        assert lake.migrate("1.1", backup=False).to_version == "1.1"

    with pytest.raises(UnsupportedVersionError) as refused:
        Lake.connect(new.sqlalchemy_url, max_version="1.0")

    for part in ("'1.1'", "supports 0.1, 0.2, 0.3, 0.4, 1.0", "no DuckDB 1.x", "max_version '1.1'"):
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
