"""``Lake``: an open DuckLake catalog with its files. A thin face; the rules live in the modules it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.catalog.database.connect import (
    catalog_file,
    check_directory,
    open_engine,
    parse_url,
    shown,
)
from airflow_provider_ducklake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.catalog.dialects import bootstrap, dialect_of
from airflow_provider_ducklake.catalog.lake_maintenance import LakeMaintenance
from airflow_provider_ducklake.catalog.open_lake import translated
from airflow_provider_ducklake.catalog.snapshot import read
from airflow_provider_ducklake.errors import (
    InvalidInputError,
    NotADuckLakeError,
)
from airflow_provider_ducklake.spec.names.paths import directory_path, is_absolute
from airflow_provider_ducklake.spec.versions import CURRENT, SpecVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.engine import URL

    from airflow_provider_ducklake.spec.options import OptionRow


class Lake(LakeMaintenance):
    """An open lake. Make one with ``Lake.connect`` or ``Lake.create``.

    ``version`` is the catalog's spec version, ``data_path`` the root of its files (ends with ``/``),
    ``encrypted`` whether its files are.
    """

    @classmethod
    def connect(
        cls,
        url: str | URL,
        *,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        data_path: str | None = None,
        foreign_files: bool = False,
    ) -> Lake:
        """Open an existing lake.

        ``metadata_schema`` is the database schema of the catalog's tables (PostgreSQL; None: the connection's
        default); ``storage_options`` are fsspec's, for the files. ``data_path`` is where the files lie
        now, for a lake that was moved or that others open with ``OVERRIDE_DATA_PATH``; the catalog keeps its
        own record. ``foreign_files``: the lake may write and delete files outside of its data path, where its
        catalog says so; reading files that were added there needs no leave.

        Raises:
            CatalogUnavailableError: the database cannot be reached or refuses the login.
            NotADuckLakeError: it holds no DuckLake catalog.
            UnsupportedVersionError: its spec version is newer than 1.0.
        """
        parsed = parse_url(url)
        file = catalog_file(parsed)
        if file is not None and not file.exists():
            # the driver would make an empty file
            raise NotADuckLakeError(shown(parsed), "does not exist: there is no such file")
        dialect = dialect_of(open_engine(parsed), metadata_schema)
        try:
            with translated(parsed):
                options = read.stored_options(dialect, metadata_schema)
            version = _version(options, shown(parsed))
        except BaseException:
            dialect.engine.dispose()
            raise
        found_at = None if data_path is None else directory_path(data_path)
        tables = catalog_tables(version, metadata_schema)
        return cls(dialect, tables, options, storage_options, found_at, foreign_files=foreign_files)

    @classmethod
    def create(
        cls,
        url: str | URL,
        data_path: str,
        *,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        foreign_files: bool = False,
    ) -> Lake:
        """Create a lake in a database, with its files below ``data_path`` (absolute, or a URI), and open it.

        The other arguments are those of ``connect``.

        Raises:
            AlreadyExistsError: the database holds a lake already.
            InvalidInputError: the data path is relative.
            CatalogUnavailableError: the database cannot be reached or refuses the login; the file's directory
                does not exist.
        """
        if not is_absolute(data_path):
            raise InvalidInputError(
                f"The data path {data_path!r} is relative; give an absolute path or a URI."
            )
        parsed = parse_url(url)
        check_directory(parsed)
        dialect = dialect_of(open_engine(parsed), metadata_schema)
        try:
            with translated(parsed):
                bootstrap.bootstrap(dialect, catalog_tables(CURRENT, metadata_schema), data_path)
        finally:
            dialect.engine.dispose()
        return cls.connect(
            parsed,
            metadata_schema=metadata_schema,
            storage_options=storage_options,
            foreign_files=foreign_files,
        )


def _version(options: Sequence[OptionRow], catalog: str) -> SpecVersion:
    stored = [one.value for one in options if one.key == "version" and one.scope is None]
    if not stored:
        raise NotADuckLakeError(catalog)
    return min(map(SpecVersion.parse, stored))
