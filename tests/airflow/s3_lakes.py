"""Lakes on S3, whose keys only their Airflow connection has."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.airflow.conftest import SetConnection, connection_fields
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import load_extension


@contextmanager
def s3_lake(
    catalog: CatalogDatabase, data_path: str, endpoint: str, set_connection: SetConnection
) -> Iterator[Lake]:
    """Make a lake below ``data_path`` and the default connection to it."""
    options = {"key": "id", "secret": s3.SECRET, "endpoint_url": endpoint}
    set_connection(**connection_fields(catalog, data_path=data_path, storage_options=options))
    hook = DuckLakeHook()
    yield hook.get_or_create_lake()
    hook.close()


def read_by_duckdb(catalog: CatalogDatabase, endpoint: str, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for extension in ("httpfs", "ducklake", "postgres_scanner"):
            load_extension(connection, extension)
        connection.execute(
            "CREATE SECRET (TYPE s3, KEY_ID 'id', SECRET 'x', URL_STYLE 'path', USE_SSL false, ENDPOINT "
            f"'{endpoint.removeprefix('http://')}')"
        )
        connection.execute(f"ATTACH '{catalog.attach_string}' AS lake; USE lake")
        return connection.execute(query).fetchall()
