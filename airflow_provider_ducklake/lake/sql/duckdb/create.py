"""CREATE SCHEMA, TABLE and VIEW, with the keys of PARTITIONED BY and SORTED BY that ALTER has, too.

The query of a view is cut from the statement as written, after a look at whether it is one. The reference
stores its own rendering of it, which only DuckDB can make. Stored as written, it reads the same (observed on
1.5.5). It looks an unqualified table name up in the view's own schema first, then where the reading session
looks, and ``{DUCKLAKE_CATALOG}`` stands for the name under which a lake is attached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...errors import ColumnNotFoundError, UnsupportedFeatureError
from ...format.names.identifiers import QualifiedName, SchemaPath, fold, split_parts, written
from ...format.partitioning import TransformKind
from ...format.sorting import why_not_sorted_by
from ...format.sql.parse import Parser
from ...format.sql.printing import printed
from ...format.sql.tokens import ExpressionError, TokenKind
from ...format.sql.tree import Ordered
from .cursor import COLUMN_OPTIONS, CONSTRAINTS, EXISTING, Call, Cursor, call, refuse_object, written_path
from .macros import read_macro
from .types import read_column_type, read_default, read_literal_default

if TYPE_CHECKING:
    from ...format.defaults import SqlDefault
    from ...format.tags import ViewDefinition
    from ...format.types.ducklake_types import DuckLakeType


def read_create(cursor: Cursor) -> Call:
    """Read what follows CREATE."""
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("TABLE"):
        return _read_table(cursor, or_replace=or_replace)
    if cursor.accept("VIEW"):
        return _read_view(cursor, or_replace=or_replace)
    if cursor.accept("MACRO") or cursor.accept("FUNCTION"):
        if_not_exists = _if_not_exists(cursor, or_replace=or_replace)
        macro = cursor.qualified_name("macro")
        definition = read_macro(cursor)
        return call("create_macro", macro, definition, if_not_exists=if_not_exists, or_replace=or_replace)
    if cursor.accept("SCHEMA"):
        if or_replace:
            raise cursor.error(
                "a schema cannot be replaced. Drop it with CASCADE, then create it.", at=cursor.peek(-1)
            )
        if_not_exists = _if_not_exists(cursor)
        return call("create_schema", schema_name(cursor), if_not_exists=if_not_exists)
    raise refuse_object(cursor, "CREATE")


def schema_name(cursor: Cursor) -> SchemaPath:
    """Read the name of a schema."""
    parts = cursor.path("schema")
    if len(parts) > 1 and not cursor.has_nested_schemas:
        raise cursor.error(
            f"give the name of a schema alone. {cursor.without_nested_schemas}", at=cursor.peek(-2)
        )
    return SchemaPath(parts)


def _if_not_exists(cursor: Cursor, *, or_replace: bool = False) -> bool:
    start = cursor.peek()
    found = cursor.accept("IF", "NOT", "EXISTS")
    if found and or_replace:
        raise cursor.error("OR REPLACE and IF NOT EXISTS cannot be combined. Keep one.", at=start)
    return found


def _read_table(cursor: Cursor, *, or_replace: bool) -> Call:
    if_not_exists = _if_not_exists(cursor, or_replace=or_replace)
    table = cursor.qualified_name("table")
    if cursor.word == "AS":
        raise cursor.unsupported(
            "CREATE TABLE … AS writes rows. Create the table with its columns here and fill it with the "
            "insert operator, which can also create it (create_table=True)."
        )
    columns = _read_columns(cursor)
    partition_by, sort_by = _read_layout(cursor)
    return call(
        "create_table",
        table,
        {one.name: one.type for one in columns},
        partition_by,
        [one.name for one in columns if not one.nullable],
        sort_by=sort_by,
        defaults={one.name: one.default for one in columns if one.default is not None},
        or_replace=or_replace,
        if_not_exists=if_not_exists,
    )


def _read_layout(cursor: Cursor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read the keys of PARTITIONED BY and SORTED BY."""
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    while cursor.peek().kind is not TokenKind.END:
        if not partition_by and cursor.accept("PARTITIONED", "BY"):
            partition_by = cursor.in_list(lambda: read_partition_key(cursor), may_end_in_comma=True)
        elif not sort_by and cursor.accept("SORTED", "BY"):
            sort_by = cursor.in_list(lambda: _read_plain_sort_key(cursor), may_end_in_comma=True)
        else:
            raise cursor.error(
                "this does not belong here. Only PARTITIONED BY (…) and SORTED BY (…) may follow the columns."
            )
    return partition_by, sort_by


