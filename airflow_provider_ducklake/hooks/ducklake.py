"""Open the lake that an Airflow connection describes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..lake import errors
from ..lake.format.limits import Limits
from ..lake.format.versions import SpecVersion, opened_by
from .connection import (
    ConnectionSettings,
    check_lake,
    check_migration,
    newest_version,
    read_settings,
    version_of_new_lake,
)
from .connection_form import (
    CATALOG_TYPES,
    CONNECTION_TYPE,
    DATA_PATH,
    ENCRYPTED,
    form_widgets,
    hook_field_behaviour,
)
from .task import LogsInLines

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from sqlalchemy.engine import URL

    from ..lake.catalog.drafting.transaction import LakeTransaction
    from ..lake.catalog.lake import Lake
    from ..lake.catalog.migrations.migrate import MigrationResult
    from ..lake.catalog.reports.numbers import ColumnBounds, TableInfo
    from ..lake.format.snapshots import CommitKey, CommittedSnapshot, JsonValue
    from ..lake.writes.session import LakeSession
    from ..lake.writes.staged import Staged

_TEST_TIMEOUT_SECONDS = 5  # for a connection
_TEST_PATIENCE_SECONDS = 20.0  # for an answer


class DuckLakeHook(LogsInLines, BaseHook):
    """Open the lake that a connection of type ``ducklake`` describes; the end of a ``with`` block closes it.

    :param ducklake_conn_id: the id of the connection, which is read when the lake is first used.
    :param hook_lineage: report to Airflow's hook lineage, if anything reads it (OpenLineage does), the tables
        that are read and written through the hook. Operators report their own, and turn it off.
    """

    conn_name_attr = "ducklake_conn_id"
    default_conn_name = "ducklake_default"
    conn_type = CONNECTION_TYPE
    hook_name = "DuckLake"

    def __init__(
        self,
        ducklake_conn_id: str = default_conn_name,
        logger_name: str | None = None,
        *,
        hook_lineage: bool = True,
    ) -> None:
        super().__init__(logger_name=logger_name)
        self.ducklake_conn_id = ducklake_conn_id
        self.hook_lineage = hook_lineage
        self._lake: Lake | None = None

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's own fields, for Airflow 3.1."""
        return form_widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Describe the common fields of the form, for Airflow 3.1."""
        return hook_field_behaviour()

    def settings(self) -> ConnectionSettings:
        """Return the settings of the connection.

        Raises:
            InvalidInputError: the connection does not exist.
            InvalidOptionError: a field of the connection makes no sense.
        """
        return self._settings()

    def _settings(self, named: str | None = None) -> ConnectionSettings:
        try:
            connection = self.get_connection(self.ducklake_conn_id)
        except AirflowNotFoundException:
            raise _missing_connection(self.ducklake_conn_id) from None
        return read_settings(connection, named)

    def lake(self) -> Lake:
        """Return the connection's lake, which is opened once and kept.

        A connection with ``create_lake`` creates it where there is none.

        Raises:
            InvalidOptionError: a field of the connection makes no sense, or its data path or versions are not
                the lake's.
            NotADuckLakeError: the catalog database holds no lake; see ``get_or_create_lake``.
        """
        if self._lake is None:
            settings = self.settings()
            self._lake = self._opened(settings, creates=settings.create_lake)
        return self._lake

    def migrate(self, to_version: str, *, dry_run: bool = False, backup: bool = True) -> MigrationResult:
        """Migrate the connection's lake, also one whose migration to DuckLake 1.1 has not finished.

        The arguments are those of ``Lake.migrate``.

        Raises:
            InvalidOptionError: the connection's ``ducklake_version`` or ``max_version`` forbids it.
        """
        settings = self.settings()
        check_migration(settings, to_version)
        self.close()
        with self._announced(_open(settings, to_migrate=True), settings) as lake:
            return lake.migrate(to_version, dry_run=dry_run, backup=backup)

    def _announced(self, lake: Lake, settings: ConnectionSettings) -> Lake:
        """Log which lake it is: whatever a task does then, it does there."""
        self.log.info(
            "Lake %s: DuckLake %s in %s, files in %s",
            *(self.ducklake_conn_id, lake.version.value, _place(settings.url), lake.data_path),
        )
        return lake

    def _observed(self, lake: Lake) -> Lake:
        """Report the tables that are read and written to Airflow."""
        if self.hook_lineage:
            from .lineage import HookLineage

            lake.opened.observer = HookLineage(DuckLakeHook(self.ducklake_conn_id))
        return lake

    def get_conn(self) -> Lake:
        """Return the same as ``lake``."""
        return self.lake()

    def get_or_create_lake(self) -> Lake:
        """Return the connection's lake; create it with the connection's data path if there is none yet."""
        if self._lake is None:
            self._lake = self._opened(self.settings(), creates=True)
        return self._lake

    def _opened(self, settings: ConnectionSettings, *, creates: bool) -> Lake:
        try:
            lake = _open(settings)
        except errors.NotADuckLakeError:
            if not creates:
                raise
            lake = _create(settings)
            self.log.info("Created the lake of connection %s", self.ducklake_conn_id)
        return self._observed(self._announced(lake, settings))

    def close(self) -> None:
        """Close the lake if it is open; the next use opens it again."""
        if self._lake is not None:
            self._lake.close()
            self._lake = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transaction(
        self,
        author: str | None = None,
        message: str | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> LakeTransaction:
        """Return a transaction on the lake: one snapshot, committed at the end of the ``with`` block.

        With a ``commit_key``, such as ``f"{dag_id} {run_id}"``, it is committed once however often it is run;
        if it was committed before, ``committed`` is set when the block begins.
        """
        return self.lake().transaction(author=author, message=message, extra=extra, commit_key=commit_key)

    def append_arrow(
        self,
        table: str | tuple[str, str],
        rows: Any,  # noqa: ANN401 - pyarrow has no types to name
        *,
        message: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Append a ``pyarrow.Table`` as one snapshot, without Spark: for small writes."""
        return self.lake().append_arrow(table, rows, message=message, commit_key=commit_key)

    def read_arrow(
        self,
        table: str | tuple[str, str],
        *,
        at: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        staged: Staged = (),
    ) -> Any:  # noqa: ANN401 - pyarrow has no types to name
        """Return a table's rows as a ``pyarrow.Table``, without Spark; ``at`` is a snapshot id, time or tag.

        With ``filter``, a condition such as ``"price > 10 AND day = '2024-01-31'"``, only the rows that
        satisfy it. With ``staged``, the return values of tasks with ``stage_only=True``, the newest
        snapshot's rows as they would be if the staged writes to this table were committed.
        """
        from ..lake.writes.staged import read_staged

        lake = self.lake()
        return lake.read_arrow(table, at=at, columns=columns, filter=filter, staged=read_staged(lake, staged))

    def read_spark(
        self,
        spark: Any,  # noqa: ANN401 - a SparkSession; pyspark is imported in spark/ only
        table: str | tuple[str, str],
        *,
        at: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
    ) -> Any:  # noqa: ANN401 - a DataFrame
        """Return the rows that ``read_arrow`` returns as a Spark DataFrame of your session.

        The catalog is asked here, for one snapshot; Spark only sees files.
        """
        return self.lake().read_spark(spark, table, at=at, columns=columns, filter=filter)

    def session(self, spark: Any, *, author: str | None = None) -> LakeSession:  # noqa: ANN401 - a SparkSession
        """Return the lake in your SparkSession: the operators' verbs without submitting a job."""
        from ..lake.writes.session import LakeSession

        return LakeSession(spark, self.lake(), author=author)

    def duckdb_attach(self, alias: str = "lake") -> str:
        """Return the statement with which DuckDB attaches the lake as ``alias``, without the password.

        DuckDB takes the password of a PostgreSQL catalog from the environment variable ``PGPASSWORD``, that
        of a MySQL catalog from ``MYSQL_PWD``, or from a secret: ``CREATE SECRET (TYPE postgres, …)``.
        """
        from .connection import attach_statement

        return attach_statement(self.settings(), alias)

    def get_df(
        self,
        table: str | tuple[str, str],
        *,
        at: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:  # noqa: ANN401 - pandas is not ours to import
        """Return the same as ``read_arrow`` as a pandas ``DataFrame``; install pandas for it."""
        return self.lake().read_arrow(table, at=at, columns=columns).to_pandas()

    def table_info(
        self, table: str | tuple[str, str] | None = None, at: int | datetime | str | None = None
    ) -> list[TableInfo]:
        """Return the files, sizes and inlined rows of all tables, or of one, from the catalog alone."""
        return self.lake().table_info(table, at)

    def row_count(self, table: str | tuple[str, str], at: int | datetime | str | None = None) -> int:
        """Return the exact number of rows of a table, from the catalog alone if possible."""
        return self.lake().row_count(table, at)

    def column_bounds(
        self, table: str | tuple[str, str], column: str, at: int | datetime | str | None = None
    ) -> ColumnBounds | None:
        """Return the smallest and largest value of a column, or None if the catalog does not have them."""
        return self.lake().column_bounds(table, column, at)

    def test_connection(self) -> tuple[bool, str]:
        """Open the catalog and write below the data path; return whether that worked, and what was found.

        If everything is ready for a lake that does not exist yet, this counts as success, and the message
        says so.
        """
        try:
            settings = self._settings(named="This connection")  # Airflow gives it a random id for the test
            try:
                return True, _look(settings)
            except errors.NotADuckLakeError as error:
                return True, _look_before_creation(settings, error)
        except errors.DuckLakeError as error:
            return False, str(error)


def _place(url: URL) -> str:
    """Describe the location of a catalog to a person, without the user name."""
    kind = next(one for one in CATALOG_TYPES.values() if one.driver == url.drivername)
    at = "" if kind.server is None else f" at {url.host}{'' if url.port is None else f':{url.port}'}"
    return f"{kind.name} {url.database}{at}"


def _look(settings: ConnectionSettings) -> str:
    from ..lake.storage.files.filesystem import check_writable

    lake = _open(settings, timeout_seconds=_TEST_TIMEOUT_SECONDS)
    try:
        snapshot = lake.current_snapshot()
        check_writable(lake.data_path, settings.storage_options)
        _check_rights(settings)
    finally:
        lake.close()
    made = f"{snapshot.time:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"DuckLake {lake.version.value} at snapshot {snapshot.id}, made at {made}; "
        f"{opened_by(lake.version)}; data path {lake.data_path} is writable."
    )


