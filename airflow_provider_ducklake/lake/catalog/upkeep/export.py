"""Export one snapshot of a lake as a frozen lake: a catalog file of its own, with or without the data files.

The file is made in a temporary directory, from one state of the catalog, and put in its place when it is
complete. *Source:* the rows that an expiry of all other snapshots leaves (docs/sources.md, maintenance and
frozen lakes).
"""

from __future__ import annotations

import stat
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.catalog.database.catalog_files import EVERYBODY, readers
from airflow_provider_ducklake.lake.catalog.database.connect import catalog_file
from airflow_provider_ducklake.lake.catalog.database.questions import streamed_parts
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.lake.catalog.upkeep.frozen_file import (
    INLINED,
    FrozenFile,
    check_installed,
    mark_of,
)
from airflow_provider_ducklake.lake.catalog.upkeep.frozen_inlined import frozen_deletes, frozen_inlined
from airflow_provider_ducklake.lake.catalog.upkeep.frozen_paths import CopiedPaths
from airflow_provider_ducklake.lake.catalog.upkeep.frozen_rows import FrozenRows
from airflow_provider_ducklake.lake.errors import ExportExistsError, InvalidInputError
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.paths import directory_path, is_absolute
from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId
from airflow_provider_ducklake.lake.spec.tags import (
    FROZEN,
    ExportFormat,
    ExportResult,
    FrozenMark,
    attach_statement,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.open_lake import OpenLake
    from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import At
    from airflow_provider_ducklake.lake.spec.options import OptionRow
    from airflow_provider_ducklake.lake.spec.snapshots import CommitKey, Snapshot

log = logger(__name__)
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is to be exported, and where to; see ``Maintenance.export_catalog``.

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
    """Export a snapshot, or return what an earlier try of the same task exported.

    Raises:
        ExportExistsError: there is a file already, and it is not to be replaced.
        SnapshotNotFoundError: the snapshot has expired, or never existed.
        StorageError: a file cannot be copied or written; no catalog was put in its place.
        UnsupportedFeatureError: inlined rows cannot be exported.
        CatalogUnavailableError: DuckDB is not installed here.
    """
    from airflow_provider_ducklake.lake.storage.moving import restored as exported_files  # noqa: PLC0415 - heavy

    check_installed(request.path, ExportFormat.of(request.path, request.format))
    with lake.reading() as connection:
        lake_id = read.first_schema_uuid(connection, lake.catalog.tables)
    with tempfile.TemporaryDirectory(prefix="ducklake_export_") as scratch:
        own = _own(request, Path(scratch) / "found", lake_id)
        if own is not None and _is_earlier(own, request):
            return _result(lake, request, own.snapshot_id, is_earlier=True)
        file = Path(scratch) / "catalog"
        made = _make(lake, request, file, lake_id)
        if request.folder is not None and made.paths is not None:
            exported_files.copy_files(made.paths.copies, request.folder, request.storage_options, lake.locate)
        replaces = request.overwrite or own is not None
        options, mode = request.storage_options, _mode(lake)
        if not exported_files.publish(file, request.path, options, mode=mode, replaces=replaces):
            raise ExportExistsError("file", request.path)
    return _summed(_result(lake, request, made.snapshot.id), made)


def _mode(lake: OpenLake) -> int:
    """Return the mode of a local frozen catalog: only for reading, and by nobody who may not read the lake's.

    With the keys of an encrypted lake's files in it, it is for its owner alone.
    """
    file = catalog_file(lake.url)
    if lake.encrypted:
        return stat.S_IRUSR
    return EVERYBODY if file is None else readers(file)


def _own(request: ExportRequest, copy: Path, lake_id: str) -> FrozenMark | None:
    """Return what the same task of the same run has exported to there, before or after it was cleared.

    Raises:
        ExportExistsError: there is another file, which is not to be replaced.
    """
    from airflow_provider_ducklake.lake.storage.moving import restored as exported_files  # noqa: PLC0415 - heavy

    if not exported_files.is_there(request.path, request.storage_options):
        return None
    if request.key is not None:
        exported_files.fetch(request.path, copy, request.storage_options)
        mark = mark_of(copy)
        if mark is not None and (mark.lake_id, mark.commit_key) == (lake_id, request.key.digest):
            return mark
    if not request.overwrite:
        raise ExportExistsError("file", request.path)
    return None


def _is_earlier(own: FrozenMark, request: ExportRequest) -> bool:
    """Whether an earlier try exported it since the task was last cleared, and in this very run."""
    return request.key is not None and own.generation == request.key.generation and not request.starts_over


def _make(lake: OpenLake, request: ExportRequest, file: Path, lake_id: str) -> _Made:
    """Fill a new file with the rows of the snapshot, all from one state of the catalog."""
    catalog, tables = lake.catalog, lake.catalog.tables
    with lake.reading() as connection:
        snapshot = lake.snapshot(connection, request.at)
        newest = read_snapshots.head(connection, tables)
        rows = FrozenRows(tables, snapshot.id, newest)
        paths = CopiedPaths.of(connection, catalog, snapshot.id) if request.copy_files else None
        now = catalog.dialect.server_time(connection)
        mark = FrozenMark.of(lake_id, snapshot.id, now, request.key)
        format_ = ExportFormat.of(request.path, request.format)
        with FrozenFile.made(file, format_, tables.version, paths) as frozen:
            frozen.options(
                list(_options(connection, rows)),
                {"data_path": _data_path(lake, request), FROZEN: mark.text},
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