class _ParsedColumn(NamedTuple):
    """A column of ``CREATE TABLE``; a ``default`` of None is none."""

    name: str
    type: DuckLakeType
    nullable: bool = True
    default: SqlDefault | None = None


def _read_plain_sort_key(cursor: Cursor) -> str:
    key = _read_key(cursor, lambda parser: Ordered(parser.expression()))
    if cursor.word in ("ASC", "DESC", "NULLS"):
        raise cursor.error(
            "CREATE TABLE takes sort keys without a direction, as in DuckDB. Use ALTER TABLE … SET SORTED BY."
        )
    return key


def _read_columns(cursor: Cursor) -> tuple[_ParsedColumn, ...]:
    seen: set[str] = set()

    def read() -> _ParsedColumn:
        start = cursor.peek()
        column = _read_column(cursor)
        if fold(column.name) in seen:
            raise cursor.error("two columns have this name (names are case-insensitive).", at=start)
        seen.add(fold(column.name))
        return column

    return cursor.in_list(read, may_end_in_comma=True)


def _read_column(cursor: Cursor) -> _ParsedColumn:
    if cursor.word in CONSTRAINTS:
        raise cursor.error(CONSTRAINTS[cursor.word])
    name = cursor.name("column")
    if cursor.word in ("AS", "GENERATED"):
        raise cursor.error(CONSTRAINTS[cursor.word])
    column = _ParsedColumn(name, read_column_type(cursor, written(name)))
    seen: set[str] = set()
    while not cursor.sees(",") and not cursor.sees(")"):
        start = cursor.peek()
        kind, column = _read_option(cursor, column)
        if kind in seen:
            raise cursor.error(f"{kind} is given twice. Keep one.", at=start)
        seen.add(kind)
    return column


def _read_option(cursor: Cursor, column: _ParsedColumn) -> tuple[str, _ParsedColumn]:
    if cursor.accept("NOT", "NULL"):
        return "NULL or NOT NULL", column._replace(nullable=False)
    if cursor.accept("NULL"):
        return "NULL or NOT NULL", column
    if cursor.accept("DEFAULT"):
        return "DEFAULT", column._replace(default=read_default(cursor))
    raise cursor.error(
        COLUMN_OPTIONS.get(cursor.word, "expected NOT NULL, DEFAULT, a comma or a closing parenthesis.")
    )


def _read_view(cursor: Cursor, *, or_replace: bool) -> Call:
    if_not_exists = _if_not_exists(cursor, or_replace=or_replace)
    view = cursor.qualified_name("view")
    aliases = cursor.in_list(lambda: cursor.name("column")) if cursor.sees("(") else ()
    cursor.expect("AS")
    flags = {"column_aliases": aliases, "if_not_exists": if_not_exists, "or_replace": or_replace}
    return call("create_view", view, read_query(cursor), **flags)


_FIRST_WORDS = frozenset({"SELECT", "FROM", "WITH", "VALUES", "TABLE"})


def read_query(cursor: Cursor) -> str:
    """Read a query up to the statement's end and return its text."""
    start = cursor.peek()
    if not cursor.sees("(") and cursor.word not in _FIRST_WORDS:
        raise cursor.error("expected a query: SELECT, FROM, WITH, VALUES or TABLE.")
    while cursor.peek().kind is not TokenKind.END:
        if cursor.peek().symbol[:1] in ("?", "$"):
            raise cursor.error("a view has no parameters. Write the value instead.")
        cursor.take()
    problem = _problem(cursor.query_from(start), cursor)
    if problem:
        raise cursor.error(problem, at=start)
    return cursor.text_from(start)


def _problem(text: str, cursor: Cursor) -> str | None:
    """Explain what is wrong with a view's query; None if it looks right."""
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

    from .. import trees

    try:
        found = trees.parse(text, "duckdb")
    except ParseError as error:
        return f"cannot read this query at {error.errors[0].get('highlight')!r}."
    except SqlglotError as error:
        return f"cannot read this query: {error}"
    tree = found[0]
    if len(found) != 1 or not isinstance(tree, exp.Query | exp.Values):
        return "this is not a single query."
    if tree.find(exp.Into, exp.Command, exp.Insert, exp.Update, exp.Delete, exp.Merge):
        return "a view can only read."
    for table in tree.find_all(exp.Table):
        if table.catalog and not cursor.has_nested_schemas:
            return (
                f"{table.catalog}.{table.db}.{table.name} names a catalog, but a lake gets its name when it "
                "is attached. Name tables as schema.table."
            )
    return None


