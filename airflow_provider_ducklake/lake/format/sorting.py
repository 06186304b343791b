"""Sort keys of a table, as the catalog keeps them and as users write them.

*Source:* ``ducklake_sort_expression``; docs/sources.md, DDL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import InvalidInputError, UnsupportedFeatureError
from .limits import cached
from .log_lines import logger
from .names.identifiers import fold, is_storable, split_parts, written
from .sql.parse import Parser, parse_expression
from .sql.printing import columns_of, printed, with_names
from .sql.tokens import ExpressionError
from .sql.tree import Expression, FunctionCall, Name, walk
from .types.ducklake_types import ScalarKind

if TYPE_CHECKING:
    from .schema import Column, TableSchema
    from .snapshots import SortId

log = logger(__name__)

_DUCKDB = "duckdb"
# Of DuckDB's scalar functions those that make sense in a key. With any other name its inserts could fail.
_FUNCTIONS = """
abs ceil ceiling floor round sign sqrt trunc mod even greatest least coalesce nullif
lower upper lcase ucase length len strlen substring substr left right trim ltrim rtrim replace reverse concat
concat_ws contains starts_with ends_with prefix suffix instr strpos split_part regexp_extract regexp_matches
regexp_replace lpad rpad ascii unicode chr md5 sha256 hash
year month day hour minute second quarter week dayofweek dayofyear date_trunc date_part datepart epoch
epoch_ms epoch_us strftime date_diff datediff time_bucket last_day
list_extract list_value array_length struct_extract json_extract json_extract_string
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())


@dataclass(frozen=True, slots=True)
class SortField:
    """One key: an expression in a dialect, ``ASC``/``DESC``, ``NULLS_FIRST``/``NULLS_LAST``."""

    expression: str
    dialect: str = _DUCKDB
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"

    @property
    def column_name(self) -> str | None:
        """The column, where the expression is nothing but one."""
        found = _COLUMN.fullmatch(self.expression)
        return split_parts(self.expression)[0] if found else None

    @property
    def _tree(self) -> Expression | None:
        return _parsed(self.expression) if self.dialect == _DUCKDB else None

    def mentions(self, column: Column) -> bool:
        """Return True if the expression needs the column; in doubt it does."""
        if self.column_name is not None:
            return fold(self.column_name) == fold(column.name)
        if self._tree is None:
            return fold(column.name) in fold(self.expression)
        return fold(column.name) in {fold(name[0]) for name in columns_of(self._tree)}

    def renamed(self, column: Column, new_name: str) -> SortField:
        """Return the key after the column got another name."""
        return self.with_names({column: new_name} if self.mentions(column) else {})

    def with_names(self, names: Mapping[Column, str]) -> SortField:
        """Return the key with other names of all the columns that it mentions, given by the columns."""
        if not names:
            return self
        if self.column_name is not None:
            return replace(self, expression=written(next(iter(names.values()))))
        if self._tree is not None:
            folded = {fold(column.name): name for column, name in names.items()}
            return replace(self, expression=with_names(self.expression, folded))
        listed = ", ".join(repr(column.name) for column in names)
        raise UnsupportedFeatureError(
            f"The table is sorted by the expression {self.expression}, which this release cannot rewrite. "
            f"Reset the sort keys before renaming {listed}, or rename it with DuckDB."
        )


@cached
def _parsed(text: str) -> Expression | None:
    try:
        return parse_expression(text)
    except ExpressionError:
        return None


@dataclass(frozen=True, slots=True)
class SortSpec:
    """The sort keys of a table at one snapshot."""

    fields: tuple[SortField, ...]
    id: SortId | None = None


def keys_to_write_by(keys: Sequence[SortField], schema: TableSchema, table: str) -> tuple[SortField, ...]:
    """Return the keys by which we sort rows: those before one that is no column, or one without an order."""
    columns = {fold(column.name): column for column in schema.columns}
    for place, key in enumerate(keys):
        column = columns.get(fold(key.column_name or ""))
        if column is None or column.children or column.type.facts.kind in _WITHOUT_ORDER:
            log.warning(
                "%s: files are not sorted by %s, by which only DuckDB sorts, nor by keys after it",
                *(table, key.expression),
            )
            return tuple(keys[:place])
    return tuple(keys)


_WITHOUT_ORDER = (ScalarKind.VARIANT, ScalarKind.INTERVAL)
_COLUMN = re.compile(r'"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*')


def parse_sort_by(expressions: Sequence[str], schema: TableSchema, table: str) -> tuple[SortField, ...]:
    """Return the keys for users' texts: ``"day"``, ``"id DESC"``, ``"lower(name) ASC NULLS FIRST"``.

    An expression is kept in DuckDB's spelling if that is known, else as it is written.
    """
    return tuple(_parse_key(text, schema, table) for text in expressions)


def _parse_key(text: str, schema: TableSchema, table: str) -> SortField:
    parser = Parser(text)
    try:
        ordered = parser.ordered()
        parser.end()
    except ExpressionError as error:
        raise InvalidInputError(
            f"Cannot read the sort key {text!r} of {table}, {error.problem} Write a column or an expression "
            'of columns, then ASC or DESC, and NULLS FIRST or NULLS LAST, as in "day DESC NULLS FIRST".'
        ) from None
    key = SortField(
        _stored(ordered.value, text[: parser.value_end].strip(), schema, table),
        direction=ordered.direction or "ASC",
        null_order=f"NULLS_{ordered.nulls or 'LAST'}",
    )
    if not is_storable(key.expression):
        raise InvalidInputError(f"The sort key {text!r} of {table} has a NUL character.")
    return key


def _stored(tree: Expression, text: str, schema: TableSchema, table: str) -> str:
    if isinstance(tree, Name) and len(tree.parts) == 1:
        return written(schema.find(tree.parts[0], table).name)
    problem = why_not_sorted_by(tree)
    if problem:
        raise InvalidInputError(f"The sort key {text!r} of {table}: {problem}")
    for (name,) in columns_of(tree):
        schema.find(name, table)
    return printed(tree) or text


def why_not_sorted_by(tree: Expression) -> str | None:
    """Explain why DuckDB could not sort by an expression; None: it can, if the columns are there."""
    for name in columns_of(tree):
        if len(name) > 1:
            return f"write {'.'.join(name)} without its table; of a struct, write {name[0]}['{name[-1]}']."
    for one in walk(tree):
        if isinstance(one, FunctionCall) and not _is_known(one.name):
            return (
                f"{'.'.join(one.name)} is not a function that sort keys can have here. With one that DuckDB "
                "does not find, its inserts fail. Set the key with DuckDB."
            )
    return None


def _is_known(name: tuple[str, ...]) -> bool:
    *schema, function = (part.lower() for part in name)
    return schema in ([], ["main"]) and function in FUNCTIONS
