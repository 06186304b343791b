"""An open lake: its connections, their errors, and how snapshots are chosen."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.exc import DataError, DBAPIError

from .. import errors
from ..format.limits import KEY_BYTES
from ..format.names.paths import is_absolute, with_slash
from ..format.options import OptionRow, Options
from ..format.tags import FROZEN
from ..format.versions import WRITABLE, Feature, SpecVersion, refused
from ..transaction.changes import Change, SchemaRef, written_tables
from .database.connect import first_line, open_engine, parse_url, shown
from .dialects import dialect_of
from .dialects.dialect import Catalog, CatalogDialect
from .snapshot import read_snapshots
from .snapshot.read_files import key_length
from .snapshot.read_snapshots import At, Moment, possible

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

    from ..format.names.identifiers import FoldedName, QualifiedName
    from ..format.snapshots import Snapshot, SnapshotId, TableSnapshot
    from ..storage.files.filesystem import Location
    from ..transaction.lake_draft import SchemaDraft
    from .database.tables import CatalogTables


_CHECK = (
    "Check that the database runs, and check the connection's address and login; the next try connects again."
)
_GRANTS = (
    "An administrator of the database can give its user a role: docs/roles.md has the statements for a "
    "reader, a writer and a maintainer, and says what each may do. Run them"
)
_SHOWN = 120  # characters of a statement in an error


@dataclass(slots=True)
class Definitions:
    """Schemas and tables as one schema version has them: any change of them raises it, by any client.

    Kept from one transaction to the next; options are not versioned, and not kept.
    """

    schema_version: int = -1
    schemas: dict[FoldedName, SchemaDraft | None] = field(default_factory=dict)
    tables: dict[tuple[SchemaRef, str], tuple[TableSnapshot, int] | None] = field(default_factory=dict)

    def at(self, schema_version: int) -> Definitions:
        """Return the definitions of a schema version, empty for any but the one that is kept."""
        return self if self.schema_version == schema_version else Definitions(schema_version)


class LakeObserver(Protocol):
    """Is notified of the tables read and written through an open lake. Its methods must not raise."""

    def has_read(self, table: QualifiedName) -> None:
        """Receive a table whose rows were read, by its name in the catalog."""

    def has_written(self, tables: Sequence[QualifiedName]) -> None:
        """Receive the tables that a snapshot changed: after its commit, even one by an earlier try."""


def _close_idle(engine: Engine, process: int) -> None:
    """Close the connections of a lake that was not closed; a fork leaves them to its parent."""
    if os.getpid() == process:
        engine.dispose()


class OpenLake:
    """What the parts of a ``Lake`` share."""

    def __init__(  # noqa: PLR0913 - ``Lake.connect`` alone calls it
        self,
        dialect: CatalogDialect,
        tables: CatalogTables,
        options: Sequence[OptionRow],
        storage_options: Mapping[str, Any] | None,
        data_path: str | None = None,
        *,
        foreign_files: bool = False,
        newest: SpecVersion | None = None,
    ) -> None:
        lake_wide = Options.effective(options)
        self.version = tables.version
        self.newest = newest  # version that the lake may be migrated to; None: any
        self.data_path = data_path or with_slash(lake_wide.texts.get("data_path", ""))
        self.encrypted = lake_wide.flag("encrypted")
        self.is_frozen = FROZEN in lake_wide.texts
        self.catalog = Catalog(dialect, tables, self.data_path, foreign_files)
        self.storage_options = dict(storage_options or {})
        self.definitions = Definitions()
        self.pinned: SnapshotId | None = None
        self.observer: LakeObserver | None = None
        weakref.finalize(self, _close_idle, dialect.engine, os.getpid())

    def as_of(self, snapshot_id: SnapshotId) -> OpenLake:
        """Return the same lake as if a snapshot were its newest one: for plans that are made again."""
        pinned = copy(self)
        pinned.pinned = snapshot_id
        pinned.definitions = Definitions()
        return pinned

    def close(self) -> None:
        """Close the connections to the catalog."""
        self.catalog.dialect.engine.dispose()

    def report_read(self, table: QualifiedName) -> None:
        """Notify the observer of a table whose rows were read."""
        if self.observer is not None:
            self.observer.has_read(table)

    def report_written(self, changes: Iterable[Change]) -> None:
        """Notify the observer of the tables that committed changes changed."""
        if self.observer is not None and (tables := written_tables(changes)):
            self.observer.has_written(tables)

    def has(self, feature: Feature) -> bool:
        """Return True if the lake's version has a feature."""
        return feature in self.catalog.tables.writer.features

    @property
    def url(self) -> URL:
        """The address of the catalog database."""
        return self.catalog.dialect.engine.url

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn an error of the database into ours."""
        with translated(self.catalog.dialect):
            yield

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection for questions that see one state of the catalog."""
        with translated(self.catalog.dialect), self.catalog.dialect.reading() as connection:
            yield connection

    def snapshot(self, connection: Connection, at: At) -> Snapshot:
        """Return a snapshot by its id, an aware time or a tag; None: the newest."""
        return read_snapshots.snapshot_at(connection, self.catalog, self.here(at))

    def here(self, at: At) -> At:
        """Return the given snapshot, tag or time; if none is given, the one that the lake is pinned to."""
        return self.pinned if at is None else at

    def moment(self, at: At) -> Moment:
        """Resolve a tag to its snapshot; other values are returned as they are. None: the newest."""
        here = self.here(at)
        if isinstance(here, str):
            with self.reading() as connection:
                return read_snapshots.moment_of(connection, self.catalog, here)
        return possible(here)

    def head(self, connection: Connection) -> Snapshot:
        """Return the newest snapshot."""
        if self.pinned is not None:
            return self.snapshot(connection, self.pinned)
        return read_snapshots.head(connection, self.catalog.tables)

    def check_base(self, connection: Connection, base: SnapshotId) -> None:
        """Check that the snapshot a commit is planned on is still there, and so all that it shows."""
        if not read_snapshots.existing(connection, self.catalog.tables, [base]):
            head = read_snapshots.head(connection, self.catalog.tables)
            raise errors.TransactionConflictError(
                f"change it as snapshot {base} shows it",
                "follows that one, which has expired in the meantime",
                "the lake",
                head.id,
            )

    @contextmanager
    def planned_on(self, base: SnapshotId) -> Iterator[None]:
        """Turn a failure to find something into a conflict if the snapshot that was read has expired."""
        try:
            yield
        except (errors.NotFoundError, errors.InvalidInputError) as error:
            with self.reading() as connection:
                try:
                    self.check_base(connection, base)
                except errors.TransactionConflictError as conflict:
                    raise conflict from error
            raise

    def find_key_length(self, given: int | None) -> None:
        """Find out how long the keys of new files are: as given, or as those of the lake's clients."""
        if given is not None and given not in KEY_BYTES:
            raise errors.InvalidInputError(
                f"key_bytes: {given} is not a length of AES keys; those are 16, 24 and 32."
            )
        if not self.encrypted:
            return
        if given is None:
            with self.reading() as connection:
                given = key_length(connection, self.catalog.tables)
        found = given or self.catalog.tables.writer.key_bytes
        self.catalog = replace(self.catalog, key_bytes=found)

    def locate(self, path: str) -> Location:
        """Resolve a lake path to a location, with this lake's storage options."""
        from ..storage.files.filesystem import open_filesystem

        return open_filesystem(path, self.storage_options).of_lake(self.catalog.key_bytes)

    def check_writable(self, directory: str) -> None:
        """Refuse a directory of a table, as the catalog spells it, before files are written there."""
        self.catalog.check_writable(directory)

    def refuse_unwritable(self) -> None:
        """Refuse to change lakes whose files or catalog we cannot work on, before anything starts."""
        self.refuse_frozen()
        self.refuse_unusable()

    def refuse_frozen(self) -> None:
        """Refuse to change a lake whose files may be those of the lake that it is of."""
        if self.is_frozen:
            raise errors.FrozenLakeError(
                f"{shown(self.url)} is a frozen lake: it was exported to be read, and its data files may be "
                "those of the lake that it is of. Change that one, and export it again."
            )

    def refuse_unusable(self) -> None:
        """Refuse lakes whose catalog or files we cannot read, before anything starts."""
        if self.version not in WRITABLE:
            raise refused(self.version.value, WRITABLE, shown(self.url))
        self.refuse_unreadable_files()

    def refuse_unreadable_files(self) -> None:
        """Refuse lakes whose files we cannot read."""
        if not is_absolute(self.data_path):
            raise errors.UnsupportedFeatureError(
                f"This lake's data path {self.data_path!r} is relative, so every process would look for the "
                "files in its own working directory. Give the lake an absolute data path."
            )