def read_partition_key(cursor: Cursor) -> str:
    """Read a partition key: a column, or a transform of one."""
    start = cursor.peek()
    word = fold(cursor.word)
    if word in set(TransformKind) and cursor.peek(1).symbol == "(":
        return _read_transform(cursor, word)
    column = written(_read_own_column(cursor, "a partition key"))
    if cursor.sees("("):
        raise cursor.error(
            f"this is not a partition transform. Use one of {', '.join(TransformKind)}.", at=start
        )
    return column


def _read_transform(cursor: Cursor, word: str) -> str:
    cursor.take()
    cursor.expect("(")
    count = ""
    if word == TransformKind.BUCKET:
        count = cursor.accept_kind(TokenKind.NUMBER) or ""
        if not count.isdigit():
            raise cursor.error("write the number of buckets and the column: bucket(16, id).")
        cursor.expect(",")
        count += ", "
    column = written(_read_own_column(cursor, "a partition key"))
    cursor.expect(")")
    return f"{word}({count}{column})"


def _read_own_column(cursor: Cursor, use: str) -> str:
    name = cursor.name("column")
    if cursor.sees("."):
        raise cursor.error(
            f"{use} must be a top-level column, not a nested field, and is written without its table."
        )
    return name


def read_sort_key(cursor: Cursor) -> str:
    """Read a sort key of ALTER TABLE: an expression, its direction, and where its nulls go."""
    return _read_key(cursor, Parser.ordered)


def _read_key(cursor: Cursor, read: Callable[[Parser], Ordered]) -> str:
    start = cursor.peek()
    parser = Parser(cursor.statement, start.start)
    try:
        key = read(parser)
    except ExpressionError as error:
        raise cursor.error_in_text(error.position, error.problem) from error
    if (problem := why_not_sorted_by(key.value)) is not None:
        raise cursor.error(problem, at=start)
    cursor.skip_to(parser.passed)
    value = printed(key.value) or cursor.statement[start.start : parser.value_end]
    return " ".join(filter(None, (value, key.direction, f"NULLS {key.nulls}" if key.nulls else "")))


# Options between parentheses: ``(name = value, …)``. *Source:* docs/sources.md, DDL and options of 2.0.


OptionValue: TypeAlias = str | bool | tuple[str, ...] | None  # numbers as written; None is NULL


def read_option_name(cursor: Cursor) -> str:
    """Read the name of an option, bare, quoted or a string, and return it folded."""
    text = cursor.string()
    return fold(cursor.name("table option") if text is None else text)


def read_option(cursor: Cursor) -> tuple[str, OptionValue]:
    """Read an option and its value; one without a value is true."""
    name = read_option_name(cursor)
    if not cursor.accept("="):
        return name, True
    return name, _read_value(cursor)


def refuse_repeated(cursor: Cursor, names: Sequence[str]) -> None:
    """Refuse an option that is named twice."""
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise cursor.error(f"option {twice} is given twice. Keep one.", at=cursor.peek(-1))


def _read_value(cursor: Cursor) -> OptionValue:
    if cursor.accept("["):
        return _read_list(cursor)
    if cursor.accept("NULL"):
        return None
    if cursor.word in ("TRUE", "FALSE"):
        return cursor.take().word == "true"
    sign = "-" if cursor.accept("-") else ""
    number = cursor.accept_kind(TokenKind.NUMBER)
    if number is not None:
        return sign + number.replace("_", "")
    if sign:
        raise cursor.error("expected a number.")
    text = cursor.string()
    return cursor.name("value") if text is None else text


def _read_list(cursor: Cursor) -> tuple[str, ...]:
    found: list[str] = []
    while not cursor.accept("]"):
        text = cursor.string()
        if text is None:
            raise cursor.error("expected a string in single quotes: a list holds names, ['a', 'b'].")
        found.append(text)
        if not cursor.sees("]"):
            cursor.expect(",")
    return tuple(found)


