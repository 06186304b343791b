"""``Lake``: an open DuckLake catalog with its files. It only delegates to the packages below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from ..errors import CatalogError, InvalidInputError, NotADuckLakeError
from ..format.arguments import methods_take_arguments
from ..format.names.paths import directory_path, is_absolute
from ..format.versions import DEFAULT, WRITABLE, SpecVersion, check_newest, refused, writable_version
from .committing.commit import Committer
from .database.connect import (
    catalog_file,
    check_complete,
    check_directory,
    make_private,
    open_engine,
    parse_url,
    shown,
)
from .database.tables import catalog_tables
from .dialects import bootstrap, dialect_of
from .lake_maintenance import Maintenance
from .lake_reads import LakeReads
from .lake_writes import LakeJobs, LakeWrites, open_documents
from .open_lake import OpenLake, translated
from .snapshot import read

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from ..format.options import OptionRow
    from ..format.snapshots import SnapshotId
    from ..storage.files.filesystem import Location

_P = ParamSpec("_P")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def _of(
    part: str, method: Callable[Concatenate[_Part, _P], _Result]
) -> Callable[Concatenate[Lake, _P], _Result]:
    """Return a method of ``Lake`` that calls the one of its part."""

    @wraps(method)
    def forwarded(lake: Lake, /, *arguments: _P.args, **named: _P.kwargs) -> _Result:
        return method(getattr(lake, part), *arguments, **named)

    return forwarded


@methods_take_arguments
class Lake:
    """An open lake. Open one with ``Lake.connect`` or ``Lake.create``.

    ``maintenance`` has the operations that keep it small. The other parts serve this package and, but for
    what the guides name, may change: ``reads``, ``writes``, ``jobs``, ``committer``, and ``opened``.
    """

    def __init__(self, lake: OpenLake, committer: Committer | None = None) -> None:
        self.opened = lake
        self.committer = committer or Committer(lake)
        self.reads = LakeReads(lake)
        self.writes = LakeWrites(lake, self.reads, self.committer)
        self.jobs = LakeJobs(lake)
        self.maintenance = Maintenance(lake, self.reads, self.writes, self.committer)

    @property
    def version(self) -> SpecVersion:
        """The catalog's spec version."""
        return self.opened.version

    @property
    def data_path(self) -> str:
        """The root of the lake's files; ends with ``/``."""
        return self.opened.data_path

    @property
    def is_frozen(self) -> bool:
        """Return True if it was exported from another lake, to be read."""
        return self.opened.is_frozen

    def as_of(self, at: SnapshotId | datetime | str) -> Lake:
        """Return the lake as if a snapshot (id, tag, time) were its newest: to read, or plan again, on it.

        An id is looked up when the lake is first used. ``snapshots``, ``tags``, ``clients``,
        ``table_changes``, ``table_health`` and ``verify`` look at the whole lake; options are the current
        ones.

        Raises:
            TagNotFoundError, TaggedSnapshotLostError: there is no such tag, or its snapshot has expired.
        """
        snapshot_id = at if isinstance(at, int) else self.reads.snapshot_at(at).id
        return Lake(self.opened.as_of(snapshot_id), self.committer)

    def locate(self, path: str) -> Location:
        """Return the location of a path of the lake, with this lake's storage options."""
        return self.opened.locate(path)

    def close(self) -> None:
        """Close the connections to the catalog; the next use opens one again."""
        self.opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({shown(self.opened.url)!r})"

    @classmethod
    def connect(  # noqa: PLR0913 - all public, all named
        cls,
        url: str | URL,
        *,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        data_path: str | None = None,
        foreign_files: bool = False,
        to_migrate: bool = False,
        max_version: str | None = None,
        key_bytes: int | None = None,
        document_key_file: str | None = None,
    ) -> Self:
        """Open an existing lake.

        ``metadata_schema`` is the database schema of the catalog's tables (PostgreSQL; None: where the
        user's search path finds them); ``storage_options`` are fsspec's, for the files. ``data_path`` is the
        current location of the files, for a lake that was moved or that others open with
        ``OVERRIDE_DATA_PATH``; the catalog keeps its own record. ``foreign_files``: the lake may write and
        delete files outside its data path if its catalog says so; reading files that were added there needs
        no permission. ``to_migrate``: also open a catalog older than 1.0, or one whose migration to 1.1 has
        not finished: nothing but ``migrate`` works on it.
        ``max_version``: refuse a lake newer than ``"1.0"``, say, and to migrate it beyond that.
        ``key_bytes``: how long the keys of new files of an encrypted lake are, 16, 24 or 32; None: as long as
        that of its newest file, or as the version's clients make them. ``document_key_file``: a local file
        with the key, 32 bytes in base64, by which jobs' documents on an encrypted lake are sealed; None: the
        one that the catalog keeps.

        Raises:
            CatalogUnavailableError: the database cannot be reached or refuses the login.
            NotADuckLakeError: the database holds no DuckLake catalog.
            UnsupportedVersionError: the catalog's spec version is older than 1.0, newer than 1.1 or
                ``max_version``, or of a development build.
            InvalidInputError: ``max_version`` is not a version that can be written, or
                ``key_bytes`` no length.
            CatalogError: the catalog says several versions, or lacks a table or column of its version.
            UntrustedValueError: a view, or what else may run code, is in the place of a table of the catalog.
            StorageError: ``document_key_file`` cannot be read, or has no key.
        """
        newest = None if max_version is None else writable_version(max_version, "max_version")
        parsed = parse_url(url)
        file = catalog_file(parsed)
        if file is not None and not file.exists():
            # the driver would make an empty file
            raise NotADuckLakeError(shown(parsed), "does not exist: there is no such file")
        dialect = dialect_of(open_engine(parsed), metadata_schema)
        try:
            with translated(dialect):
                stored = read.stored_catalog(dialect, metadata_schema)
            version = _version(stored.options, shown(parsed), to_migrate=to_migrate)
            check_newest(version, newest, shown(parsed))
            tables = catalog_tables(version, stored.schema)
            check_complete(stored.columns, tables, shown(parsed))
        except BaseException:
            dialect.engine.dispose()
            raise
        found_at = None if data_path is None else directory_path(data_path)
        opened = OpenLake(
            dialect,
            tables,
            stored.options,
            storage_options,
            found_at,
            foreign_files=foreign_files,
            newest=newest,
        )
        try:
            opened.find_key_length(key_bytes)
            open_documents(opened, document_key_file)
        except BaseException:
            opened.close()
            raise
        return cls(opened)

    @classmethod
    def create(  # noqa: PLR0913 - all public, all named
        cls,
        url: str | URL,
        data_path: str,
        *,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        foreign_files: bool = False,
        version: str = DEFAULT.value,
        encrypted: bool = False,
        key_bytes: int | None = None,
        document_key_file: str | None = None,
    ) -> Self:
        """Create a lake in a database, with its files below ``data_path``, and open it.

        ``data_path`` is an absolute path or a URI. ``version`` is the DuckLake version: ``"1.0"``, which
        every DuckDB since 1.5 opens, or ``"1.1"``, which needs DuckDB 2.0. ``encrypted``: its files are. The
        other arguments are those of ``connect``.

        Raises:
            AlreadyExistsError: the database already holds a lake.
            InvalidInputError: the data path is relative; a new lake cannot have the version.
            CatalogUnavailableError: the database cannot be reached or refuses the login; the file's directory
                does not exist.
        """
        if not is_absolute(data_path):
            raise InvalidInputError(
                f"The data path {data_path!r} is relative; give an absolute path or a URI."
            )
        chosen = writable_version(version)
        parsed = parse_url(url)
        check_directory(parsed)
        dialect = dialect_of(open_engine(parsed), metadata_schema)
        try:
            with translated(dialect):
                if encrypted:
                    make_private(parsed)
                metadata_schema = dialect.home(metadata_schema)
                bootstrap.bootstrap(
                    dialect, catalog_tables(chosen, metadata_schema), data_path, encrypted=encrypted
                )
        finally:
            dialect.engine.dispose()
        return cls.connect(
            parsed,
            metadata_schema=metadata_schema,
            storage_options=storage_options,
            foreign_files=foreign_files,
            key_bytes=key_bytes,
            document_key_file=document_key_file,
        )

    # Reads
    current_snapshot = _of("reads", LakeReads.current_snapshot)
    snapshots = _of("reads", LakeReads.snapshots)
    snapshot_at = _of("reads", LakeReads.snapshot_at)
    tags = _of("reads", LakeReads.tags)
    tables = _of("reads", LakeReads.tables)
    macros = _of("reads", LakeReads.macros)
    table_snapshot = _of("reads", LakeReads.table_snapshot)
    read_arrow = _of("reads", LakeReads.read_arrow)
    scan = _of("reads", LakeReads.scan)
    read_spark = _of("reads", LakeReads.read_spark)
    table_info = _of("reads", LakeReads.table_info)
    files = _of("reads", LakeReads.files)
    row_count = _of("reads", LakeReads.row_count)
    column_bounds = _of("reads", LakeReads.column_bounds)
    changes = _of("reads", LakeReads.changes)
    changes_after = _of("reads", LakeReads.changes_after)
    insertions = _of("reads", LakeReads.insertions)
    deletions = _of("reads", LakeReads.deletions)
    table_changes = _of("reads", LakeReads.table_changes)
    table_health = _of("reads", LakeReads.table_health)
    clients = _of("reads", LakeReads.clients)

    # Writes
    tag = _of("writes", LakeWrites.tag)
    untag = _of("writes", LakeWrites.untag)
    set_option = _of("writes", LakeWrites.set_option)
    reset_option = _of("writes", LakeWrites.reset_option)
    transaction = _of("writes", LakeWrites.transaction)
    add_table = _of("writes", LakeWrites.add_table)
    append_arrow = _of("writes", LakeWrites.append_arrow)

    # Maintenance
    flush_inlined_data = _of("maintenance", Maintenance.flush_inlined_data)
    expire_snapshots = _of("maintenance", Maintenance.expire_snapshots)
    restore = _of("maintenance", Maintenance.restore)
    migrate = _of("maintenance", Maintenance.migrate)
    cleanup_old_files = _of("maintenance", Maintenance.cleanup_old_files)
    delete_orphaned_files = _of("maintenance", Maintenance.delete_orphaned_files)
    export_catalog = _of("maintenance", Maintenance.export_catalog)
    verify = _of("maintenance", Maintenance.verify)
    repair = _of("maintenance", Maintenance.repair)


def _version(options: Sequence[OptionRow], catalog: str, *, to_migrate: bool) -> SpecVersion:
    if not options:
        raise NotADuckLakeError(catalog)
    stored = sorted(one.value for one in options if one.key == "version" and one.scope is None)
    if not stored:
        raise CatalogError(
            f"{catalog} does not say which DuckLake version it has: ducklake_metadata has no row with the "
            "key 'version'. Restore the catalog from a backup, or insert the row with the lake's version."
        )
    if len(set(stored)) > 1:
        raise CatalogError(
            f"{catalog} says in ducklake_metadata that it has the DuckLake versions "
            f"{', '.join(stored)}. Find out which of them it has, and delete the other rows "
            "with the key 'version'."
        )
    version = next((one for one in SpecVersion if one.value == stored[0]), None)
    if version is None or (version not in WRITABLE and not to_migrate):
        raise refused(stored[0], WRITABLE, catalog)
    return version
