"""Arguments that make no sense fail a task for good, by a sentence that names them, and change nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake import operators
from tests.airflow.dags import context_of
from tests.interop.lakes import by_duckdb
from tests.reference import postgres
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase, CatalogKind, data_directory, file_catalog

EXPIRE, TAG = operators.DuckLakeExpireSnapshotsOperator, operators.DuckLakeTagOperator
EXPORT, RESTORE = operators.DuckLakeExportCatalogOperator, operators.DuckLakeRestoreOperator
VERIFY, HEALTH = operators.DuckLakeVerifyOperator, operators.DuckLakeTableHealthOperator
FLUSH, MIGRATE = operators.DuckLakeFlushInlinedDataOperator, operators.DuckLakeMigrateOperator
ADD = operators.DuckLakeAddTableOperator
ADDED = {"table": "new", "source": "/nowhere", "format": "delta", "create_table": True}
CLEAN_UPS = (operators.DuckLakeCleanupOldFilesOperator, operators.DuckLakeDeleteOrphanedFilesOperator)
OF_T = {"at": 2, "table": "orders", "dry_run": True}
PATH = {"path": "{tmp_path}/x.ducklake"}
INVALID: list[tuple[type, dict[str, Any], str]] = [
    (TAG, {"name": "a", "at": "yesterday"}, "yesterday"),
    (TAG, {"name": "a", "replace": "perhaps"}, "perhaps"),
    (EXPORT, {"path": "x.ducklake"}, "path='x.ducklake' is relative"),
    (EXPORT, PATH | {"format": "parquet"}, "choose one of duckdb, sqlite"),
    (EXPORT, PATH | {"copy_files": "perhaps"}, "perhaps"),
    (EXPORT, PATH | {"files_path": "/elsewhere"}, "give copy_files=True"),
    (RESTORE, {"at": 2, "dry_run": True}, "give a table"),
    (RESTORE, OF_T | {"table": ""}, "give a table"),
    (RESTORE, OF_T | {"schema": "main"}, "give a table"),
    (RESTORE, OF_T | {"at": ""}, "at is empty"),
    (RESTORE, OF_T | {"dry_run": "perhaps"}, "perhaps"),
    (EXPIRE, {}, "set the lake's option expire_older_than"),
    (EXPIRE, {"older_than": "7 days", "snapshots": [1]}, ""),
    (EXPIRE, {"keep_last": 0}, ""),
    (EXPIRE, {"keep_last": "two"}, "keep_last is 'two'"),
    (EXPIRE, {"keep_last": True}, "keep_last is True"),
    (EXPIRE, {"older_than": "last week"}, "'last week' is not a valid interval"),
    (EXPIRE, {"older_than": "1 month"}, "'1 month' is not a valid interval"),
    (EXPIRE, {"older_than": ""}, "'' is not a valid interval"),
    (EXPIRE, {"older_than": "2026-01-01T00:00:00"}, "no time zone"),
    (EXPIRE, {"older_than": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - the point
    (EXPIRE, {"older_than": 7}, "older_than is 7"),
    (EXPIRE, {"older_than": "1000000 days"}, "is longer than 2,000 years"),
    (EXPIRE, {"older_than": "99999999999 days"}, "is too long for an interval"),
    (EXPIRE, {"older_than": "23 hours"}, "younger than min_retention=1 day"),
    (EXPIRE, {"older_than": datetime(2126, 1, 1, tzinfo=UTC)}, "is in the future"),
    (EXPIRE, {"older_than": lambda: datetime.now(UTC)}, "younger than min_retention=1 day"),
    (EXPIRE, {"snapshots": [1, 2], "min_retention": "1 hour"}, "Snapshots [1, 2] are younger"),
    (EXPIRE, {"keep_last": 1, "min_retention": "a while"}, "'a while' is not a valid interval"),
    (EXPIRE, {"keep_last": 1, "min_retention": 5}, "min_retention is 5"),
    (EXPIRE, {"keep_last": 1, "keep": ["x"]}, "keep is 'x'"),
    (EXPIRE, {"snapshots": "newest"}, "snapshots is 'newest'"),
    (EXPIRE, {"snapshots": [1, "x"]}, "snapshots is 'x'"),
    (EXPIRE, {"keep_last": 1, "dry_run": "maybe"}, "dry_run is 'maybe'"),
    (VERIFY, {"sample": "some"}, "sample is 'some'"),
    (VERIFY, {"sample": 1.5}, "sample is 1.5"),
    (VERIFY, {"ignore": ["all"]}, "'all' is not a valid FindingCode"),
    (HEALTH, {"fail_above": {"beauty": 1}}, "fail_above names 'beauty'"),
    (HEALTH, {"fail_above": {"file_count": "few"}}, "fail_above['file_count'] is 'few'"),
    (HEALTH, {"fail_above": "file_count"}, "fail_above is 'file_count'"),
    (FLUSH, {"min_rows": "many"}, "min_rows is 'many'"),
    (FLUSH, {"dry_run": "maybe"}, "dry_run is 'maybe'"),
    (FLUSH, {"table": "main.orders", "schema": "main"}, "not both"),
    (MIGRATE, {"backup": "perhaps"}, "backup"),
    (ADD, ADDED | {"format": "hudi"}, "hudi"),
    (ADD, ADDED | {"source": "orders"}, "'orders'"),
    (ADD, ADDED | {"version": "newest"}, "version is 'newest'"),
    (ADD, ADDED | {"format": "iceberg", "catalog": {"uri": 5}}, "catalog is not a dict of strings"),
    (ADD, ADDED | {"allowed_paths": [5]}, "allowed_paths is [5]"),
    *(
        (operator, arguments, words)
        for operator in CLEAN_UPS
        for arguments, words in (
            ({"older_than": "23 hours"}, "younger than min_retention=1 day"),
            ({"older_than": "2 days", "min_retention": "3 days"}, "younger than min_retention=3 days"),
            ({"older_than": datetime(2126, 1, 1, tzinfo=UTC)}, "is in the future"),
            ({"older_than": "soon"}, "'soon' is not a valid interval"),
            ({"older_than": 5}, "older_than is 5"),
            ({"min_retention": "none"}, "'none' is not a valid interval"),
            ({"dry_run": "perhaps"}, "dry_run is 'perhaps'"),
        )
    ),
]
REFUSED = [
    *((operator, arguments, "InvalidInputError", words) for operator, arguments, words in INVALID),
    (TAG, {"name": ""}, "InvalidNameError", "'' cannot name a tag: it is empty"),
    (TAG, {"name": "a", "at": 99}, "SnapshotNotFoundError", "99"),
    (TAG, {"name": "a", "at": "tag:none"}, "TagNotFoundError", "'none'"),
    (TAG, {"name": "a", "at": "tag:"}, "InvalidNameError", ""),
    (TAG, {"name": "a", "action": "untag"}, "TagNotFoundError", ""),
    (EXPORT, PATH | {"at": 99}, "SnapshotNotFoundError", ""),
    (EXPORT, PATH | {"at": "tag:none"}, "TagNotFoundError", ""),
    (RESTORE, OF_T | {"at": 99}, "SnapshotNotFoundError", "99"),
    (RESTORE, OF_T | {"at": 1, "table": "late"}, "TableNotFoundError", "late"),
    (VERIFY, {"tables": ["nothing"]}, "TableNotFoundError", "nothing"),
    (FLUSH, {"table": "main.nothing"}, "TableNotFoundError", "nothing"),
]


@pytest.fixture(scope="module")
def lakes(server_port, tmp_path_factory) -> Iterator[Callable[[CatalogKind], CatalogDatabase]]:
    """Return a lake of a kind: its snapshots are young, and it has rows in files and in the catalog."""
    with ExitStack() as databases:

        @cache
        def lake(kind: CatalogKind) -> CatalogDatabase:
            catalog = file_catalog(kind, tmp_path_factory.mktemp(kind))
            if kind == "postgres":
                location = databases.enter_context(postgres.fresh_database(server_port(kind)))
                catalog = CatalogDatabase(kind, location, data_directory(tmp_path_factory.mktemp(kind)))
            by_duckdb(
                catalog,
                "CREATE TABLE orders AS SELECT i AS id FROM range(20) r(i)",
                "INSERT INTO orders VALUES (20), (21)",
                "DELETE FROM orders WHERE id = 3",
                "CREATE TABLE late AS SELECT 1 AS id",
            )
            return catalog

        yield lake


def contents(catalog: CatalogDatabase) -> tuple[dict[str, Any], list[Path]]:
    """Return the rows of all tables that have some, and the files."""
    rows = {table: found for table, found in dump_catalog(catalog).items() if found}
    return rows, sorted(Path(catalog.data_path).rglob("*"))


@pytest.mark.parametrize(
    ("operator", "arguments", "error", "words"),
    REFUSED,
    ids=[f"{one.__name__.removeprefix('DuckLake')}: {words or error}" for one, _, error, words in REFUSED],
)
def test_what_no_retry_cures_fails_for_good(
    lakes, catalog_kind, connect, tmp_path, operator, arguments, error, words
):
    catalog = lakes(catalog_kind)
    connect(catalog)
    before = contents(catalog)
    given = {name: value() if callable(value) else value for name, value in arguments.items()}
    if "path" in given:
        given["path"] = given["path"].format(tmp_path=tmp_path)

    with pytest.raises(AirflowFailException) as raised:
        operator(task_id="task", retries=0, **given).execute(context_of("task"))

    assert str(raised.value).startswith(f"{error}: ")
    assert words in str(raised.value)
    assert contents(catalog) == before
    assert list(tmp_path.glob("x.*")) == []
