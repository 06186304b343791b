"""The DuckLake versions that a connection allows, beside the table of test_version_table.py."""

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    InvalidOptionError,
    UnsupportedVersionError,
)
from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
from tests.reference.catalogs import CATALOG_KINDS, CatalogDatabase

TOO_NEW = "The connection allows DuckLake 1.0 at most. The lake has DuckLake 1.1"


@pytest.fixture(params=CATALOG_KINDS)
def new(request, new_catalog) -> CatalogDatabase:
    return new_catalog(request.param)


def make(catalog: CatalogDatabase, version: str) -> None:
    Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version).close()


def version_in(catalog: CatalogDatabase) -> str:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return lake.version.value


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
