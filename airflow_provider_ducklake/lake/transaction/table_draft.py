"""A table as a transaction will leave it, and the changes that lead there.

Every edit returns a new draft; what counts is the difference between the first and the last one.
*Source:* what the reference allows and writes for each ALTER (docs/sources.md, DDL; probed on 1.5.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .. import errors
from ..format.names.identifiers import QualifiedName, fold, split_parts
from ..format.options import SKIP_STATS_COLUMNS, Options
from ..format.schema import (
    Column,
    Default,
    TableSchema,
    add_column,
    new_columns,
    parents,
    remove_column,
    replace_column,
    resolve_path,
)
from ..format.types.ducklake_types import (
    DuckLakeType,
    Field,
    ScalarKind,
    StructType,
    can_promote,
    keeps_partition_values,
)
from . import changes as kinds
from .definition import PARTITIONING, SORTING, Definition, column_rows, definition_changes

if TYPE_CHECKING:
    from ..format.files import DataFile, TableColumnStats
    from ..format.partitioning import PartitionField
    from ..format.snapshots import ColumnId, PartitionId, TableSnapshot
    from ..format.sorting import SortField


@dataclass(frozen=True, slots=True)
class InlinedBatch:
    """Rows for the catalog: values to bind by column id, and what they say of each leaf column."""

    rows: tuple[Mapping[ColumnId, object], ...]
    column_stats: Mapping[ColumnId, TableColumnStats | None]


@dataclass(frozen=True, slots=True)
class TableDraft:
    """One table of a transaction; ``base`` is None for one that the transaction creates.

    ``root`` is its directory, absolute, ending in ``/``; ``next_column_id`` has never been used by the table.
    """

    ref: kinds.TableRef
    schema_ref: kinds.SchemaRef
    name: QualifiedName
    uuid: str
    directory: str
    root: str
    columns: TableSchema
    options: Options
    next_column_id: int
    base: TableSnapshot | None = None
    partition_by: tuple[PartitionField, ...] = ()
    sort_by: tuple[SortField, ...] = ()
    keys_set: tuple[str, ...] = ()  # PARTITIONING and SORTING, in the order they were set
    table_comment: tuple[str | None] | None = None
    column_comments: Mapping[ColumnId, str | None] = field(default_factory=dict)
    without_nulls: tuple[ColumnId, ...] = ()
    files: tuple[DataFile, ...] = ()
    inlined: tuple[InlinedBatch, ...] = ()
    layout: kinds.InlinedLayout = field(default_factory=kinds.InlinedLayout)
    deletes: tuple[kinds.Change, ...] = ()
    is_truncated: bool = False
    searched: tuple[kinds.ReadRows, ...] = ()  # for rows to delete
    is_altered: bool = False
    undone: tuple[kinds.ColumnRow, ...] = ()
    options_set: Mapping[str, str | None] = field(default_factory=dict)  # as in SetOptions

    @classmethod
    def of(cls, table: TableSnapshot, next_column_id: int) -> TableDraft:
        """Return the draft of an existing table that nothing has happened to."""
        return cls(
            ref=table.table_id,
            schema_ref=table.schema_id,
            name=table.name,
            uuid=table.table_uuid,
            directory="",
            root=table.root,
            columns=table.schema,
            options=table.options,
            next_column_id=next_column_id,
            base=table,
            partition_by=table.partition_spec.fields if table.partition_spec else (),
            sort_by=table.sort_spec.fields if table.sort_spec else (),
        )

    @property
    def partition_id(self) -> PartitionId | None:
        """The partition spec of files written now; None for one that the transaction itself sets."""
        spec = self.base.partition_spec if self.base is not None else None
        return spec.id if spec is not None and spec.fields == self.partition_by else None

    def check_column_name(self, name: str, *, is_top: bool = True) -> None:
        """Refuse a name that no column of the table, or field of one, can have."""
        inlining = is_top and self.options.allows_inlining
        self.options.writer.check_column_name(name, inlining=inlining)

    def find(self, path: str) -> Column:
        """Return the column of a dotted path."""
        return resolve_path(self.columns, path, str(self.name))

    def has(self, path: str) -> bool:
        """Return True if there is a column of that dotted path."""
        try:
            self.find(path)
        except errors.ColumnNotFoundError:
            return False
        return True

    def renamed(self, name: QualifiedName) -> TableDraft:
        """Return the table under another name."""
        return replace(self, name=name)

    def with_column(
        self, path: str, type_: DuckLakeType, default: Default, initial: str | None, *, nullable: bool
    ) -> TableDraft:
        """Return the table with one more column, or field of a struct (``"address.zip"``)."""
        *above, name = split_parts(path)
        parent = self._parent_of_new(path, above)
        siblings = parent.children if parent is not None else self.columns.columns
        self.check_column_name(name, is_top=parent is None)
        if any(fold(one.name) == fold(name) for one in siblings):
            raise errors.AlreadyExistsError("column", f"{self.name}.{path}")
        if self.inlined and initial is not None:
            raise errors.InvalidInputError(f"Add column {path!r} before rows are added to {self.name}.")
        added = new_columns([Field(name, type_)], first_id=self.next_column_id).columns[0]
        added = replace(added, default=default, initial_default=initial, nullable=nullable)
        needed = () if nullable or initial is not None else (added.id,)  # in rows that others add
        return replace(
            self,
            columns=add_column(self.columns, parent.id if parent else None, added),
            next_column_id=self.next_column_id + sum(1 for _ in added.walk()),
            is_altered=self.is_altered or parent is None,
            without_nulls=(*self.without_nulls, *needed),
        )

    def _parent_of_new(self, path: str, above: Sequence[str]) -> Column | None:
        if not above:
            return None
        column = TableSchema(self.columns.columns).find(above[0], str(self.name))
        for part in above[1:]:
            column = TableSchema(column.children).find(part, f"{self.name} column {column.name}")
        if not isinstance(column.type, StructType):
            raise errors.InvalidTypeError(
                f"Cannot add {path!r} to {self.name}: fields can be added to a struct, and {column.name!r} "
                f"is {column.type}."
            )
        return column

    def without_column(self, path: str) -> TableDraft:
        """Return the table without a column or field."""
        column = self.find(path)
        siblings = self._siblings(column)
        if len(siblings) == 1:
            where = "field of its struct" if column not in self.columns.columns else f"column of {self.name}"
            raise errors.InvalidInputError(
                f"Cannot drop {path!r}: it is the last {where}. Drop the whole struct or table instead."
            )
        if not self._is_struct_field_or_top(column):
            raise errors.InvalidInputError(f"Cannot drop {path!r}: a list or map needs it.")
        self._refuse_field_of_inlined(column, f"Drop {path!r}")
        self._refuse_partition_key(column, "drop")
        if column in self.columns.columns and any(key.mentions(column) for key in self.sort_by):
            raise errors.InvalidInputError(
                f"Cannot drop column {column.name!r}: {self.name} is sorted by it. Set or reset the sort "
                "keys first."
            )
        return replace(
            self,
            columns=remove_column(self.columns, column.id),
            undone=(*self.undone, *self._made_here(column)),
        )

    def _made_here(self, column: Column) -> Iterator[kinds.ColumnRow]:
        """Yield a column and what it holds as far as the transaction added them and their ids stay used.

        They do for a new table, as in the reference, and where files of the transaction have them.
        """
        before = column_rows(self.base.schema) if self.base is not None else {}
        rows = column_rows(self.columns)
        if self.base is None or self.files:
            yield from (rows[one.id] for one in TableSchema((column,)).walk() if one.id not in before)

    def _siblings(self, column: Column) -> tuple[Column, ...]:
        parent = parents(self.columns)[column.id]
        return self.columns.columns if parent is None else self.columns.by_id(parent).children

    def _is_struct_field_or_top(self, column: Column) -> bool:
        parent = parents(self.columns)[column.id]
        return parent is None or isinstance(self.columns.by_id(parent).type, StructType)

    def _refuse_partition_key(self, column: Column, verb: str) -> None:
        if any(key.column_id == column.id for key in self.partition_by):
            raise errors.InvalidInputError(
                f"Cannot {verb} column {column.name!r}: {self.name} is partitioned by it. Set or reset the "
                "partitioning first."
            )

    def _refuse_field_of_inlined(self, column: Column, what: str) -> None:
        """Refuse another shape of structs that the transaction's rows for the catalog are written in."""
        if self.inlined and column not in self.columns.columns:
            raise errors.InvalidInputError(f"{what} before rows are added to {self.name}.")

    def with_column_renamed(self, path: str, name: str) -> TableDraft:
        """Return the table with another name for a column or struct field; sort keys follow."""
        column = self.find(path)
        is_top = column in self.columns.columns
        self.check_column_name(name, is_top=is_top)
        if not self._is_struct_field_or_top(column):
            raise errors.InvalidInputError(
                f"Cannot rename {path!r}: the format defines the names inside lists and maps."
            )
        if any(one.id != column.id and fold(one.name) == fold(name) for one in self._siblings(column)):
            raise errors.AlreadyExistsError("column", f"{self.name}.{name}")
        self._refuse_field_of_inlined(column, f"Rename {path!r}")
        if not is_top:
            return replace(self, columns=replace_column(self.columns, replace(column, name=name)))
        draft = self._with(replace(column, name=name))
        sort_by = tuple(key.renamed(column, name) for key in self.sort_by)
        return draft if sort_by == self.sort_by else draft.sorted_by(sort_by)

    def with_type(self, path: str, type_: DuckLakeType) -> TableDraft:
        """Return the table with a wider type for a column or field."""
        column = self.find(path)
        if column.children or not can_promote(column.type, type_):
            raise errors.InvalidTypeError(
                f"Cannot change column {path!r} of {self.name} from {column.type} to {type_}: a type can "
                "only be widened (to a larger integer, float64, a larger decimal, date to timestamp), and "
                'nested types part by part ("address.zip", "tags.element", "totals.value").'
            )
        if self.files or self.inlined:
            raise errors.InvalidInputError(
                f"Change the type of {path!r} before rows are added to {self.name}."
            )
        if not keeps_partition_values(column.type, type_):
            self._refuse_partition_key(column, "change the type of")
        if column.type == type_:
            return self
        return replace(self, columns=replace_column(self.columns, replace(column, type=type_)))

    def with_default(self, path: str, default: Default) -> TableDraft:
        """Return the table with another default for rows to come."""
        column = self.find(path)
        if column not in self.columns.columns:
            raise errors.InvalidInputError(
                f"Cannot set a default for {path!r}: only top-level columns can have one."
            )
        return self._with(replace(column, default=default))

    def with_nullability(self, path: str, *, nullable: bool) -> TableDraft:
        """Return the table with NOT NULL set or dropped; the caller checks that it holds no NULL."""
        column = self.find(path)
        if column not in self.columns.columns:
            raise errors.InvalidInputError(
                f"Cannot set NOT NULL for {path!r}: only top-level columns can have it."
            )
        if column.nullable == nullable:
            return self
        draft = self._with(replace(column, nullable=nullable))
        kept = tuple(one for one in self.without_nulls if one != column.id)
        return replace(draft, without_nulls=kept if nullable else (*kept, column.id))

    def _with(self, column: Column) -> TableDraft:
        """Return the table with a column changed in a way that the reference records for a new table too."""
        return replace(self, columns=replace_column(self.columns, column), is_altered=True)

    def partitioned_by(self, fields: tuple[PartitionField, ...]) -> TableDraft:
        """Return the table with other partition keys."""
        if fields == self.partition_by:
            return self
        self._refuse_skipped(fields)
        if self.files or self.inlined:
            raise errors.InvalidInputError(
                f"Set the partitioning of {self.name} before rows are added to it."
            )
        return replace(self, partition_by=fields, keys_set=_last(self.keys_set, PARTITIONING))

    def _refuse_skipped(self, fields: tuple[PartitionField, ...]) -> None:
        for one in fields:
            if one.column_id in self.options.skipped_columns:
                name = self.columns.by_id(one.column_id).name
                raise errors.InvalidPartitionError(
                    f"Cannot partition {self.name} by column {name!r}: it is listed in the table's option "
                    f"{SKIP_STATS_COLUMNS}. Set the option to the other columns, or reset it, first."
                )

    def skipping(self, names: Sequence[str], outer: Options) -> TableDraft:
        """Return the table without bounds in the statistics of top-level columns, and what lies in them."""
        columns = [self._skippable(name) for name in names]
        text = ",".join(dict.fromkeys(str(one.id) for one in columns))
        return self.with_option(SKIP_STATS_COLUMNS, text, outer)

    def _skippable(self, name: str) -> Column:
        wrong = f"Option {SKIP_STATS_COLUMNS} of {self.name} cannot name {name!r}"
        column = next((one for one in self.columns.columns if fold(one.name) == fold(name)), None)
        if column is None:
            known = ", ".join(self.columns.names)
            raise errors.InvalidOptionError(
                f"{wrong}: no top-level column has this name. Choose from: {known}. Several columns are a "
                "list of names."
            )
        if any(key.column_id == column.id for key in self.partition_by):
            raise errors.InvalidOptionError(
                f"{wrong}: the table is partitioned by it. Leave it out, or set the partitioning first."
            )
        for leaf in column.leaves():
            if leaf.type.facts.kind in _WITHOUT_BOUNDS:
                raise errors.InvalidOptionError(
                    f"{wrong}: it holds {leaf.type}, which has no bounds. Leave it out."
                )
        return column

    def with_option(self, key: str, text: str | None, outer: Options) -> TableDraft:
        """Return the table with an option set; None: removed, so that ``outer`` applies."""
        options_set = {**self.options_set, key: text}
        return replace(self, options=self.options.changed(key, text, outer), options_set=options_set)

    def sorted_by(self, fields: tuple[SortField, ...]) -> TableDraft:
        """Return the table with other sort keys."""
        if fields == self.sort_by:
            return self
        return replace(self, sort_by=fields, keys_set=_last(self.keys_set, SORTING))

    def commented(self, text: str | None) -> TableDraft:
        """Return the table with another comment."""
        return replace(self, table_comment=(text,))

    def column_commented(self, path: str, text: str | None) -> TableDraft:
        """Return the table with another comment on a column."""
        return replace(self, column_comments={**self.column_comments, self.find(path).id: text})

    def with_files(self, files: tuple[DataFile, ...]) -> TableDraft:
        """Return the table with rows in new files, written with its present columns and keys."""
        return replace(self, files=self.files + files)

    def with_inlined(self, batch: InlinedBatch, layout: kinds.InlinedLayout) -> TableDraft:
        """Return the table with rows in the catalog; ``layout`` is what the base snapshot has for them."""
        return replace(self, inlined=(*self.inlined, batch), layout=layout)

    def inlines_null(self, column: Column) -> bool:
        """Return True if one of the transaction's rows for the catalog has NULL in a top-level column."""
        return any(row.get(column.id) is None for batch in self.inlined for row in batch.rows)

    def with_deletes(self, deletes: tuple[kinds.Change, ...]) -> TableDraft:
        """Return the table without some rows of its base."""
        if self.deletes or self.is_truncated:
            raise errors.InvalidInputError(f"Delete all rows of {self.name} in one step of the transaction.")
        return replace(self, deletes=deletes)

    def with_search(self, scope: kinds.Scope | None = None) -> TableDraft:
        """Return the table after a search for rows to delete, among those of a scope or all."""
        assert self.base is not None
        search = kinds.ReadRows(self.base.table_id, self.base.name, scope, counts_gone=False)
        return replace(self, searched=(*self.searched, search))

    def truncated(self) -> TableDraft:
        """Return the table without any row."""
        return replace(self, files=(), inlined=(), deletes=(), is_truncated=self.base is not None)

    def changes(self) -> Iterator[kinds.Change]:
        """Yield what a commit has to do."""
        if self.base is None:
            yield self._creation()
        before = Definition.of(self.base) if self.base is not None else None
        for change in definition_changes(self.ref, before, self._definition()):
            if isinstance(change, kinds.SetPartitioning):
                yield replace(change, bounded=SKIP_STATS_COLUMNS not in self.options_set)
            else:
                yield change
        if self.options_set:
            yield kinds.SetOptions(self.ref, self.name, self.options_set, self._skipped())
        if self.deletes or self.files or self.inlined:
            yield from self.searched
        yield from self.deletes
        if self.is_truncated and self.base is not None:
            yield kinds.Truncate(self.base.table_id, self.base.name)
        if self.files:
            yield kinds.AppendFiles(
                self.ref,
                self.name,
                self.columns,
                self.files,
                self.partition_id,
                self.root,
                is_partitioned=bool(self.partition_by),
            )
        if self.inlined:
            rows = tuple(row for batch in self.inlined for row in batch.rows)
            stats = tuple(batch.column_stats for batch in self.inlined)
            yield kinds.InlineRows(self.ref, self.name, self.columns, rows, stats, self.layout)

    def _skipped(self) -> frozenset[ColumnId] | None:
        if SKIP_STATS_COLUMNS not in self.options_set:
            return None
        skipped = self.options.skipped_columns
        return frozenset(
            leaf.id for top in self.columns.columns if top.id in skipped for leaf in top.leaves()
        )

    def _creation(self) -> kinds.CreateTable:
        assert isinstance(self.ref, kinds.NewTableRef)
        return kinds.CreateTable(
            self.ref,
            self.schema_ref,
            self.name,
            self.uuid,
            self.directory,
            self.columns,
            self.is_altered,
            self.undone,
        )

    def _definition(self) -> Definition:
        alive = {column.id for column in self.columns.walk()}
        comments: dict[ColumnId | None, str | None] = {
            one: text for one, text in self.column_comments.items() if one in alive
        }
        if self.table_comment is not None:
            comments = {None: self.table_comment[0], **comments}
        return Definition(
            self.name,
            self.columns,
            self.options.allows_inlining,
            partition_by=self.partition_by,
            sort_by=self.sort_by,
            comments=comments,
            keys_set=self.keys_set,
            without_nulls=self.without_nulls,
            undone=self.undone,
        )


_WITHOUT_BOUNDS = frozenset({ScalarKind.VARIANT, ScalarKind.GEOMETRY, ScalarKind.OTHER})


def _last(words: tuple[str, ...], word: str) -> tuple[str, ...]:
    return (*(one for one in words if one != word), word)
