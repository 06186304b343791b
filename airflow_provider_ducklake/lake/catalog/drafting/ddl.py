"""Apply DDL statements: each is one call on a transaction."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import DuckLakeError
from ...format.defaults import SqlDefault, default_of
from ...format.log_lines import logger
from ...format.schema import TableSchema, new_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.types.ducklake_types import DuckLakeType
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
            for one in parsed.calls:
                getattr(tx, one.method)(*one.arguments, **one.flags)
        except DuckLakeError as error:
            error.add_note(f"Statement {parsed.number} ({_shown(parsed.text)})")
            raise


def _shown(text: str) -> str:
    return textwrap.shorten(text, _SHOWN_CHARACTERS, placeholder=" …")


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
    from ...storage.arrow.arrow_types import fields_of_arrow

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
