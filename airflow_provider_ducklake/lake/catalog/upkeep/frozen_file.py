"""The file of a frozen catalog while it is filled: its tables, its options, and what was counted."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.dialects import dialect_of
from airflow_provider_ducklake.lake.errors import CatalogUnavailableError, UntrustedValueError
from airflow_provider_ducklake.lake.spec.tags import FROZEN, ExportFormat, FrozenMark
from airflow_provider_ducklake.lake.spec.versions import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.lake.catalog.upkeep.frozen_inlined import FrozenInlined
    from airflow_provider_ducklake.lake.catalog.upkeep.frozen_paths import CopiedPaths
    from airflow_provider_ducklake.lake.spec.options import OptionRow
    from airflow_provider_ducklake.lake.spec.versions import SpecVersion

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
    """Check that a file of the format can be made here, before anything is read.

    Raises:
        CatalogUnavailableError: DuckDB is not installed.
    """
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
