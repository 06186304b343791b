"""Read what a transaction needs of its base snapshot and of its rows from the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import InvalidInputError, InvalidOptionError, TableNotFoundError, UnsupportedFeatureError
from ...format.names.identifiers import QualifiedName, SchemaPath, fold, is_storable, split_parts
from ...format.names.paths import relative_to
from ...format.options import SKIP_STATS_COLUMNS, OptionRow, Options
from ...format.snapshots import DataFileId, SchemaId, Snapshot, TableSnapshot, ViewId
from ...format.types.ducklake_types import DuckLakeType, parse_type
from ...transaction.changes import InlinedLayout
from ...transaction.definition import same_layout
from ...transaction.lake_draft import BaseLake, BaseMacro, BaseView, SchemaDraft
from ...transaction.table_draft import InlinedBatch, TableDraft
from ..committing.locked_facts import live_inlined_tables
from ..snapshot import read, read_files, read_layouts, read_snapshots, read_statistics
from ..snapshot.inlined_read import has_inlined_rows
from ..snapshot.inlined_tables import why_not_inlined
from ..snapshot.read_layouts import layout_schema
from ..snapshot.scan import load_table, near_tables
from .rows import Targets, read_targets

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

    from ...format.files import DataFile, LiveDataFile
    from ...format.schema import Column, TableSchema
    from ...format.tags import ViewDefinition
    from ...format.versions import WriteVersion
    from ..database.connect import Question
    from ..dialects.dialect import Catalog
    from ..open_lake import OpenLake
    from ..snapshot.read_statistics import Statistics


class CatalogBase(BaseLake):
    """One snapshot of a catalog; ``reading`` opens a connection for each question not answered before.

    ``rows`` answers questions about the rows of its tables.
    """

    def __init__(self, lake: OpenLake, snapshot: Snapshot, options: Sequence[OptionRow]) -> None:
        self.snapshot_id = snapshot.id
        self._catalog = lake.catalog
        self._snapshot = snapshot
        self._lake = lake
        self._reading = lake.reading
        self._definitions = lake.definitions
        self._option_rows = options
        self.rows = BaseRows(lake.catalog, lake.reading)

    @classmethod
    def newest(cls, lake: OpenLake) -> CatalogBase:
        """Return the newest snapshot, with the options of this moment."""
        tables = lake.catalog.tables
        questions: dict[str, Question[Any]] = {
            "head": read_snapshots.head_query(tables),
            "options": read.options_query(tables),
        }
        with lake.translated():
            answers = lake.catalog.dialect.ask_at_once(questions)
        head = answers["head"]
        lake.definitions = lake.definitions.at(head.schema_version)
        return cls(lake, head, answers["options"])

    @property
    def writer(self) -> WriteVersion:
        return self._catalog.tables.writer

    def schema(self, name: SchemaPath) -> SchemaDraft | None:
        known = self._definitions.schemas
        if name.folded not in known:
            with self._reading() as connection:
                found = read.find_schema(connection, self._catalog.tables, self.snapshot_id, name)
                if found is None:
                    self._lake.check_base(connection, self.snapshot_id)
            known[name.folded] = None if found is None else self._draft_of(found)
        return known[name.folded]

    def _draft_of(self, row: read.SchemaRow) -> SchemaDraft:
        return SchemaDraft(row.id, row.name, row.path.below(self._catalog.data_path))

    def schemas_in(self, schema: SchemaDraft) -> list[SchemaDraft]:
        with self._reading() as connection:
            rows = read.schemas(connection, self._catalog.tables, self.snapshot_id)
        return [self._draft_of(row) for row in rows if row.parent == schema.ref]

    def table(self, schema: SchemaDraft, name: str) -> TableDraft | None:
        known, key = self._definitions.tables, (schema.ref, fold(name))
        if key not in known:
            known[key] = self._read_table(QualifiedName(schema.name, name))
        found = known[key]
        if found is None:
            return None
        table, next_column_id = found
        options = self._options(table.schema_id, table.table_id)
        return TableDraft.of(replace(table, snapshot=self._snapshot, options=options), next_column_id)

    def no_table(self, name: QualifiedName) -> TableNotFoundError:
        """Return the error of a name that no table has, with those that a user may have meant."""
        with self._reading() as connection:
            like_it = near_tables(connection, self._catalog.tables, self.snapshot_id, name)
        return TableNotFoundError(str(name), self.snapshot_id, like_it)

    def _read_table(self, name: QualifiedName) -> tuple[TableSnapshot, int] | None:
        tables = self._catalog.tables
        with self._reading() as connection:
            if not read.table_rows(connection, tables, self.snapshot_id, name):
                self._lake.check_base(connection, self.snapshot_id)
                return None
            table = load_table(connection, self._catalog, self._snapshot, name, with_files=False)
            return table, read.next_column_id(connection, tables, table.table_id)

    def _options(self, schema_id: int | None, table_id: int | None = None) -> Options:
        return self._catalog.options(self._option_rows, schema_id, table_id)

    @property
    def lake_options(self) -> Options:
        """The options of the whole lake."""
        return self._options(None)

    def view(self, schema: SchemaDraft, name: str) -> BaseView | None:
        return next((one for one in self.views_in(schema) if fold(one.name.name) == fold(name)), None)

    def definition_of(self, view: QualifiedName) -> ViewDefinition:
        """Return the definition of a view that is there."""
        with self._reading() as connection:
            found = read.find_view(connection, self._catalog.tables, self.snapshot_id, view)
            if found is None:
                self._lake.check_base(connection, self.snapshot_id)
        assert found is not None
        return found[1]

    def commented_columns(self, view_id: ViewId) -> list[str]:
        """Return the columns of a view that have or had a comment, as they are spelled."""
        with self._reading() as connection:
            return list(read.view_comments(connection, self._catalog.tables, self.snapshot_id, view_id))

    def tables_in(self, schema: SchemaDraft) -> list[QualifiedName]:
        with self._reading() as connection:
            rows = read.table_rows(connection, self._catalog.tables, self.snapshot_id)
        return [row.qualified for row in rows if row.schema.id == schema.ref]

    def views_in(self, schema: SchemaDraft) -> list[BaseView]:
        with self._reading() as connection:
            rows = read.view_names(connection, self._catalog.tables, self.snapshot_id, _id(schema))
            self._lake.check_base(connection, self.snapshot_id)
        return [BaseView(view_id, QualifiedName(schema.name, name)) for view_id, name in rows]

    def macros_in(self, schema: SchemaDraft) -> list[BaseMacro]:
        with self._reading() as connection:
            rows = read.macros(connection, self._catalog.tables, self.snapshot_id, _id(schema))
        return [
            BaseMacro(row.id, QualifiedName(schema.name, row.name), is_table_macro=row.is_table_macro)
            for row in rows
        ]

    def why_not_inlined(self, columns: TableSchema) -> str | None:
        return why_not_inlined(columns, self._catalog.dialect.inlined_form, self.writer)

    def options_of_new_table(self, schema: SchemaDraft) -> Options:
        return self._options(schema.ref if isinstance(schema.ref, int) else None)


def _id(schema: SchemaDraft) -> SchemaId:
    assert isinstance(schema.ref, int)
    return SchemaId(schema.ref)


Reading: TypeAlias = "Callable[[], AbstractContextManager[Connection]]"


@dataclass(frozen=True, slots=True)
class BaseRows:
    """The rows of a catalog's tables; ``_reading`` opens a connection for each question."""

    _catalog: Catalog
    _reading: Reading

    def inlined(self, rows: pa.Table, schema: TableSchema) -> InlinedBatch | None:
        """Return rows as the catalog keeps them; None where its database or the values do not allow it."""
        from ...storage.rows.inlined_values import cells, inlined_stats

        form = self._catalog.dialect.inlined_form
        if form is None or why_not_inlined(schema, form, self._catalog.tables.writer):
            return None
        try:
            found = cells(rows, schema, form)
        except UnsupportedFeatureError:
            return None
        ids = {column.name: column.id for column in schema.columns}
        by_id = tuple({ids[name]: value for name, value in row.items()} for row in found)
        return InlinedBatch(by_id, inlined_stats(rows, schema))

    def targets(
        self, table: TableSnapshot, file_ids: Collection[DataFileId], row_ids: Collection[int]
    ) -> Targets:
        """Return those of the files that the table has, and what they have lost; see ``read_targets``."""
        with self._reading() as connection:
            return read_targets(connection, self._catalog, table, file_ids, row_ids)

    def layout(self, table: TableSnapshot | None, schema: TableSchema) -> InlinedLayout:
        """Return a table's newest catalog table for inlined rows, and whether rows of ``schema`` fit it."""
        if table is None:
            return InlinedLayout()
        with self._reading() as connection:
            newest = read_layouts.newest_layouts_query(self._catalog.tables, [table.table_id]).ask(connection)
            version = newest.get(table.table_id)
            if version is None:
                return InlinedLayout()
            had = layout_schema(connection, self._catalog.tables, table.table_id, version)
        return InlinedLayout(version, same_layout(had, schema))

    def had_any(self, table: TableSnapshot | None) -> bool:
        """Return True if a table ever held a row; one that does not exist yet has none."""
        if table is None:
            return False
        with self._reading() as connection:
            return bool(self._statistics(connection, table).tables)

    def has_live(self, table: TableSnapshot) -> bool:
        """Return True if a table has a live data file, or live rows in the catalog."""
        with self._reading() as connection:
            return bool(
                read_files.rows_of_live_files(connection, self._catalog.tables, [table.table_id])
                or live_inlined_tables(connection, self._catalog, table.table_id)
            )

    def may_hold_null(self, table: TableSnapshot | None, files: Sequence[DataFile], column: Column) -> bool:
        """Return True if a top-level column may hold NULL, in a table or in files about to be added.

        Statistics alone say so; if unsure, it may.
        """
        if any(_may_hold_null(file, column) for file in files):
            return True
        if table is None:
            return False
        with self._reading() as connection:
            known = self._statistics(connection, table)
            stats = known.columns[table.table_id].get(column.id) if known.tables else None
            has_none = stats is not None and not stats.contains_null and column.type.facts.counts_nulls
            if not known.tables or has_none:
                return False
            if has_inlined_rows(connection, self._catalog, table.table_id):
                return True
            live = read_files.WantedFiles(
                self._catalog.tables, table.snapshot.id, table.table_id, table.root
            ).ask(connection, self._catalog)
        return any(_may_hold_null(file, column) for file in live)

    def _statistics(self, connection: Connection, table: TableSnapshot) -> Statistics:
        return read_statistics.statistics_query(self._catalog.tables, [table.table_id]).ask(connection)


