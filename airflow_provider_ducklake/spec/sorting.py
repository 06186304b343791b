"""Sort keys of a table, as the catalog keeps them and as users write them.

*Source:* ``ducklake_sort_expression``; docs/sources.md, DDL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.spec.names.identifiers import fold, split_parts
from airflow_provider_ducklake.spec.names.quoting import written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.spec.ids import SortId
    from airflow_provider_ducklake.spec.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class SortField:
    """One key: an expression in a dialect, ``ASC``/``DESC``, ``NULLS_FIRST``/``NULLS_LAST``."""

    expression: str
    dialect: str = "duckdb"
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"

    @property
    def column_name(self) -> str | None:
        """The column, where the expression is nothing but one."""
        found = _COLUMN.fullmatch(self.expression)
        return split_parts(self.expression)[0] if found else None

    def mentions(self, column: Column) -> bool:
        """Whether the expression needs the column; in doubt it does."""
        if self.column_name is not None:
            return fold(self.column_name) == fold(column.name)
        return fold(column.name) in fold(self.expression)

    def renamed(self, column: Column, new_name: str) -> SortField:
        """Return the key after the column got another name.

        Raises:
            UnsupportedFeatureError: the key is an expression over it, which only DuckDB can rewrite.
        """
        if not self.mentions(column):
            return self
        if self.column_name is None:
            raise UnsupportedFeatureError(
                f"The table is sorted by the expression {self.expression}, which this release cannot "
                f"rewrite. Reset the sort keys before renaming {column.name!r}."
            )
        return replace(self, expression=written(new_name))


@dataclass(frozen=True, slots=True)
class SortSpec:
    """The sort keys of a table at one snapshot."""

    fields: tuple[SortField, ...]
    id: SortId | None = None


_COLUMN = re.compile(r'"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*')
_KEY = re.compile(
    rf"\s*(?P<column>{_COLUMN.pattern})(?:\s+(?P<direction>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*",
    re.IGNORECASE,
)


def parse_sort_by(expressions: Sequence[str], schema: TableSchema, table: str) -> tuple[SortField, ...]:
    """Return the keys for users' texts: ``"day"``, ``"id DESC"``, ``'"odd name" ASC NULLS FIRST'``.

    Raises:
        InvalidInputError: cannot be read, or is no column of its own.
        ColumnNotFoundError: no such column.
    """
    return tuple(_parse_key(text, schema, table) for text in expressions)


def _parse_key(text: str, schema: TableSchema, table: str) -> SortField:
    match = _KEY.fullmatch(text)
    if match is None:
        raise InvalidInputError(
            f"Cannot read the sort key {text!r} of {table}; write a column, then ASC or DESC, and "
            'NULLS FIRST or NULLS LAST, as in "day DESC NULLS FIRST".'
        )
    column = schema.find(split_parts(match["column"])[0], table)
    return SortField(
        written(column.name),
        direction=(match["direction"] or "ASC").upper(),
        null_order=f"NULLS_{(match['nulls'] or 'LAST').upper()}",
    )
