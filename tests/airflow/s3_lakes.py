"""Lakes on S3, whose keys only their Airflow connection has."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.airflow.conftest import SetConnection, connection_fields
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase


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