# ALTER TABLE and ALTER VIEW.


def read_alter(cursor: Cursor) -> Call | tuple[Call, ...]:
    """Read what follows ALTER."""
    if cursor.accept("TABLE"):
        _refuse_if_exists(cursor)
        return _read_table_action(cursor, cursor.qualified_name("table"))
    if cursor.accept("VIEW"):
        _refuse_if_exists(cursor)
        view = cursor.qualified_name("view")
        cursor.expect("RENAME", "TO")
        return call("rename_view", view, _read_new_name(cursor, "view"))
    if cursor.word == "SCHEMA":
        raise cursor.error("DuckLake cannot alter or rename a schema. Create another one and move the data.")
    raise refuse_object(cursor, "ALTER")


def _refuse_if_exists(cursor: Cursor) -> None:
    start = cursor.peek()
    if cursor.accept("IF", "EXISTS"):
        raise cursor.unsupported(EXISTING, at=start)


def _read_table_action(cursor: Cursor, table: QualifiedName) -> Call | tuple[Call, ...]:
    if cursor.accept("RENAME"):
        return _read_rename(cursor, table)
    if cursor.accept("ADD"):
        return _read_add(cursor, table)
    if cursor.accept("DROP"):
        return _read_drop(cursor, table)
    if cursor.accept("ALTER"):
        return _read_alter_column(cursor, table)
    if cursor.accept("SET"):
        return _read_set(cursor, table)
    if cursor.accept("RESET"):
        return _read_reset(cursor, table)
    raise cursor.error("expected RENAME, ADD, DROP, ALTER, SET or RESET.")


def _read_new_name(cursor: Cursor, kind: str) -> str:
    name = cursor.name(kind)
    if cursor.sees("."):
        raise cursor.error(f"give the new name of a {kind} alone: it stays in its schema.")
    return name


def _read_path(cursor: Cursor) -> str:
    return written_path(cursor.path("column"))


def _read_rename(cursor: Cursor, table: QualifiedName) -> Call:
    if cursor.accept("TO"):
        return call("rename_table", table, _read_new_name(cursor, "table"))
    cursor.accept("COLUMN")
    path = _read_path(cursor)
    cursor.expect("TO")
    return call("rename_column", table, path, _read_new_name(cursor, "column"))


def _read_add(cursor: Cursor, table: QualifiedName) -> Call:
    if cursor.word in CONSTRAINTS:
        raise cursor.error(CONSTRAINTS[cursor.word])
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    path = _read_path(cursor)
    type_ = read_column_type(cursor, path)
    default = read_literal_default(cursor) if cursor.accept("DEFAULT") else None
    if cursor.word == "NOT":
        raise cursor.error(
            "existing rows have no value for a new column, so it cannot be NOT NULL. Fill it first, then "
            "ALTER COLUMN … SET NOT NULL."
        )
    if cursor.word in COLUMN_OPTIONS:
        raise cursor.error(COLUMN_OPTIONS[cursor.word])
    cursor.accept("NULL")
    return call("add_column", table, path, type_, default, if_not_exists=if_not_exists)


def _read_drop(cursor: Cursor, table: QualifiedName) -> Call:
    if cursor.word in CONSTRAINTS:
        raise cursor.error(CONSTRAINTS[cursor.word])
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    path = _read_path(cursor)
    read_restrict(cursor, "column")
    return call("drop_column", table, path, if_exists=if_exists)


def read_restrict(cursor: Cursor, kind: str) -> None:
    """Pass RESTRICT, which says what is done anyway."""
    if cursor.word == "CASCADE":
        raise cursor.error(f"nothing depends on a {kind}. Leave CASCADE out.")
    cursor.accept("RESTRICT")


def _read_alter_column(cursor: Cursor, table: QualifiedName) -> Call:
    cursor.accept("COLUMN")
    start = cursor.peek()
    path = _read_path(cursor)
    if cursor.accept("SET", "DATA", "TYPE") or cursor.accept("SET", "TYPE") or cursor.accept("TYPE"):
        return _read_set_type(cursor, table, path)
    action = _read_column_action(cursor, table, path)
    if len(split_parts(path)) > 1:
        raise cursor.error("a nested field cannot have a default or NOT NULL.", at=start)
    return action


