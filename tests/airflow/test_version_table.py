"""Who opens which version of a lake: the table of the rules of DuckLake 1.1, row by row, in every database.

A row is what is there, what a connection of ours or an ATTACH of DuckDB 1.5.5 asks for, and what becomes of
it; `tests/reference/test_next.py` has the rows of a client of 1.1. What is refused changes nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import update

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.lake.format.versions import SpecVersion
from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
from tests.interop.old_lakes import writing
from tests.reference import duckdb_lake
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.catalogs import CatalogDatabase

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
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
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
    [
        ({}, NEEDS_1_0),
        ({"read_only": True}, NEEDS_1_0),
        ({"automatic_migration": True}, ONLY_UP_TO_1_0),
    ],
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
