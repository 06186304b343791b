"""A catalog database, opened: what every operation on it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import UntrustedValueError
from airflow_provider_ducklake.lake.spec.names.paths import why_not_ours
from airflow_provider_ducklake.lake.spec.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.lake.spec.options import OptionRow


@dataclass(frozen=True, slots=True)
class Catalog:
    """The database's ways, its tables, and the root of the lake's files (ends with ``/``).

    ``foreign_files``: files outside of that root may be written and deleted, too. ``key_bytes`` is the length
    of new files' keys, 0 in a lake that is not encrypted.
    """

    dialect: CatalogDialect
    tables: CatalogTables
    data_path: str
    foreign_files: bool = False
    key_bytes: int = 0

    def options(
        self, rows: Iterable[OptionRow], schema_id: int | None = None, table_id: int | None = None
    ) -> Options:
        """Return the options for that scope, with what is known of the lake."""
        return Options.effective(rows, schema_id, table_id).with_keys_of(self.key_bytes)

    def check_writable(self, directory: str) -> None:
        """Refuse a directory, which rows of the catalog name, before files are written there.

        Raises:
            UntrustedValueError: it is not below the data path, and no user said that it may be elsewhere.
        """
        problem = why_not_ours(directory, self.data_path, foreign_files=self.foreign_files)
        if problem is not None:
            raise UntrustedValueError("The catalog", directory, problem)
