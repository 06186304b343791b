"""Secondary indexes for catalogs with many files: the format has primary keys only.

They stay out of the way of other clients: DuckDB neither needs nor minds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Index

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog

PREFIX = "airflow_ducklake_"
_INDEXED = (
    ("data_file", ("table_id",)),
    ("delete_file", ("data_file_id",)),
    ("delete_file", ("table_id",)),
    ("file_column_stats", ("table_id", "column_id")),
    ("file_column_stats", ("data_file_id",)),
    ("file_partition_value", ("data_file_id",)),
    ("column", ("table_id",)),
    ("table_column_stats", ("table_id",)),
    ("table_stats", ("table_id",)),
    ("schema_versions", ("table_id",)),
)


def create_indexes(catalog: Catalog) -> list[str]:
    """Create the indexes that are missing and return their names."""
    created: list[str] = []
    with catalog.dialect.writing() as connection:
        for kind, names in _INDEXED:
            table = catalog.tables[kind]
            name = f"{PREFIX}{kind}_{'_'.join(names)}"
            if name not in catalog.dialect.index_names(connection, table.name, table.schema):
                # Beside the table's own definition, not part of it: bootstrap must not create it.
                copy = table.to_metadata(type(table.metadata)(schema=table.schema))
                Index(name, *(copy.c[column] for column in names)).create(connection)
                created.append(name)
        connection.commit()
    return created