def _look_before_creation(settings: ConnectionSettings, missing: errors.NotADuckLakeError) -> str:
    from ..lake.catalog.database.connect import check_directory
    from ..lake.storage.files.filesystem import check_writable

    check_directory(settings.url)
    data_path, version = _data_path(settings), version_of_new_lake(settings)
    check_writable(data_path, settings.storage_options)
    _check_rights(settings)
    how = (
        "the first task creates it"
        if settings.create_lake
        else "create it with create_lake in this connection, or DuckLakeDDLOperator(create_lake=True)"
    )
    return (
        f"No lake yet: {missing.catalog} {missing.problem}. Everything is ready for one, and the data path "
        f"{data_path} is writable: {how}. It gets DuckLake "
        f"{version.value}: {opened_by(version)}. If there should already be a lake, check the Database field."
    )


def _check_rights(settings: ConnectionSettings) -> None:
    from ..lake.catalog.open_lake import check_creates_tables

    check_creates_tables(_url(settings, _TEST_TIMEOUT_SECONDS), settings.metadata_schema)


def _url(settings: ConnectionSettings, timeout_seconds: int | None) -> URL:
    from ..lake.catalog.database.connect import catalog_file

    if timeout_seconds is None:
        return settings.url
    url = _limited(settings.url, _TEST_PATIENCE_SECONDS)
    if catalog_file(url) is None:
        return url.update_query_dict({"connect_timeout": str(timeout_seconds)})
    return url


