"""Export one snapshot of a lake as a frozen lake: a separate catalog file, with or without the data files.

The file is made in a temporary directory, from one state of the catalog, and put in its place when it is
complete. *Source:* the rows that an expiry of all other snapshots leaves (docs/sources.md, maintenance and
frozen lakes).
"""

from __future__ import annotations

import posixpath
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import URL, Connection, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from ...errors import CatalogUnavailableError, ExportExistsError, InvalidInputError, UntrustedValueError
from ...format.log_lines import logger
from ...format.names.paths import CatalogPath, directory_path, is_absolute
from ...format.partitioning import hive_folders
from ...format.snapshots import CommitKey, Snapshot, SnapshotId
from ...format.tags import FROZEN, ExportFormat, ExportResult, FrozenMark, attach_statement
from ...format.versions import DEFAULT, SpecVersion
from ...planning.upkeep.files import has_write_id
from ...storage.files.writing import CopiedFile
from ..database.connect import catalog_file, open_engine, parse_url, streamed_parts
from ..database.file_connections import EVERYBODY, readers
from ..database.tables import CatalogTables, catalog_tables
from ..dialects import dialect_of
from ..snapshot import read, read_snapshots
from .frozen_rows import FrozenInlined, FrozenRows, frozen_deletes, frozen_inlined

if TYPE_CHECKING:
    from ...format.options import OptionRow
    from ..dialects.dialect import Catalog, CatalogDialect
    from ..open_lake import OpenLake
    from ..snapshot.read import TableRow
    from ..snapshot.read_snapshots import At


# The file of a frozen catalog while it is filled: its tables, its options, and what was counted.


INLINED = "inlined"  # in the counts: rows of tables of their own