def _may_hold_null(file: DataFile | LiveDataFile, column: Column) -> bool:
    if column.children or not column.type.facts.counts_nulls:
        return True
    found = file.column_stats.get(column.id)
    if found is None:  # written before the column was there, or never measured
        return column.initial_default is None
    return found.null_count != 0


# What users give to a transaction.


def base_of(draft: TableDraft) -> TableSnapshot:
    if draft.base is None:
        raise InvalidInputError(
            f"{draft.name} is created by this transaction; do not add the rows in the first place."
        )
    return draft.base


def type_of(type_: str | DuckLakeType) -> DuckLakeType:
    return parse_type(type_) if isinstance(type_, str) else type_


def bare_name(path: str) -> str:
    """Return the name of a view's column, which has no fields."""
    *above, name = split_parts(path)
    if above:
        raise InvalidInputError(f"{path!r}: fields of a view's columns have no comments.")
    return name


def names_of_option(value: object) -> list[str]:
    """Return the columns that an option names: one, or a list; an empty text names none."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise InvalidOptionError(
            f"Option {SKIP_STATS_COLUMNS} cannot be {value!r}. Give a column's name or a list of names."
        )
    return [one for one in names if one]


def checked_comment(text: str | None) -> str | None:
    if text is not None and not is_storable(text):
        raise InvalidInputError("A comment cannot hold a NUL character or an unpaired surrogate.")
    return text


def placed(file: DataFile, root: str) -> DataFile:
    """Return a file as a table of that directory names it, and its delete file."""
    deletes = file.deletes
    if deletes is not None:
        deletes = replace(deletes, path=relative_to(deletes.path, root).path or "")
    return replace(file, path=relative_to(file.path, root).path or "", deletes=deletes)


def check_file(file: DataFile, target: TableDraft) -> None:
    if file.record_count <= 0:
        raise InvalidInputError(f"{file.path} has {file.record_count} rows; a data file has at least one.")
    if len(file.partition_values) != len(target.partition_by):
        raise InvalidInputError(
            f"{file.path} has {len(file.partition_values)} partition values, but {target.name} has "
            f"{len(target.partition_by)} partition keys. Give one string (or None) for each key."
        )