def _limited(url: URL, seconds: float) -> URL:
    """Return the URL with limits for a caller who waits at most so many seconds."""
    return url.update_query_dict(Limits.of(url.query).within(seconds).as_texts())


def _missing_connection(conn_id: str) -> errors.InvalidInputError:
    from airflow.sdk.execution_time import task_runner

    hidden = (
        ""
        if hasattr(task_runner, "SUPERVISOR_COMMS")
        else " Outside of a task Airflow does not show the connections of its database: there set "
        f"AIRFLOW_CONN_{conn_id.upper()}, as JSON or a URI, or open the lake with Lake.connect."
    )
    return errors.InvalidInputError(
        f"The lake's connection {conn_id!r} does not exist. Create it (type {CONNECTION_TYPE}), or name "
        f"another one as ducklake_conn_id.{hidden}"
    )


async def connection_of(conn_id: str) -> Connection:
    """Return a connection, on an event loop.

    Raises:
        InvalidInputError: it does not exist.
    """
    from airflow.providers.common.compat.connection import get_async_connection

    try:
        return await get_async_connection(conn_id)
    except AirflowNotFoundException:
        raise _missing_connection(conn_id) from None


def open_catalog(connection: Connection, seconds: float = math.inf) -> Lake:
    """Open a connection's lake to ask its catalog only: no credentials or keys for its files are looked up.

    No statement then waits for longer than so many seconds, whatever the connection's own limits are.

    Raises:
        InvalidOptionError, NotADuckLakeError, UnsupportedFeatureError: as ``DuckLakeHook.lake``.
    """
    settings = read_settings(connection, with_storage=False)
    return _open(replace(settings, url=_limited(settings.url, seconds), document_key_file=None))


