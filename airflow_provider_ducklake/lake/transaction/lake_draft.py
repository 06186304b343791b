"""The lake as a transaction sees it: what its base snapshot holds, and the transaction's own changes over it.

One of the few places with mutable state; nothing here reads or writes anything but through ``BaseLake``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Protocol

from ..errors import AlreadyExistsError, InvalidInputError, SchemaNotFoundError
from ..format.names.identifiers import QualifiedName, SchemaPath, fold
from ..format.names.paths import directory_name, schema_directory
from ..format.versions import Feature, WriteVersion
from . import changes as kinds
from .table_draft import TableDraft

if TYPE_CHECKING:
    from ..format.options import Options
    from ..format.schema import TableSchema
    from ..format.snapshots import MacroId, SnapshotId, ViewId
    from ..format.tags import MacroDefinition, ViewDefinition


@dataclass(frozen=True, slots=True)
class SchemaDraft:
    """A schema; ``uuid`` and ``parent`` are only set for a new one.

    ``root`` ends in ``/``.
    """

    ref: kinds.SchemaRef
    name: SchemaPath
    root: str
    uuid: str = ""
    parent: kinds.SchemaRef | None = None


@dataclass(frozen=True, slots=True)
class BaseView:
    """A view of the base snapshot."""

    id: ViewId
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class BaseMacro:
    """A macro of the base snapshot."""

    id: MacroId
    name: QualifiedName
    is_table_macro: bool


@dataclass(frozen=True, slots=True)
class MacroDraft:
    """A macro as the transaction will leave it; ``base`` is None and ``definition`` set for a new one."""

    schema_ref: kinds.SchemaRef
    name: QualifiedName
    is_table_macro: bool
    base: BaseMacro | None = None
    definition: MacroDefinition | None = None


@dataclass(frozen=True, slots=True)
class ViewDraft:
    """A view as the transaction will leave it; ``base`` is None and ``definition`` set for a new one."""

    ref: kinds.ViewRef
    schema_ref: kinds.SchemaRef
    name: QualifiedName
    base: BaseView | None = None
    definition: ViewDefinition | None = None
    uuid: str = ""
    comment: tuple[str | None] | None = None
    column_comments: Mapping[str, str | None] = field(default_factory=dict)  # by names in the query

    def changes(self) -> Iterator[kinds.Change]:
        """Yield what a commit has to do."""
        if self.base is None:
            assert isinstance(self.ref, kinds.NewViewRef)
            assert self.definition is not None
            yield kinds.CreateView(self.ref, self.schema_ref, self.name, self.uuid, self.definition)
        elif self.name != self.base.name:
            yield kinds.RenameView(self.base.id, self.base.name, self.name, tuple(self.column_comments))
        if self.comment is not None:
            yield kinds.CommentOnView(self.ref, self.name, self.comment[0])
        for column, text in self.column_comments.items():
            yield kinds.CommentOnViewColumn(self.ref, self.name, column, text)


class BaseLake(Protocol):
    """What a draft reads of the base snapshot; names are compared as DuckDB compares them."""

    snapshot_id: SnapshotId

    @property
    def writer(self) -> WriteVersion:
        """The rules of the lake's version for a writer."""

    def schema(self, name: SchemaPath) -> SchemaDraft | None:
        """Return a schema."""

    def schemas_in(self, schema: SchemaDraft) -> list[SchemaDraft]:
        """Return the schemas that lie in a schema itself, not in one of those."""

    def table(self, schema: SchemaDraft, name: str) -> TableDraft | None:
        """Return a table."""

    def view(self, schema: SchemaDraft, name: str) -> BaseView | None:
        """Return a view."""

    def tables_in(self, schema: SchemaDraft) -> list[QualifiedName]:
        """Return the tables of a schema."""

    def views_in(self, schema: SchemaDraft) -> list[BaseView]:
        """Return the views of a schema."""

    def macros_in(self, schema: SchemaDraft) -> list[BaseMacro]:
        """Return the macros of a schema."""

    def why_not_inlined(self, columns: TableSchema) -> str | None:
        """Explain why the catalog's database cannot hold rows with these columns; None if it can."""

    def options_of_new_table(self, schema: SchemaDraft) -> Options:
        """Return the options in force for a new table of a schema."""


