"""A transaction under construction: calls become changes, checked against one base snapshot.

Nothing reaches the catalog before the block ends; then everything lands as one snapshot or nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from uuid6 import uuid7

from ... import errors
from ...format import partitioning
from ...format.arguments import methods_take_arguments
from ...format.defaults import SqlDefault, SqlExpression, default_of
from ...format.log_lines import logger
from ...format.names.identifiers import (
    QualifiedName,
    SchemaName,
    SchemaPath,
    TableName,
    check_name,
    fold,
    is_storable,
)
from ...format.options import SKIP_STATS_COLUMNS, check_option, option_text
from ...format.schema import Default
from ...format.snapshots import CommitInfo, CommittedSnapshot, DataFileId
from ...format.sorting import keys_to_write_by, parse_sort_by
from ...format.tags import MacroDefinition, ViewDefinition
from ...format.versions import Feature
from ...planning.writing.overwrite import RowScope
from ...planning.writing.write import ParquetSettings
from ...transaction.changes import ChangeSet
from ...transaction.definition import narrower, warn_of_narrower
from ...transaction.lake_draft import LakeDraft, ViewDraft
from ..committing.commit import Committer, KeyedCommit, PlannedCommit
from ..committing.delete_writer import remove_unused
from ..snapshot.scan import Wanted, find_scan
from .base_lake import (
    CatalogBase,
    bare_name,
    base_of,
    check_file,
    checked_comment,
    names_of_option,
    placed,
    type_of,
)
from .rows import delete_changes

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.files import DataFile
    from ...format.types.ducklake_types import DuckLakeType
    from ...planning.writing.source_table import SourceTable
    from ...transaction.table_draft import TableDraft
    from ..open_lake import OpenLake

log = logger(__name__)
_DIALECTS = ("duckdb", "spark")


@methods_take_arguments
class LakeTransaction:
    """Collect changes and commit them when the ``with`` block ends; use ``Lake.transaction``.

    Columns are named by dotted paths, quoted where needed: ``address.zip``. A default is a Python value or
    an ``SqlExpression``.
    """

    def __init__(
        self, lake: OpenLake, committer: Committer, info: CommitInfo, keyed: KeyedCommit | None = None
    ) -> None:
        done = keyed.seen.done if keyed is not None else ()
        self.committed: CommittedSnapshot | None = CommittedSnapshot.earlier(done) if done else None
        self._lake = lake
        self._committer = committer
        self._info = info
        self._keyed = keyed
        self._base = CatalogBase.newest(lake)
        self._draft = LakeDraft(self._base, lake.data_path, lambda: str(uuid7()))
        self._new_files: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self.committed is not None:
            if kind is None:
                self._lake.report_written(self._draft.changes)
            self._remove(self._new_files)
            return
        try:
            self.committed = self._commit()
        except errors.CommitStateUnknownError:
            raise
        except Exception:  # did not land; an interruption (BaseException) may follow COMMIT and keeps them
            self._remove(self._new_files)
            raise
        if self.committed is not None and self.committed.is_earlier:
            self._remove(self._new_files)
            return
        files = [file for table in self._draft.tables_with_files for file in table.files]
        paths = [file.path for file in files] + [file.deletes.path for file in files if file.deletes]
        registered = {path.rpartition("/")[2] for path in paths}
        self._remove(path for path in self._new_files if path.rpartition("/")[2] not in registered)

    def _commit(self) -> CommittedSnapshot | None:
        change_set = ChangeSet(self._base.snapshot_id, tuple(self._draft.changes))
        planned = PlannedCommit((change_set,), self._info, self._keyed)
        if planned.makes_snapshot:
            self._info.check(self._base.lake_options)
        return self._committer.commit_planned(planned)

    # Schemas

    def create_schema(self, name: SchemaName, *, if_not_exists: bool = False) -> None:
        """Create a schema; ``sales.europe`` lies in schema ``sales``, since DuckLake 1.1.

        A name that contains a dot is quoted (``'"sales.europe"'``), or a tuple.

        Raises:
            AlreadyExistsError, InvalidNameError: the name is taken, or is not a valid name.
            SchemaNotFoundError: there is no schema that it could lie in.
            UnsupportedFeatureError: the lake's version has no nested schemas.
        """
        path = SchemaPath.of(name)
        if not (if_not_exists and self._draft.find_schema(path) is not None):
            self._draft.create_schema(path)

    def drop_schema(self, name: SchemaName, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a schema; with ``cascade`` its tables, views and macros too, and the schemas in it.

        Raises:
            SchemaNotFoundError: no such schema.
            InvalidInputError: the schema is not empty and ``cascade`` was not given.
        """
        path = SchemaPath.of(name)
        if not (if_exists and self._draft.find_schema(path) is None):
            self._draft.drop_schema(path, cascade=cascade)

    # Tables

    def create_table(  # noqa: PLR0913 - a table has that many sides
        self,
        table: TableName,
        columns: Mapping[str, str | DuckLakeType] | pa.Schema,
        partition_by: Sequence[str] = (),
        not_null: Sequence[str] = (),
        *,
        sort_by: Sequence[str] = (),
        defaults: Mapping[str, SqlDefault] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a table.

        ``columns`` maps names to DuckLake types (``{"id": "int64", "tags": "varchar[]"}``), or is an Arrow
        schema, whose non-nullable fields are NOT NULL. ``partition_by`` holds expressions such as
        ``"year(day)"``, ``sort_by`` columns such as ``"id DESC"``.

        Raises:
            AlreadyExistsError, SchemaNotFoundError: the name is taken, or its schema missing.
            InvalidInputError: the definition is not valid (subclasses say why).
        """
        from .ddl import table_definition

        name = QualifiedName.of(table)
        definition = table_definition(columns, not_null, defaults or {})
        fields = partitioning.parse_partition_by(partition_by, definition, str(name))
        keys = parse_sort_by(sort_by, definition, str(name))
        existing = self._draft.find_table(name)
        if existing is not None and if_not_exists:
            return
        with self._draft.all_or_nothing():
            if existing is not None and or_replace:
                self._draft.drop_table(existing)
            draft = self._draft.create_table(name, definition)
            self._draft.put(draft.partitioned_by(fields).sorted_by(keys))

    def drop_table(self, table: TableName, *, if_exists: bool = False) -> None:
        """Drop a table.

        Raises:
            SchemaNotFoundError, TableNotFoundError: no such table.
        """
        found = self._draft.find_table(QualifiedName.of(table))
        if found is not None or not if_exists:
            self._draft.drop_table(found or self._table(table))

    def rename_table(self, table: TableName, new_name: str) -> None:
        """Give a table another name in its schema; its files stay where they are.

        Raises:
            TableNotFoundError: no such table.
            AlreadyExistsError: a table or view of the schema has the new name.
            InvalidNameError: the new name cannot be one.
        """
        self._draft.rename_table(self._table(table), check_name(new_name, "table"))

    def truncate(self, table: TableName) -> None:
        """Delete all rows of a table; if it has none, nothing is committed."""
        draft = self._table(table)
        if draft.base is None or self._base.rows.has_live(draft.base) or draft.files or draft.inlined:
            self._draft.put(draft.truncated())
        else:
            self._draft.put(draft.with_search())

    def delete_at(
        self,
        table: TableName,
        positions: Mapping[int, Collection[int]] | None = None,
        row_ids: Collection[int] = (),
    ) -> None:
        """Delete given rows: positions (from 0) in data files by file id, and inlined rows by row id.

        As in DuckDB, up to ``data_inlining_row_limit`` deletes of each file are inlined; more go to delete
        files.

        Raises:
            InvalidInputError: the table does not have a file, position or row id, or the row is already
            deleted.
            TableNotFoundError: no such table.
        """
        from . import rows as given_rows

        draft = self._table(table)
        base = base_of(draft)
        chosen = {DataFileId(file_id): places for file_id, places in (positions or {}).items()}
        with self._lake.planned_on(base.snapshot.id):
            targets = self._base.rows.targets(base, chosen, row_ids)
            changes = given_rows.changes_of_given_rows(targets, chosen, row_ids, self._lake.locate)
        self._draft.put(draft.with_deletes(tuple(changes)))

    def delete_rows(self, table: TableName, filter: str, *, max_bytes: int = 256 * 2**20) -> int:  # noqa: A002 - the word for it everywhere
        """Delete the rows for which a condition such as ``"day < '2024-01-31'"`` is true; return how many.

        This process reads the files that may hold such rows, which must not exceed ``max_bytes`` in total.
        Rows that the same transaction appends afterwards stay.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: the condition cannot be read.
            InvalidInputError: more bytes would have to be read, or the transaction has already changed the
            table.
            StorageError: a file is missing or damaged.
            TransactionConflictError: the rows were moved in the meantime.
        """
        from . import rows as given_rows

        draft = self._table(table)
        base = base_of(draft)
        if draft.files or draft.inlined or draft.columns != base.schema:
            raise errors.InvalidInputError(
                f"Delete rows of {draft.name} before the transaction adds rows to it or alters it."
            )
        with self._lake.planned_on(base.snapshot.id), self._lake.translated():
            plan = find_scan(self._lake.catalog, base.name, base.snapshot.id, Wanted((), filter))
        self._lake.report_read(base.name)
        given_rows.check_size(plan, max_bytes)
        chosen = given_rows.matching_positions(plan, self._lake.locate)
        row_ids = given_rows.matching_row_ids(plan)
        assert plan.where is not None
        draft = draft.with_search(RowScope(base, plan.where))
        if chosen or row_ids:
            targets = self._base.rows.targets(base, chosen, row_ids)
            draft = draft.with_deletes(tuple(delete_changes(targets, chosen, row_ids, self._lake.locate)))
        self._draft.put(draft)
        return sum(positions.count for positions in chosen.values()) + len(row_ids)

    def _table(self, table: TableName) -> TableDraft:
        if (found := self._draft.find_table(name := QualifiedName.of(table))) is None:
            raise self._base.no_table(name)
        return found

    # Columns

    def add_column(  # noqa: PLR0913 - so has a column
        self,
        table: TableName,
        column: str,
        type_: str | DuckLakeType,
        default: SqlDefault | None = None,
        *,
        nullable: bool = True,
        if_not_exists: bool = False,
    ) -> None:
        """Add a column, or a field of a struct; existing rows get the default.

        Raises:
            AlreadyExistsError, InvalidNameError, InvalidTypeError: the name or type is not valid.
            InvalidInputError: the default is an expression or does not fit, or rows would hold NULL in a
                column that is not ``nullable``.
        """
        draft = self._table(table)
        if if_not_exists and draft.has(column):
            return
        parsed = type_of(type_)
        if isinstance(default, SqlExpression):
            raise errors.InvalidInputError(
                f"Column {column!r}: existing rows get the default of a new column, so it must be a "
                "literal. Add the column without a default, then call set_default."
            )
        stored, initial = default_of(default, parsed)
        adds_rows = bool(draft.files or draft.inlined)
        if not nullable and initial is None and (adds_rows or self._base.rows.had_any(draft.base)):
            raise errors.InvalidInputError(
                f"Column {column!r} of {draft.name} cannot be NOT NULL without a default: existing rows "
                "would hold NULL in it."
            )
        self._draft.put(draft.with_column(column, parsed, stored, initial, nullable=nullable))

    def drop_column(self, table: TableName, column: str, *, if_exists: bool = False) -> None:
        """Drop a column, or a field of a struct; older snapshots keep it.

        Raises:
            ColumnNotFoundError: no such column.
            InvalidInputError: it is the last column, or a partition or sort key uses it.
        """
        draft = self._table(table)
        if not (if_exists and not draft.has(column)):
            self._draft.put(draft.without_column(column))

    def rename_column(self, table: TableName, column: str, new_name: str) -> None:
        """Give a column, or a field of a struct, another name; sort keys follow.

        Raises:
            ColumnNotFoundError: no such column or field.
            AlreadyExistsError: another column or field has the new name.
            InvalidNameError: the new name cannot be one.
        """
        self._draft.put(self._table(table).with_column_renamed(column, new_name))

    def set_column_type(self, table: TableName, column: str, type_: str | DuckLakeType) -> None:
        """Widen the type of a column or a field at any depth (``tags.element``).

        Raises:
            ColumnNotFoundError, InvalidTypeError: no such column, or a type that is not wider.
        """
        draft = self._table(table)
        self._draft.put(changed := draft.with_type(column, type_of(type_)))
        if draft.base is not None and self._base.rows.has_live(draft.base):
            warn_of_narrower(draft.name, narrower(draft.columns, changed.columns))

    def set_default(self, table: TableName, column: str, default: SqlDefault | None) -> None:
        """Set the default of a column for new rows; existing rows do not change.

        Raises:
            ColumnNotFoundError, InvalidInputError: no such column, or a value that does not fit it.
        """
        draft = self._table(table)
        stored, _ = default_of(default, draft.find(column).type)
        self._draft.put(draft.with_default(column, stored))

    def drop_default(self, table: TableName, column: str) -> None:
        """Remove a column's default: new rows get NULL."""
        self._draft.put(self._table(table).with_default(column, Default()))

    def set_not_null(self, table: TableName, column: str) -> None:
        """Forbid NULL in a column.

        Raises:
            ColumnNotFoundError: no such column.
            InvalidInputError: it holds a NULL, or the statistics do not rule that out.
        """
        draft = self._table(table)
        changed = draft.with_nullability(column, nullable=False)
        given = draft.find(column)
        if draft.inlines_null(given) or self._base.rows.may_hold_null(draft.base, draft.files, given):
            raise errors.InvalidInputError(
                f"Column {column!r} of {draft.name} may hold NULL according to its statistics. Fill or "
                "delete such rows, then compact the table to update the statistics."
            )
        self._draft.put(changed)

    def drop_not_null(self, table: TableName, column: str) -> None:
        """Allow NULL in a column."""
        self._draft.put(self._table(table).with_nullability(column, nullable=True))

    # Layout and comments

    def set_partitioned_by(self, table: TableName, partition_by: Sequence[str]) -> None:
        """Set the partition keys for new rows; none: unpartitioned.

        Rows that are there keep their files. DuckDB does not find them by a bucket key, about which a warning
        is logged.

        Raises:
            InvalidPartitionError: a key cannot be parsed, or its transform does not accept the column's type.
            ColumnNotFoundError: a key names no column.
        """
        draft = self._table(table)
        fields = partitioning.parse_partition_by(partition_by, draft.columns, str(draft.name))
        self._warn_of_buckets(draft, fields)
        self._draft.put(draft.partitioned_by(fields))

    def _warn_of_buckets(self, draft: TableDraft, fields: Sequence[partitioning.PartitionField]) -> None:
        before = set(enumerate(draft.partition_by))
        new = [
            one
            for place, one in enumerate(fields)
            if one.transform.kind is partitioning.TransformKind.BUCKET and (place, one) not in before
        ]
        if new and draft.base is not None and self._base.rows.has_live(draft.base):
            column = draft.columns.by_id(new[0].column_id).name
            log.warning(
                "%s has rows from before its partition key %s of column %s: DuckDB does not find them by "
                "conditions such as %s = 1 until they are written again, by an INSERT that overwrites the "
                "table with its own rows or an UPDATE that sets %s to itself",
                *(draft.name, new[0].transform, column, column, column),
            )

    def set_sorted_by(self, table: TableName, sort_by: Sequence[str]) -> None:
        """Set the sort keys of a table; none: unsorted.

        Raises:
            InvalidInputError: a key cannot be read.
            ColumnNotFoundError: a key names no column.
        """
        draft = self._table(table)
        self._draft.put(draft.sorted_by(parse_sort_by(sort_by, draft.columns, str(draft.name))))

    def set_option(
        self,
        table: TableName,
        key: str,
        value: str | float | bool | Sequence[str] | None,  # noqa: FBT001 - a value, not a switch
    ) -> None:
        """Set an option of a table; not versioned, and alone it makes no snapshot.

        ``skip_stats_columns`` takes a name or a list of names of columns, whose statistics then have no
        bounds; none: all have them.

        Raises:
            TableNotFoundError: no such table.
            InvalidOptionError: the option is unknown or cannot be set, or the value is out of range.
        """
        draft = self._table(table)
        outer, of = self._draft.options_around(draft), f" of {draft.name}"
        if key == SKIP_STATS_COLUMNS:
            self._draft.put(draft.skipping(names_of_option(value), outer))
        else:
            self._draft.put(draft.with_option(key, option_text(key, value, of), outer))

    def reset_option(self, table: TableName, key: str) -> None:
        """Remove a table's own option: that of its schema or of the lake, or the default, holds again.

        Raises:
            TableNotFoundError: no such table.
            InvalidOptionError: the option is unknown or cannot be set.
        """
        draft = self._table(table)
        key = check_option(key, f" of {draft.name}")
        self._draft.put(draft.with_option(key, None, self._draft.options_around(draft)))

    def comment_on_table(self, table: TableName, text: str | None) -> None:
        """Set a table's comment; None removes it."""
        self._draft.put(self._table(table).commented(checked_comment(text)))

    def comment_on_column(self, table: TableName, column: str, text: str | None) -> None:
        """Set the comment of a column, since DuckLake 1.1 of a view's as well; None removes it.

        Raises:
            ColumnNotFoundError: the table or view has no such column.
            UnsupportedFeatureError: a view's, and the lake's version has none, or the view's query does not
                say the name of the column.
        """
        from ...sql.duckdb.create import stored_name

        view = self._draft.find_view(QualifiedName.of(table))
        if view is None:
            self._draft.put(self._table(table).column_commented(column, checked_comment(text)))
            return
        self._base.writer.check(Feature.VIEW_COLUMN_COMMENTS)
        definition = view.definition or self._base.definition_of((view.base or view).name)
        name = stored_name(str(view.name), definition, bare_name(column))
        known = () if view.base is None else self._base.commented_columns(view.base.id)
        name = next((one for one in (*view.column_comments, *known) if fold(one) == fold(name)), name)
        comments = {**view.column_comments, name: checked_comment(text)}
        self._draft.put_view(replace(view, column_comments=comments))

    def comment_on_view(self, view: TableName, text: str | None) -> None:
        """Set a view's comment; None removes it."""
        self._draft.put_view(replace(self._view(view), comment=(checked_comment(text),)))

    # Views

    def create_view(  # noqa: PLR0913 - and a view
        self,
        view: TableName,
        sql: str,
        dialect: str = "duckdb",
        *,
        column_aliases: Sequence[str] = (),
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a view; its SQL is stored unchanged, for clients that understand ``dialect``.

        Raises:
            AlreadyExistsError, SchemaNotFoundError: the name is taken, or its schema missing.
            InvalidInputError: there is no SQL, or the dialect is unknown.
        """
        name = QualifiedName.of(view)
        if dialect not in _DIALECTS:
            raise errors.InvalidInputError(
                f"The view's dialect {dialect!r} is not one of {', '.join(_DIALECTS)}."
            )
        if not sql.strip() or not is_storable(sql):
            raise errors.InvalidInputError(
                f"The view {name} needs SQL that is not empty and has no NUL character and no unpaired "
                "surrogate."
            )
        existing = self._draft.find_view(name)
        if existing is not None and if_not_exists:
            return
        aliases = tuple(check_name(alias, "column") for alias in column_aliases)
        with self._draft.all_or_nothing():
            if existing is not None and or_replace:
                self._draft.drop_view(existing)
            self._draft.create_view(name, ViewDefinition(sql.strip(), dialect, aliases))

    def drop_view(self, view: TableName, *, if_exists: bool = False) -> None:
        """Drop a view.

        Raises:
            ViewNotFoundError: no such view.
        """
        found = self._draft.find_view(QualifiedName.of(view))
        if found is not None or not if_exists:
            self._draft.drop_view(found or self._view(view))

    def rename_view(self, view: TableName, new_name: str) -> None:
        """Give a view another name in its schema.

        Raises:
            ViewNotFoundError: no such view.
            AlreadyExistsError: a table or view of the schema has the new name.
            InvalidNameError: the new name cannot be one.
        """
        self._draft.rename_view(self._view(view), check_name(new_name, "view"))

    def _view(self, view: TableName) -> ViewDraft:
        name = QualifiedName.of(view)
        found = self._draft.find_view(name)
        if found is None:
            raise errors.ViewNotFoundError(str(name), self._base.snapshot_id)
        return found

    # Macros

    def create_macro(
        self,
        macro: TableName,
        definition: str | MacroDefinition,
        *,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a macro, which DuckDB calls as a function, or a table macro, which it calls in FROM.

        ``definition`` is what follows the name in DuckDB's SQL: ``"(a, b := 2) AS a + b"``,
        ``"(a) AS a, (a, b) AS a + b"`` or ``"(n) AS TABLE SELECT * FROM sales.orders LIMIT n"``; or what
        ``lake.macros()`` returns.

        Raises:
            InvalidInputError: DuckDB might not read a given ``MacroDefinition``, and then not the whole lake.
            AlreadyExistsError, SchemaNotFoundError: the name is taken, or its schema missing.
            InvalidStatementError: the definition cannot be read; says where.
            UnsupportedFeatureError: the lake's version does not have what it needs.
        """
        from ...sql.duckdb.macros import judged

        name = QualifiedName.of(macro)
        definition = judged(definition, str(name), self._base.writer)
        existing = self._draft.find_macro(name, is_table=definition.is_table)
        if existing is not None and if_not_exists:
            return
        with self._draft.all_or_nothing():
            if existing is not None and or_replace:
                self._draft.drop_macro(existing)
            self._draft.create_macro(name, definition)

    def drop_macro(self, macro: TableName, *, table: bool = False, if_exists: bool = False) -> None:
        """Drop a macro; with ``table`` only a table macro, otherwise a table macro if no other has the name.

        Raises:
            MacroNotFoundError: no such macro.
        """
        name = QualifiedName.of(macro)
        found = None if table else self._draft.find_macro(name, is_table=False)
        found = found or self._draft.find_macro(name, is_table=True)
        if found is not None:
            self._draft.drop_macro(found)
        elif not if_exists:
            raise errors.MacroNotFoundError(
                str(name), self._base.snapshot_id, "table macro" if table else "macro"
            )

    # Rows

    def append_files(self, table: TableName, files: Sequence[DataFile]) -> None:
        """Append existing Parquet files that have the table's field ids.

        Paths are absolute, or relative to the table's directory. The files belong to the lake from then on.

        Raises:
            InvalidInputError: a file has no rows, or its partition values do not fit the table's partition
            keys.
        """
        draft = self._table(table)
        for file in files:
            check_file(file, draft)
        self._draft.put(draft.with_files(tuple(placed(file, draft.root) for file in files)))

    def add_data_files(
        self,
        table: TableName,
        paths: Sequence[str],
        *,
        hive_partitioning: bool = False,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
    ) -> list[DataFile]:
        """Append existing Parquet files where they are; columns are matched by name.

        ``paths`` are absolute or URIs; one with ``*`` stands for all matching files, in sorted order. With
        ``hive_partitioning`` folders named ``column=value`` give columns. ``allow_missing`` fills columns
        that a file lacks with NULL or their first default, ``ignore_extra_columns`` ignores those that the
        table lacks. Files without rows are skipped. Returns what was added.

        The files belong to the lake from then on: compaction and clean-up delete them.

        Raises:
            SchemaMismatchError: a file does not fit the table; it lists all differences of the first such
            file.
            InvalidPartitionError: a file does not belong to one partition of the table.
            InvalidInputError: a path is relative or matches no file, or the lake already has the file.
            StorageError: a file cannot be read.
        """
        from . import add_files

        draft = self._table(table)
        rules = add_files.FileRules(hive_partitioning, allow_missing, ignore_extra_columns)
        files = add_files.foreign_files(self._lake, draft, paths, rules, self._added_paths())
        warn_of_narrower(draft.name, {one for file in files for one in file.narrower})
        self.append_files(draft.name, files)
        return files

    def _added_paths(self) -> set[str]:
        """Return the paths of the transaction's files, as they are stored and in full."""
        added = {file.path for one in self._draft.tables_with_files for file in one.files}
        return added | {one.root + file.path for one in self._draft.tables_with_files for file in one.files}

    def add_table(  # noqa: PLR0913 - where the table lies, at what, and how it is read
        self,
        table: TableName,
        source: str,
        format: str,  # noqa: A002 - what it is called
        *,
        snapshot_id: int | None = None,
        version: int | None = None,
        create_table: bool = False,
        catalog: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        allowed_paths: Sequence[str] = (),
    ) -> list[DataFile]:
        """Append the data files of an Iceberg or Delta table where they are, without its deleted rows.

        ``source`` is the table's folder; of an Iceberg table also the path of a metadata file, or with
        ``catalog``, the properties of a pyiceberg catalog, its name there. ``snapshot_id`` is Iceberg's and
        ``version`` Delta's; default: the current one. ``create_table``: a table that does not exist is made,
        and its schema if need be, with the source's columns and those of its partition keys that DuckLake
        has. ``storage_options`` are deltalake's, beside the lake's own; ``allowed_paths`` further folders in
        which files may lie. Returns what was added.

        The files belong to the lake from then on: compaction and clean-up delete them.

        Raises:
            UnsupportedFeatureError: something cannot be carried over; names it. Nothing was written.
            SchemaMismatchError: columns, or a file, do not fit the table; lists all differences.
            InvalidInputError: no such snapshot or version; the lake already has a file; or a file is not what
                the metadata says.
            SourceNotFoundError, TableNotFoundError: there is no such table.
            UntrustedValueError: the metadata names files outside the folders.
            StorageError: the metadata or a file cannot be read.
        """
        from ...storage.foreign.source import Source, read_source
        from . import add_files as add_table

        given = dict(catalog or {}), dict(storage_options or {}), tuple(allowed_paths)
        chosen = Source(source, format, snapshot_id, version, *given)
        try:
            draft = self._table(table)
        except (errors.SchemaNotFoundError, errors.TableNotFoundError):
            if not create_table:
                raise
            draft = None
        found = read_source(chosen, self._lake.storage_options)
        with self._draft.all_or_nothing():
            draft = draft or self._create_as(table, found)
            pairs = add_table.source_files(self._lake, draft, found, self._added_paths())
            warn_of_narrower(draft.name, {one for file, _ in pairs for one in file.narrower})
            files = add_table.with_deletes(self._lake, draft, pairs, self._new_path(draft.root))
            of_table = tuple(placed(file, draft.root) for file in files)
            self._draft.put(self._table(draft.name).with_files(of_table))
        return files

    def _create_as(self, table: TableName, source: SourceTable) -> TableDraft:
        from ...planning.writing.source_table import matched, new_partitioning, new_schema

        columns = new_schema(source)
        keys = {column_id: one.key for column_id, one in matched(source, columns, str(table)).items()}
        name = QualifiedName.of(table)
        self.create_schema(name.schema, if_not_exists=True)
        draft = self._draft.create_table(name, columns)
        draft = draft.partitioned_by(new_partitioning(source, keys))
        self._draft.put(draft)
        return draft

    def append_arrow(self, table: TableName, rows: pa.Table) -> None:
        """Append an Arrow table; columns are matched by name.

        As in DuckDB, up to ``data_inlining_row_limit`` rows (an option; 10 unless set) are inlined if the
        catalog's database and the values allow it; more rows are written as Parquet by this process, in the
        order of the table's sort keys.

        Raises:
            SchemaMismatchError: columns are missing, unexpected or of another type; it lists all of them.
            InvalidValueError: strings that are not UTF-8, or not JSON in a ``json`` column.
            StorageError: a file cannot be written.
        """
        from ...storage.arrow.arrow_types import check_and_cast
        from ...storage.arrow.rows import sorted_rows, split_by_partition
        from ...storage.arrow.string_checks import refuse_bad_strings

        draft = self._table(table)
        rows = check_and_cast(rows, draft.columns, str(draft.name))
        refuse_bad_strings(rows, draft.columns, str(draft.name))
        if not rows.num_rows:
            return
        partitioning.check_partition_keys(draft.partition_by, draft.columns, str(draft.name))
        parts = list(split_by_partition(rows, draft.columns, draft.partition_by))
        for values, _ in parts:
            partitioning.check_partition_values(values, str(draft.name))
        if rows.num_rows <= draft.options.integer("data_inlining_row_limit"):
            batch = self._base.rows.inlined(rows, draft.columns)
            if batch is not None:
                self._draft.put(draft.with_inlined(batch, self._base.rows.layout(draft.base, draft.columns)))
                return
        if draft.sort_by and draft.options.flag("sort_on_insert"):
            rows = sorted_rows(rows, keys_to_write_by(draft.sort_by, draft.columns, str(draft.name)))
            parts = list(split_by_partition(rows, draft.columns, draft.partition_by))
        for values, part in parts:
            self.append_files(draft.name, self._write(part, values, draft))

    def _write(self, rows: pa.Table, values: tuple[str | None, ...], target: TableDraft) -> list[DataFile]:
        from ...storage.parquet.writer import RollingWriter

        self._lake.check_writable(target.root)
        settings = ParquetSettings.of_options(target.options)
        hive = settings.hive_file_pattern and target.partition_by
        directory = target.root + (
            partitioning.hive_directory(target.partition_by, target.columns, values) if hive else ""
        )
        with RollingWriter(
            target.columns, self._new_path(directory), settings, locate=self._lake.locate
        ) as writer:
            writer.write(rows)
        return [replace(file, partition_values=values) for file in writer.files]

    def _new_path(self, directory: str) -> Callable[..., str]:
        def next_path(ending: str = ".parquet") -> str:
            path = f"{directory}ducklake-{uuid7()}{ending}"
            self._new_files.append(path)
            return path

        return next_path

    def _remove(self, paths: Iterable[str]) -> None:
        remove_unused(paths, self._lake.locate)