_TOO_LARGE = (
    "A number in the catalog {} is at or beyond the end of 64 bits, or a sum is ({}). DuckLakeVerifyOperator "
    "lists rows that are wrong; restore the catalog from a backup."
)


_UNFIT = (
    "A value in the catalog {}, or of this statement, does not fit ({}), at: {}. Nothing was committed. "
    "DuckLakeVerifyOperator lists rows that are wrong; restore the catalog from a backup."
)


@contextmanager
def translated(dialect: CatalogDialect) -> Iterator[None]:
    """Turn an error of the database into ours, whose text names the database but no secret and no value."""
    try:
        yield
    except OverflowError as error:
        raise errors.CatalogError(_TOO_LARGE.format(shown(dialect.engine.url), error)) from error
    except DBAPIError as error:
        catalog, reason = shown(dialect.engine.url), first_line(error.orig)
        if dialect.is_lock_timeout(error):
            waited = dialect.limits.lock_timeout_seconds
            raise errors.LockTimeoutError(catalog, waited, dialect.lock_holder(error)) from None
        if reason == "integer overflow":  # of SQLite's sum, which is no outage
            raise errors.CatalogError(_TOO_LARGE.format(catalog, reason)) from None
        if "Could not decode to UTF-8" in reason:  # SQLite takes any bytes for a text
            raise errors.CatalogError(
                f"{catalog}: {reason}. Correct that row, or restore the catalog from a backup."
            ) from None
        if error.connection_invalidated or (_is_connection_error(error) and not dialect.is_refusal(error)):
            if dialect.is_wrong_address(error):
                raise errors.CatalogAddressError(catalog, reason) from None
            hint = _GRANTS if dialect.is_missing_right(error) else _CHECK
            raise errors.CatalogUnavailableError(catalog, f"{reason.rstrip('. ')}. {hint}") from None
        statement = (error.statement or "COMMIT")[:_SHOWN]
        if isinstance(error, DataError):  # the same at each try
            raise errors.CatalogError(_UNFIT.format(catalog, reason.rstrip(". "), statement)) from None
        if not dialect.is_missing_right(error):
            raise errors.CatalogRefusedError(catalog, reason, statement) from None
        lacking = _lacking(dialect, error)
        raise errors.CatalogRefusedError(
            catalog, reason, statement, f"{lacking} {_GRANTS}".lstrip()
        ) from None


def _lacking(dialect: CatalogDialect, error: DBAPIError) -> str:
    try:
        return dialect.lacking_rights(error)
    except DBAPIError:  # the error itself is what matters
        return ""


def _is_connection_error(error: DBAPIError) -> bool:
    """Return True if connecting itself failed; such an error has no statement, as one of COMMIT."""
    return error.statement is None or "file is not a database" in str(error.orig)


# Check the privileges of a catalog database's user without leaving anything behind.


_WHY = (
    "tasks create tables there: those of a new lake, those called airflow_ducklake_…, and those for rows in "
    "the catalog"
)


def check_creates_tables(url: str | URL, metadata_schema: str | None = None) -> None:
    """Refuse a user who may not create tables in the lake's schema; only PostgreSQL can check it."""
    parsed = parse_url(url)
    dialect = dialect_of(open_engine(parsed), metadata_schema)
    try:
        with translated(dialect):
            dialect.try_to_create_table(metadata_schema)
    except errors.CatalogRefusedError as error:
        reason = f"{error.reason}; {_WHY}"
        raise errors.CatalogRefusedError(shown(parsed), reason, error.statement, error.way_out) from None
    finally:
        dialect.engine.dispose()