class LakeDraft:
    """Schemas, tables, views and macros of one transaction."""

    def __init__(self, base: BaseLake, data_path: str, new_uuid: Callable[[], str]) -> None:
        self._base = base
        self._data_path = data_path
        self._new_uuid = new_uuid
        self._numbers = count()
        self._schemas: dict[kinds.SchemaRef, SchemaDraft | None] = {}
        self._tables: dict[kinds.TableRef, TableDraft | None] = {}
        self._views: dict[kinds.ViewRef, ViewDraft | None] = {}
        self._macros: list[MacroDraft] = []  # the new ones
        self._dropped_macros: set[MacroId] = set()
        self._dropped: list[kinds.Change] = []

    @property
    def changes(self) -> list[kinds.Change]:
        """The changes to commit: drops, then new schemas, tables, views and macros.

        Each kind is in the order of its making, but scalar macros come before table macros, as the
        reference numbers them.
        """
        found: list[kinds.Change] = list(self._dropped)
        found += [
            kinds.CreateSchema(one.ref, one.name, one.uuid, one.parent)
            for one in self._schemas.values()
            if one is not None and isinstance(one.ref, kinds.NewSchemaRef)
        ]
        for draft in (*self._tables.values(), *self._views.values()):
            if draft is not None:
                found.extend(draft.changes())
        for macro in sorted(self._macros, key=lambda one: one.is_table_macro):
            assert macro.definition is not None
            found.append(kinds.CreateMacro(macro.schema_ref, macro.name, macro.definition))
        return found

    def find_schema(self, name: SchemaPath) -> SchemaDraft | None:
        """Return a schema, None if there is none."""
        for own in self._schemas.values():
            if own is not None and own.name.folded == name.folded:
                return own
        base = self._base.schema(name)
        return None if base is None or base.ref in self._schemas else base

    def schema(self, name: SchemaPath) -> SchemaDraft:
        """Return a schema."""
        found = self.find_schema(name)
        if found is None:
            raise SchemaNotFoundError(str(name), self._base.snapshot_id)
        return found

    def create_schema(self, name: SchemaPath) -> None:
        """Add a schema."""
        if self.find_schema(name) is not None:
            raise AlreadyExistsError("schema", str(name))
        if name.parent is not None:
            self._base.writer.check(Feature.NESTED_SCHEMAS)
        parent = None if name.parent is None else self.schema(name.parent)
        full = name if parent is None else SchemaPath((*parent.name.parts, name.name))
        uuid = self._new_uuid()
        ref = kinds.NewSchemaRef(next(self._numbers))
        root = self._data_path + schema_directory(full, uuid)
        self._schemas[ref] = SchemaDraft(ref, full, root, uuid, parent.ref if parent else None)

    def drop_schema(self, name: SchemaPath, *, cascade: bool) -> None:
        """Take a schema away, with what it holds if ``cascade``: schemas in it, and all in those."""
        schema = self.schema(name)
        schemas, tables, views = self._schemas_in(schema), self._tables_in(schema), self._views_in(schema)
        macros = self._macros_in(schema)
        held = [f"schema {one.name}" for one in schemas] + [f"table {one.name}" for one in tables]
        held += [f"view {one.name}" for one in views] + [f"macro {one.name}" for one in macros]
        if held and not cascade:
            raise InvalidInputError(
                f"Schema {str(schema.name)!r} is not empty: it holds {', '.join(held)}. Drop them first, or "
                "give cascade=True."
            )
        for one in schemas:
            self.drop_schema(one.name, cascade=True)
        for table in tables:
            self.drop_table(table)
        for view in views:
            self.drop_view(view)
        for macro in macros:
            self.drop_macro(macro)
        self._schemas[schema.ref] = None
        if not isinstance(schema.ref, kinds.NewSchemaRef):
            self._dropped.append(kinds.DropSchema(schema.ref, schema.name))

    def _schemas_in(self, schema: SchemaDraft) -> list[SchemaDraft]:
        own = [one for one in self._schemas.values() if one is not None and one.parent == schema.ref]
        if isinstance(schema.ref, kinds.NewSchemaRef):
            return own
        return own + [one for one in self._base.schemas_in(schema) if one.ref not in self._schemas]

    def _tables_in(self, schema: SchemaDraft) -> list[TableDraft]:
        own = [one for one in self._tables.values() if one is not None and one.schema_ref == schema.ref]
        if isinstance(schema.ref, kinds.NewSchemaRef):
            return own
        refs = {one.ref for one in own}
        base = (self._base_table(schema, name.name) for name in self._base.tables_in(schema))
        return own + [one for one in base if one is not None and one.ref not in refs]

    def _views_in(self, schema: SchemaDraft) -> list[ViewDraft]:
        own = [one for one in self._views.values() if one is not None and one.schema_ref == schema.ref]
        if isinstance(schema.ref, kinds.NewSchemaRef):
            return own
        base = [one for one in self._base.views_in(schema) if one.id not in self._views]
        return own + [ViewDraft(one.id, schema.ref, one.name, one) for one in base]

    def _macros_in(self, schema: SchemaDraft) -> list[MacroDraft]:
        own = [one for one in self._macros if one.schema_ref == schema.ref]
        if isinstance(schema.ref, kinds.NewSchemaRef):
            return own
        base = [one for one in self._base.macros_in(schema) if one.id not in self._dropped_macros]
        return own + [MacroDraft(schema.ref, one.name, one.is_table_macro, one) for one in base]

    def _base_table(self, schema: SchemaDraft, name: str) -> TableDraft | None:
        """Return a table of the base that the transaction has not touched."""
        if isinstance(schema.ref, kinds.NewSchemaRef):
            return None
        found = self._base.table(schema, name)
        return None if found is None or found.ref in self._tables else found

    def find_table(self, name: QualifiedName) -> TableDraft | None:
        """Return a table, None if there is none."""
        schema = self.schema(name.schema)
        for own in self._tables.values():
            if own is not None and own.schema_ref == schema.ref and fold(own.name.name) == fold(name.name):
                return own
        return self._base_table(schema, name.name)

    def find_view(self, name: QualifiedName) -> ViewDraft | None:
        """Return a view, None if there is none."""
        schema = self.schema(name.schema)
        for own in self._views.values():
            if own is not None and own.schema_ref == schema.ref and fold(own.name.name) == fold(name.name):
                return own
        if isinstance(schema.ref, kinds.NewSchemaRef):
            return None
        base = self._base.view(schema, name.name)
        if base is None or base.id in self._views:
            return None
        return ViewDraft(base.id, schema.ref, base.name, base)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Take back what the block has done if it raises an exception: a caller may go on with others."""
        before = {
            name: copy(value) for name, value in vars(self).items() if isinstance(value, dict | list | set)
        }
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def put(self, table: TableDraft) -> None:
        """Keep an edited table.

        Raises:
            InvalidInputError: it has rows for the catalog, whose database cannot hold its columns.
        """
        if table.inlined and (problem := self._base.why_not_inlined(table.columns)) is not None:
            raise InvalidInputError(
                f"{table.name} cannot be altered after rows were added to it, which are inlined: {problem}. "
                "Alter it first."
            )
        self._tables[table.ref] = table

    def put_view(self, view: ViewDraft) -> None:
        """Keep an edited view."""
        self._views[view.ref] = view

    def check_free(self, name: QualifiedName) -> None:
        """Refuse a name that a table or view has: they share their names."""
        if (table := self.find_table(name)) is not None:
            raise AlreadyExistsError("table", str(table.name))
        if (view := self.find_view(name)) is not None:
            raise AlreadyExistsError("view", str(view.name))

    def create_table(self, name: QualifiedName, columns: TableSchema) -> TableDraft:
        """Add a table."""
        self.check_free(name)
        schema = self.schema(name.schema)
        uuid = self._new_uuid()
        directory = directory_name(name.name, uuid)
        table = TableDraft(
            ref=kinds.NewTableRef(next(self._numbers)),
            schema_ref=schema.ref,
            name=QualifiedName(schema.name, name.name),
            uuid=uuid,
            directory=directory,
            root=schema.root + directory,
            columns=columns,
            options=self._base.options_of_new_table(schema),
            next_column_id=1 + sum(1 for _ in columns.walk()),
        )
        for column in columns.columns:
            table.check_column_name(column.name)
        self.put(table)
        return table

    def options_around(self, table: TableDraft) -> Options:
        """Return the options that a table inherits."""
        schema = self.schema(table.name.schema)
        return self._base.options_of_new_table(schema)

    def drop_table(self, table: TableDraft) -> None:
        """Take a table away, with all that the transaction did to it."""
        self._tables[table.ref] = None
        if table.base is not None:
            self._dropped.append(kinds.DropTable(table.base.table_id, table.base.name))

    def create_view(self, name: QualifiedName, definition: ViewDefinition) -> None:
        """Add a view."""
        self.check_free(name)
        schema = self.schema(name.schema)
        ref = kinds.NewViewRef(next(self._numbers))
        name = QualifiedName(schema.name, name.name)
        self.put_view(ViewDraft(ref, schema.ref, name, definition=definition, uuid=self._new_uuid()))

    def drop_view(self, view: ViewDraft) -> None:
        """Take a view away."""
        self._views[view.ref] = None
        if view.base is not None:
            self._dropped.append(kinds.DropView(view.base.id, view.base.name))

    def find_macro(self, name: QualifiedName, *, is_table: bool) -> MacroDraft | None:
        """Return a macro, None if there is none; scalar macros and table macros have names of their own."""
        for one in self._macros_in(self.schema(name.schema)):
            if one.is_table_macro == is_table and fold(one.name.name) == fold(name.name):
                return one
        return None

    def create_macro(self, name: QualifiedName, definition: MacroDefinition) -> None:
        """Add a macro."""
        found = self.find_macro(name, is_table=definition.is_table)
        if found is not None:
            raise AlreadyExistsError("table macro" if definition.is_table else "macro", str(found.name))
        schema = self.schema(name.schema)
        name = QualifiedName(schema.name, name.name)
        self._macros.append(MacroDraft(schema.ref, name, definition.is_table, definition=definition))

    def drop_macro(self, macro: MacroDraft) -> None:
        """Take a macro away."""
        if macro.base is None:
            self._macros.remove(macro)
            return
        self._dropped_macros.add(macro.base.id)
        self._dropped.append(kinds.DropMacro(macro.base.id, macro.base.name, macro.base.is_table_macro))

    def rename_table(self, table: TableDraft, new_name: str) -> None:
        """Give a table another name in its schema."""
        name = QualifiedName(table.name.schema, new_name)
        if fold(new_name) != fold(table.name.name):
            self.check_free(name)
        self.put(table.renamed(name))

    def rename_view(self, view: ViewDraft, new_name: str) -> None:
        """Give a view another name in its schema."""
        name = QualifiedName(view.name.schema, new_name)
        if fold(new_name) != fold(view.name.name):
            self.check_free(name)
        self.put_view(replace(view, name=name))

    @property
    def tables_with_files(self) -> list[TableDraft]:
        """The tables that the transaction adds files to."""
        return [table for table in self._tables.values() if table is not None and table.files]