def _read_column_action(cursor: Cursor, table: QualifiedName, path: str) -> Call:
    if cursor.accept("SET", "DEFAULT"):
        default = read_default(cursor)
        return (
            call("drop_default", table, path)
            if default is None
            else call("set_default", table, path, default)
        )
    if cursor.accept("DROP", "DEFAULT"):
        return call("drop_default", table, path)
    if cursor.accept("SET", "NOT", "NULL"):
        return call("set_not_null", table, path)
    if cursor.accept("DROP", "NOT", "NULL"):
        return call("drop_not_null", table, path)
    raise cursor.error("expected TYPE, SET DEFAULT, DROP DEFAULT, SET NOT NULL or DROP NOT NULL.")


def _read_set_type(cursor: Cursor, table: QualifiedName, path: str) -> Call:
    type_ = read_column_type(cursor, path)
    if cursor.word == "USING":
        raise cursor.error(
            "DuckLake can only widen a type and computes no values. Leave USING out; for computed values, "
            "add a column."
        )
    return call("set_column_type", table, path, type_)


def _read_set(cursor: Cursor, table: QualifiedName) -> Call | tuple[Call, ...]:
    if cursor.accept("PARTITIONED", "BY"):
        keys = cursor.in_list(lambda: read_partition_key(cursor), may_end_in_comma=True)
        return call("set_partitioned_by", table, keys)
    if cursor.accept("SORTED", "BY"):
        keys = cursor.in_list(lambda: read_sort_key(cursor), may_end_in_comma=True)
        return call("set_sorted_by", table, keys)
    if cursor.sees("("):
        options = cursor.in_list(lambda: read_option(cursor), may_end_in_comma=True)
        refuse_repeated(cursor, [name for name, _ in options])
        return tuple(call("set_option", table, name, value) for name, value in options)
    if cursor.word == "SCHEMA":
        raise cursor.error("a table cannot move to another schema. Create it there and move the data.")
    raise cursor.error("expected PARTITIONED BY, SORTED BY or options in parentheses.")


def _read_reset(cursor: Cursor, table: QualifiedName) -> Call | tuple[Call, ...]:
    if cursor.accept("PARTITIONED", "BY"):
        return call("set_partitioned_by", table, ())
    if cursor.accept("SORTED", "BY"):
        return call("set_sorted_by", table, ())
    if cursor.sees("("):
        names = cursor.in_list(lambda: _read_reset_option(cursor), may_end_in_comma=True)
        refuse_repeated(cursor, names)
        return tuple(call("reset_option", table, name) for name in names)
    raise cursor.error("expected PARTITIONED BY, SORTED BY or options in parentheses.")


def _read_reset_option(cursor: Cursor) -> str:
    name = read_option_name(cursor)
    if cursor.sees("="):
        raise cursor.error("RESET takes names of options only. To give a value, use SET.")
    return name


# Under which name the catalog keeps the comment of a view's column: as the query has it, before aliases.
#
# *Source:* docs/sources.md, comments of view columns.


_LAKE = "{DUCKLAKE_CATALOG}"  # what the reference writes for the name under which a lake is attached


def stored_name(view: str, definition: ViewDefinition, column: str) -> str:
    """Return the query's name for a column of the view.

    Where the query does not say its columns, as with ``*``, the name given is taken for the query's.
    """
    names, aliases = _query_names(definition), definition.column_aliases
    shown = [*aliases, *(names or ())[len(aliases) :]]
    place = next((place for place, one in enumerate(shown) if one and fold(one) == fold(column)), None)
    if place is None:
        if names is None and not aliases:
            return column
        raise ColumnNotFoundError(column, view, [one or "?" for one in shown])
    if names is None or place >= len(names) or not names[place]:
        raise UnsupportedFeatureError(
            f"{view}: the query does not say the name of column {column!r}, under which DuckLake keeps its "
            "comment. Name the column in the query, with AS."
        )
    return names[place]


def _query_names(definition: ViewDefinition) -> list[str] | None:
    """Return the names that a query gives to its columns, empty for those without; None: it does not say."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from .. import trees

    try:
        tree = trees.parse_one(definition.sql.replace(_LAKE, "lake"), definition.dialect)
    except (SqlglotError, ValueError):
        return None
    if not isinstance(tree, exp.Query) or tree.is_star:
        return None
    return list(tree.named_selects)
