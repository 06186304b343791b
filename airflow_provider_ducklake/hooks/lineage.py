"""Lake tables as OpenLineage knows them: by the catalog database, and not by what an Airflow calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.assets.ducklake import table_of
from airflow_provider_ducklake.errors import DuckLakeError
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from airflow_provider_ducklake.hooks.connection_settings import ConnectionSettings


def namespace_of(settings: ConnectionSettings) -> str:
    """Return the namespace of a lake's tables: its catalog, without a user: ``ducklake:postgres://host:5432/db``."""
    url = settings.url
    kind = url.get_backend_name().replace("postgresql", "postgres")
    if url.host is None:
        return f"ducklake:{kind}://{url.database}"
    port = url.port or {"postgres": 5432, "mysql": 3306}[kind]
    schema = f"/{settings.metadata_schema}" if settings.metadata_schema else ""
    return f"ducklake:{kind}://{url.host}:{port}/{url.database}{schema}"


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Any | None:  # noqa: ANN401, ARG001 - OpenLineage's
    """Return the dataset of a table's asset; None: its connection cannot be read here."""
    from airflow.providers.common.compat.openlineage.facet import Dataset  # noqa: PLC0415 - not always installed

    conn_id, table = table_of(asset.uri)
    try:
        namespace = namespace_of(DuckLakeHook(conn_id).settings())
    except DuckLakeError:
        return None
    return Dataset(namespace=namespace, name=str(table))
