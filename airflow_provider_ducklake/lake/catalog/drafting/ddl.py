"""Apply DDL statements: each is one call on a transaction."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from ...errors import DuckLakeError
from ...spec.defaults import SqlDefault, default_of
from ...spec.log_lines import logger
from ...spec.schema import TableSchema, new_columns
from ...sql.duckdb.statements import (
    AddColumn,
    CommentOnColumn,
    CommentOnTable,
    CommentOnView,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    DropColumn,
    DropDefault,
    DropMacro,
    DropNotNull,
    DropSchema,
    DropTable,
    DropView,
    RenameColumn,
    RenameTable,
    RenameView,
    ResetOptions,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOptions,
    SetPartitionedBy,
    SetSortedBy,
    Statement,
    Truncate,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ...spec.types.ducklake_types import DuckLakeType
    from ...sql.duckdb.ddl import ParsedStatement
    from .transaction import LakeTransaction


log = logger(__name__)

_SHOWN_CHARACTERS = 200


def apply_ddl(tx: LakeTransaction, statements: Sequence[ParsedStatement]) -> None:
    """Make the changes of ``statements`` part of a transaction, in their order.

    Raises:
        DuckLakeError: as the method of the transaction raises it, with a note that names the statement.
    """
    for parsed in statements:
        log.info("Statement %d: %s", parsed.number, _shown(parsed.text))
        try:
            _apply(tx, parsed.statement)
        except DuckLakeError as error:
            error.add_note(f"Statement {parsed.number} ({_shown(parsed.text)})")
            raise


def _shown(text: str) -> str:
    return textwrap.shorten(text, _SHOWN_CHARACTERS, placeholder=" …")


def _apply(tx: LakeTransaction, statement: Statement) -> None:  # noqa: C901, PLR0912, PLR0915 - a case for each kind
    match statement:
        case CreateSchema(name, if_not_exists):
            tx.create_schema(name, if_not_exists=if_not_exists)
        case DropSchema(name, if_exists, cascade):
            tx.drop_schema(name, if_exists=if_exists, cascade=cascade)
        case CreateTable():
            _create_table(tx, statement)
        case DropTable(table, if_exists):
            tx.drop_table(table, if_exists=if_exists)
        case RenameTable(table, new_name):
            tx.rename_table(table, new_name)
        case Truncate(table):
            tx.truncate(table)
        case AddColumn(table, path, type_, default, if_not_exists):
            tx.add_column(table, path, type_, default, if_not_exists=if_not_exists)
        case DropColumn(table, path, if_exists):
            tx.drop_column(table, path, if_exists=if_exists)
        case RenameColumn(table, path, new_name):
            tx.rename_column(table, path, new_name)
        case SetColumnType(table, path, type_):
            tx.set_column_type(table, path, type_)
        case SetDefault(table, path, default) if default is not None:
            tx.set_default(table, path, default)
        case SetDefault(table, path) | DropDefault(table, path):
            tx.drop_default(table, path)
        case SetNotNull(table, path):
            tx.set_not_null(table, path)
        case DropNotNull(table, path):
            tx.drop_not_null(table, path)
        case SetPartitionedBy(table, expressions):
            tx.set_partitioned_by(table, expressions)
        case SetSortedBy(table, expressions):
            tx.set_sorted_by(table, expressions)
        case SetOptions(table, options):
            for key, value in options:
                tx.set_option(table, key, value)
        case ResetOptions(table, names):
            for key in names:
                tx.reset_option(table, key)
        case CommentOnTable(table, text):
            tx.comment_on_table(table, text)
        case CommentOnColumn(table, path, text):
            tx.comment_on_column(table, path, text)
        case CommentOnView(view, text):
            tx.comment_on_view(view, text)
        case CreateView(view, sql, aliases, if_not_exists, or_replace):
            tx.create_view(
                view, sql, column_aliases=aliases, if_not_exists=if_not_exists, or_replace=or_replace
            )
        case DropView(view, if_exists):
            tx.drop_view(view, if_exists=if_exists)
        case RenameView(view, new_name):
            tx.rename_view(view, new_name)
        case CreateMacro(macro, definition, if_not_exists, or_replace):
            tx.create_macro(macro, definition, if_not_exists=if_not_exists, or_replace=or_replace)
        case DropMacro(macro, table, if_exists):
            tx.drop_macro(macro, table=table, if_exists=if_exists)
        case _:
            assert_never(statement)


def _create_table(tx: LakeTransaction, statement: CreateTable) -> None:
    columns = statement.columns
    tx.create_table(
        statement.table,
        {column.name: column.type for column in columns},
        statement.partition_by,
        [column.name for column in columns if not column.nullable],
        sort_by=statement.sort_by,
        defaults={column.name: column.default for column in columns if column.default is not None},
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
    )


# The columns of a new table as users give them.


def table_definition(
    columns: Mapping[str, str | DuckLakeType] | pa.Schema,
    not_null: Sequence[str],
    defaults: Mapping[str, SqlDefault],
) -> TableSchema:
    """Return the columns that a mapping of names to types, or an Arrow schema, stands for.

    Raises:
        InvalidInputError: something in them cannot be (subclasses say what).
    """
    return _with_defaults(_columns(columns, not_null), defaults)


def _columns(columns: Mapping[str, str | DuckLakeType] | pa.Schema, not_null: Sequence[str]) -> TableSchema:
    if isinstance(columns, Mapping):
        return new_columns(columns, not_null)
    from ...storage.parquet.arrow_types import fields_of_arrow  # noqa: PLC0415 - heavy

    required: list[Any] = [field.name for field in columns if not field.nullable]
    return new_columns(fields_of_arrow(columns), [*required, *not_null])


def _with_defaults(schema: TableSchema, defaults: Mapping[str, SqlDefault]) -> TableSchema:
    by_id = {schema.find(name).id: value for name, value in defaults.items()}
    columns = []
    for column in schema.columns:
        if column.id in by_id:
            stored, initial = default_of(by_id[column.id], column.type)
            columns.append(replace(column, default=stored, initial_default=initial))
        else:
            columns.append(column)
    return TableSchema(tuple(columns))
