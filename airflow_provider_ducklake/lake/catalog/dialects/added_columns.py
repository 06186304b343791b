"""``ALTER TABLE … ADD COLUMN``, which SQLAlchemy does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import DDLElement

if TYPE_CHECKING:
    from sqlalchemy import Column
    from sqlalchemy.sql.compiler import DDLCompiler


class AddColumn(DDLElement):
    """Adds a column to the table that it belongs to."""

    def __init__(self, column: Column[Any]) -> None:
        self.column = column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: DDLCompiler, **_: object) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"