def _open(
    settings: ConnectionSettings, timeout_seconds: int | None = None, *, to_migrate: bool = False
) -> Lake:
    from ..lake.catalog.lake import Lake

    url, newest = _url(settings, timeout_seconds), newest_version(settings)
    with _naming_missing_driver(settings), _naming_field(settings):
        lake = Lake.connect(
            url,
            metadata_schema=settings.metadata_schema,
            storage_options=settings.storage_options,
            foreign_files=settings.foreign_files,
            to_migrate=to_migrate,
            max_version=None if newest is None else newest.value,
            key_bytes=settings.key_bytes,
            document_key_file=settings.document_key_file,
        )
    try:
        _check(settings, lake)
        if not to_migrate:
            check_lake(settings, lake.version)
    except errors.DuckLakeError:
        lake.close()
        raise
    return lake


@contextmanager
def _naming_field(settings: ConnectionSettings) -> Iterator[None]:
    """Name the connection's field that a lake of another version does not fit."""
    try:
        yield
    except errors.UnsupportedVersionError as error:
        for version in SpecVersion:
            if version.value == error.found:
                check_lake(settings, version)
        raise


@contextmanager
def _naming_missing_driver(settings: ConnectionSettings) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        from ..lake.catalog.database.connect import packages_of

        raise errors.CatalogUnavailableError(
            repr(settings.url),
            f"its driver cannot be imported ({error}). Install it here: {packages_of(settings.url)}.",
        ) from error


def _check(settings: ConnectionSettings, lake: Lake) -> None:
    if settings.encrypted and not lake.opened.encrypted:
        raise settings.invalid(
            ENCRYPTED,
            "is true, but this lake's files are not encrypted, and never will be: that is chosen when a lake "
            "is made. Clear the field, or make a new lake and copy the tables.",
        )
    if settings.data_path not in (None, lake.data_path, lake.data_path.removeprefix("file://")):
        raise settings.invalid(
            DATA_PATH,
            f"{settings.data_path!r} is not the data path of this lake, which is {lake.data_path!r}. Write "
            "that, or clear the field.",
        )


def _create(settings: ConnectionSettings) -> Lake:
    from ..lake.catalog.lake import Lake
    from ..lake.storage.files.filesystem import check_writable

    data_path = _data_path(settings)
    check_writable(data_path, settings.storage_options)  # a lake keeps its path, a mistyped one too
    with suppress(errors.AlreadyExistsError):  # another task was faster
        Lake.create(
            settings.url,
            data_path,
            metadata_schema=settings.metadata_schema,
            storage_options=settings.storage_options,
            foreign_files=settings.foreign_files,
            version=version_of_new_lake(settings).value,
            encrypted=settings.encrypted,
        ).close()
    return _open(settings)


def _data_path(settings: ConnectionSettings) -> str:
    if settings.data_path is None:
        raise settings.invalid(
            DATA_PATH,
            "is empty, and there is no lake yet. A new one needs a place for its files: /data/files/.",
        )
    return settings.data_path