@dataclass(frozen=True, slots=True)
class FrozenFile:
    """An open file with the tables of a version; ``paths`` are None where data files stay where they are."""

    dialect: CatalogDialect
    connection: Connection
    tables: CatalogTables
    paths: CopiedPaths | None = None
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    @contextmanager
    def made(
        cls, file: Path, format_: ExportFormat, version: SpecVersion, paths: CopiedPaths | None
    ) -> Iterator[Self]:
        """Make a file with the tables of a version, empty; it is complete when the block ends."""
        tables = catalog_tables(version)
        with _opened(file, format_) as (dialect, connection):
            for table in tables.metadata.sorted_tables:
                connection.execute(CreateTable(table))
            yield cls(dialect, connection, tables, paths)
            connection.commit()

    def options(self, rows: Sequence[OptionRow], others: Mapping[str, str]) -> None:
        """Write the options, ``others`` in place of those of the lake."""
        kept = [row for row in rows if row.key not in others]
        self._insert("metadata", [{"key": key, "value": value} for key, value in others.items()])
        self._insert(
            "metadata",
            [
                {"key": row.key, "value": row.value, "scope": row.scope, "scope_id": row.scope_id}
                for row in kept
            ],
        )

    def rows(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows of a table of the format."""
        changed = None if self.paths is None else self.paths.changed(name)
        self._insert(name, [*rows] if changed is None else [changed(row) for row in rows])

    def _insert(self, name: str, rows: list[dict[str, Any]]) -> None:
        if rows:
            self.dialect.insert_rows(self.connection, self.tables[name], rows)
            self.counts[name] += len(rows)

    def inlined(self, part: FrozenInlined) -> None:
        """Make a table of inlined rows or deletes, with its rows."""
        self.connection.execute(CreateTable(part.table))
        if part.rows:
            self.dialect.insert_rows(self.connection, part.table, part.rows)
        if part.schema_version is not None:
            self.counts[INLINED] += len(part.rows)
            registered = {
                "table_id": part.table_id,
                "table_name": part.table.name,
                "schema_version": part.schema_version,
            }
            self._insert("inlined_data_tables", [registered])


def check_installed(path: str, format_: ExportFormat) -> None:
    """Check that a file of the format can be made here, before anything is read."""
    open_engine(URL.create(format_.value, database=path)).dispose()


@contextmanager
def _opened(file: Path, format_: ExportFormat) -> Iterator[tuple[CatalogDialect, Connection]]:
    """Open a file."""
    engine = open_engine(parse_url(f"{format_.value}:///{file}"))
    try:
        dialect = dialect_of(engine, None)
        with engine.connect() as connection:
            yield dialect, connection
    finally:
        engine.dispose()


def mark_of(file: Path) -> FrozenMark | None:
    """Return of what a file is a frozen catalog; None: it is none, or cannot be opened here.

    It is whatever was found at the target of an export.
    """
    with file.open("rb") as opened:
        is_sqlite = opened.read(len(_SQLITE)) == _SQLITE
    metadata = catalog_tables(DEFAULT)["metadata"]
    query = select(metadata.c.value).where(metadata.c.key == FROZEN)
    try:
        format_ = ExportFormat.SQLITE if is_sqlite else ExportFormat.DUCKDB
        with _opened(file, format_) as (dialect, connection):
            dialect.has_table(connection, metadata.name, None)  # or something in its place
            text = connection.execute(query).scalar()
    except (DBAPIError, CatalogUnavailableError, UntrustedValueError):
        return None
    return None if text is None else FrozenMark.parse(text)


_SQLITE = b"SQLite format 3\0"


# Where the files of a frozen lake lie, if they are copied: all below one folder, by relative paths.


_FILE_IDS = {"data_file": "data_file_id", "delete_file": "delete_file_id"}


@dataclass(frozen=True, slots=True)
class CopiedPaths:
    """The tables of the snapshot by their ids; ``copies`` becomes all files by their places.

    Several lakes may have their copies in one folder, so names that are not of a write have the lake's id.
    """

    data_path: str
    lake_id: str
    tables: dict[int, TableRow]
    copies: dict[str, CopiedFile] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, catalog: Catalog, lake_id: str, at: int) -> CopiedPaths:
        """Return the paths of a snapshot."""
        rows = read.table_rows(connection, catalog.tables, at)
        return cls(catalog.data_path, lake_id, {one.id: one for one in rows})

    def changed(self, name: str) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return the function that rewrites the rows of a catalog table; None: they stay."""
        match name:
            case "schema" | "table":
                return lambda row: {**row, **_directory(name, row)}
            case "data_file" | "delete_file":
                return lambda row: {**row, **self._file(row, name)}
            case _:
                return None

    def _file(self, row: dict[str, Any], kind: str) -> dict[str, Any]:
        """Record the copy of a file, and return its path."""
        table = self.tables[row["table_id"]]
        path = CatalogPath(row["path"], row["path_is_relative"] is not False)
        source = path.below(table.root(self.data_path), f"Table {table.qualified}")
        name = row["path"]
        if not path.is_relative or not has_write_id(name):
            new = f"added-{self.lake_id}-{kind.replace('_', '-')}-{row[_FILE_IDS[kind]]}"
            name = f"{hive_folders(name)}{new}{posixpath.splitext(name)[1]}"  # DuckDB reads values of folders
        self.copies[self._root(table) + name] = CopiedFile(source, row["file_size_bytes"])
        return {"path": name, "path_is_relative": True}

    def _root(self, table: TableRow) -> str:
        return _relative("schema", table.schema.id, table.schema.path) + _relative(
            "table", table.id, table.path
        )


def _directory(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    path = CatalogPath(row["path"], row["path_is_relative"] is not False)
    return {"path": _relative(kind, row[f"{kind}_id"], path), "path_is_relative": True}


def _relative(kind: str, id_: int, path: CatalogPath) -> str:
    return (path.path or "") if path.is_relative else f"{kind}-{id_}/"


log = logger(__name__)
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A snapshot to export, and the target; see ``Maintenance.export_catalog``.

    ``key`` is that of the task, which ``starts_over`` where a run of the same name was deleted.
    """

    path: str
    at: At = None
    format: str | None = None
    copy_files: bool = False
    files_path: str | None = None
    data_path: str | None = None
    overwrite: bool = False
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    key: CommitKey | None = None
    starts_over: bool = False

    def __post_init__(self) -> None:
        ExportFormat.of(self.path, self.format)
        paths = {"path": self.path, "files_path": self.files_path, "data_path": self.data_path}
        for name, path in paths.items():
            if path is not None and not is_absolute(path):
                raise InvalidInputError(f"{name}={path!r} is relative; give an absolute path or a URI.")
        if self.path.endswith("/"):
            raise InvalidInputError(f"path={self.path!r} is a directory; give the name of the file to write.")
        if self.files_path is not None and not self.copy_files:
            raise InvalidInputError(
                "files_path says where data files are copied to: give copy_files=True, too."
            )

    @property
    def folder(self) -> str | None:
        """Where the data files are copied to."""
        return directory_path(self.files_path or f"{self.path}.files") if self.copy_files else None


@dataclass(frozen=True, slots=True)
class _Made:
    """A frozen catalog that was made, and not yet put in its place."""

    snapshot: Snapshot
    counts: Mapping[str, int]
    paths: CopiedPaths | None


def export(lake: OpenLake, request: ExportRequest) -> ExportResult:
    """Export a snapshot, or return what an earlier try of the same task exported."""
    from ...storage.files.local import lies_below
    from ...storage.moving import restored

    check_installed(request.path, ExportFormat.of(request.path, request.format))
    _check_is_not_the_catalog(lake, request)
    if request.folder is not None and lies_below(request.folder, lake.data_path):
        raise InvalidInputError(
            f"The folder for the copies, {request.folder}, lies below the data path of this lake, whose "
            "clean-up of orphaned files would delete them. Choose another path, or files_path."
        )
    with lake.reading() as connection:
        lake_id = read.first_schema_uuid(connection, lake.catalog.tables)
    with tempfile.TemporaryDirectory(prefix="ducklake_export_") as scratch:
        found = _found(request, Path(scratch) / "found", lake_id)
        if found is not None and _is_earlier(found, request, lake_id):
            return _result(lake, request, found.snapshot_id, is_earlier=True)
        file = Path(scratch) / "catalog"
        made = _make(lake, request, file, lake_id)
        if request.folder is not None and made.paths is not None:
            restored.copy_files(made.paths.copies, request.folder, request.storage_options, lake.locate)
        options, mode = request.storage_options, _mode(lake)
        if not restored.publish(file, request.path, options, mode=mode, replaces=found is not None):
            raise ExportExistsError("file", request.path)
    return _summed(_result(lake, request, made.snapshot.id), made)


def _check_is_not_the_catalog(lake: OpenLake, request: ExportRequest) -> None:
    """Refuse the lake's own catalog file as the target: all other snapshots would be lost."""
    from ...storage.files.filesystem import open_filesystem

    file, target = catalog_file(lake.url), open_filesystem(request.path, request.storage_options)
    if file is not None and target.is_local and Path(target.path).exists() and file.samefile(target.path):
        raise InvalidInputError(
            f"path={request.path!r} is the catalog of this lake itself. Choose another path for the file."
        )


def _mode(lake: OpenLake) -> int:
    """Return the mode of a local frozen catalog: read-only, for those who may read the lake's catalog.

    With the keys of an encrypted lake's files in it, it is for its owner alone.
    """
    file = catalog_file(lake.url)
    if lake.encrypted:
        return stat.S_IRUSR
    return EVERYBODY if file is None else readers(file)


def _found(request: ExportRequest, copy: Path, lake_id: str) -> FrozenMark | None:
    """Look up the frozen catalog that the export may replace; None: nothing is there.

    That is one that the same task of the same run has made, or any where the user wants it. Another file
    stays: it may be the catalog of a live lake, or one of its data files.
    """
    from ...storage.moving import restored

    if not restored.is_there(request.path, request.storage_options):
        return None
    is_looked_at = request.key is not None or request.overwrite
    mark = None
    if is_looked_at:
        restored.fetch(request.path, copy, request.storage_options)
        mark = mark_of(copy)
    if mark is not None and (request.overwrite or mark.is_of(lake_id, request.key)):
        return mark
    if is_looked_at and mark is None:
        raise ExportExistsError("file", request.path, "remove that one: it is not a frozen lake's catalog")
    raise ExportExistsError("file", request.path)


def _is_earlier(found: FrozenMark, request: ExportRequest, lake_id: str) -> bool:
    """Return True if an earlier try exported it since the task was last cleared, and in this very run."""
    is_own, key = found.is_of(lake_id, request.key), request.key
    return is_own and key is not None and found.generation == key.generation and not request.starts_over


def _make(lake: OpenLake, request: ExportRequest, file: Path, lake_id: str) -> _Made:
    """Fill a new file with the rows of the snapshot, all from one state of the catalog."""
    catalog, tables = lake.catalog, lake.catalog.tables
    with lake.reading() as connection:
        snapshot = lake.snapshot(connection, request.at)
        newest = read_snapshots.head(connection, tables)
        rows = FrozenRows(tables, snapshot.id, newest)
        paths = CopiedPaths.of(connection, catalog, lake_id, snapshot.id) if request.copy_files else None
        now = catalog.dialect.server_time(connection)
        mark = FrozenMark.of(lake_id, snapshot.id, now, request.key)
        format_ = ExportFormat.of(request.path, request.format)
        with FrozenFile.made(file, format_, tables.version, paths) as frozen:
            frozen.options(
                list(_options(connection, rows)), {"data_path": _data_path(lake, request), FROZEN: mark.text}
            )
            for name, query in rows.queries():
                for part in streamed_parts(connection, query, _ROWS_AT_ONCE):
                    frozen.rows(name, [dict(row._mapping) for row in part])  # noqa: SLF001 - its public name
            for one in frozen_inlined(connection, catalog, snapshot, frozen.tables, format_):
                frozen.inlined(one)
            for one in frozen_deletes(connection, catalog, rows, frozen.tables):
                frozen.inlined(one)
        return _Made(snapshot, frozen.counts, paths)


def _options(connection: Connection, rows: FrozenRows) -> Iterator[OptionRow]:
    """Yield the options of the lake, and of the schemas and tables that the snapshot shows."""
    there: Mapping[str | None, Sequence[int | None]] = {
        None: [None],
        "schema": [one.id for one in read.schemas(connection, rows.tables, rows.at)],
        "table": list(connection.execute(rows.live_tables()).scalars()),
    }
    for row in read.option_rows(connection, rows.tables):
        if row.scope_id in there.get(row.scope, [row.scope_id]):
            yield row


def _data_path(lake: OpenLake, request: ExportRequest) -> str:
    return directory_path(request.data_path or request.folder or lake.data_path)


def _result(
    lake: OpenLake, request: ExportRequest, snapshot_id: int, *, is_earlier: bool = False
) -> ExportResult:
    format_ = ExportFormat.of(request.path, request.format)
    return ExportResult(
        request.path,
        format_,
        SnapshotId(snapshot_id),
        _data_path(lake, request),
        attach_statement(request.path, format_),
        is_earlier=is_earlier,
    )


def _summed(result: ExportResult, made: _Made) -> ExportResult:
    copies = () if made.paths is None else made.paths.copies.values()
    return replace(
        result,
        tables=made.counts["table"],
        data_files=made.counts["data_file"],
        delete_files=made.counts["delete_file"],
        inlined_rows=made.counts[INLINED],
        copied_files=len(copies),
        copied_bytes=sum(one.size or 0 for one in copies),
    )
