"""ducklakepy, a second implementation of DuckLake, which has 1.1; it runs in another environment.

`DEVIATIONS` says which of its rows are not the reference's. It writes variants inlined only, and inlines no
nested values. Where a table of 1.1 has two equal bounds, it keeps the flag of the first.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.reference.catalogs import CatalogDatabase
from tests.reference.next.process import OracleProcess, Remote, shared_process

# "table.column", or a table of which it has other rows: what differs from the reference in a lake of 1.0
DEVIATIONS = {
    "ducklake_schema.schema_uuid": "32 digits without dashes in SQLite",
    "ducklake_table.table_uuid": "32 digits without dashes in SQLite",
    "ducklake_view.view_uuid": "32 digits without dashes in SQLite",
    "ducklake_snapshot.next_file_id": "an inlined insert takes none",
    "ducklake_snapshot_changes.commit_extra_info": "names the transaction",
    "ducklake_data_file.file_order": "counts from 0",
    "ducklake_column.initial_default": "NULL for a column that CREATE TABLE gave a default",
    "ducklake_column.default_value": "NULL, not 'NULL', where there is no default",
    "ducklake_column.default_value_type": "NULL where there is no default",
    "ducklake_column.default_value_dialect": "NULL",
    "ducklake_file_column_stats.min_value": "strings are not cut to 256 bytes",
    "ducklake_file_column_stats.max_value": "strings are not cut to 256 bytes",
    "ducklake_table_column_stats.min_value": "strings are not cut, blobs have no bounds",
    "ducklake_table_column_stats.max_value": "strings are not cut, blobs have no bounds",
    "ducklake_table_column_stats": "a row for a column that was added to a table with rows",
    "ducklake_tag": "no row for a comment that was removed",
}


class DuckLakePyLake(Remote):
    """One lake as ducklakepy has it open; `tests/reference/next/lake.py` lists its methods.

    A table is named by "t", "schema.t", "sales.europe.orders" or a tuple of names, of which "t" is in `main`.
    """

    @contextmanager
    def transaction(self, message: str | None = None) -> Iterator[None]:
        """Commit what the block writes as one snapshot, or nothing of it if the block raises."""
        self.begin(message)
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()


def open_lake(
    catalog: CatalogDatabase | str,
    data_path: str | None = None,
    *,
    process: OracleProcess | None = None,
    **options: object,
) -> DuckLakePyLake:
    """Open a lake at its own version, or create it as 1.1 if its catalog is empty.

    Args:
        catalog: a SQLite or PostgreSQL catalog (its data path is the default), or its SQLAlchemy URL.
        data_path: where the files go.
        process: another than the one that this worker shares, for a second client at the same time.
        options: `version="1.0"` to create or open at that version; `migrate=True` to bring an older catalog
            to it (without one, to 1.1); `inline_limit` to overrule the lake's; `encrypted` for a new lake.

    Raises:
        OracleError: ducklakepy refuses the catalog.
    """
    if isinstance(catalog, CatalogDatabase):
        data_path = data_path or catalog.data_path
        catalog = catalog.sqlalchemy_url
    return DuckLakePyLake(process or shared_process(), "lake", catalog, data_path, **options)
