"""Back up a catalog file, in its own directory, before a migration."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.database.catalog_files import made_private
from airflow_provider_ducklake.lake.catalog.database.connect import catalog_file

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.lake.spec.versions import SpecVersion


def back_up(dialect: CatalogDialect, connection: Connection, version: SpecVersion) -> Path | None:
    """Copy the catalog's file and return where to; None: it lies on a server, which has ways of its own.

    Nobody can read the copy who cannot read the original.
    The connection holds the commit lock, and has changed nothing yet.
    """
    file = catalog_file(dialect.engine.url)
    if file is None:
        return None
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target = file.with_name(f"{file.name}.{version.value}.{now}.backup")
    with made_private(target, like=file) as made:
        dialect.copy_file(connection, made)
    return target
