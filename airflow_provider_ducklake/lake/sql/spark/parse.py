"""Spark SQL that reads and writes lake tables: which tables, how, and the query of each statement.

sqlglot says what a text means. The text itself is cut, and names of lake tables in it are replaced; nothing
is rewritten, so Spark runs what the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import Token, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError

from ...errors import InvalidStatementError, UnsupportedFeatureError
from ...format.names.identifiers import MAIN, FoldedName, QualifiedName, SchemaPath, fold
from .. import trees
from ..duckdb.cursor import error_at
from .statements import (
    ReadConditions,
    Reference,
    Scopes,
    SparkQuery,
    SparkStatement,
    ViewStatement,
    WriteMode,
    WriteStatement,
    functions_of,
)

Read = TypeVar("Read")


def parse_spark_sql(
    statements: str | Sequence[str],
    views: Collection[str] = (),
    default_schema: SchemaPath = MAIN,
    *,
    nested_schemas: bool = False,
) -> tuple[SparkStatement, ...]:
    """Return the statements of one or more texts; each text may hold several, with semicolons between them.

    ``views`` are names that stand for something else than a table of the lake. A table without a schema lies
    in ``default_schema``. Only with ``nested_schemas`` has a name more parts than a schema and a table.
    """
    known = {fold(view) for view in views}
    parsed: list[SparkStatement] = []
    for text in [statements] if isinstance(statements, str) else statements:
        for start, end in _split(text, len(parsed) + 1):
            place = _Place(text, start, end, len(parsed) + 1)
            reader = _StatementReader(place, known, default_schema, nested_schemas=nested_schemas)
            one = reader.statement()
            _check_order(one, parsed, reader)
            if isinstance(one, ViewStatement):
                known.add(fold(one.view))
            parsed.append(one)
    return tuple(parsed)


def parse_query(text: str, default_schema: SchemaPath = MAIN, *, nested_schemas: bool = False) -> SparkQuery:
    """Return a query alone, as that of a view."""
    place = _Place(text, 0, len(text), 1)
    return _StatementReader(place, set(), default_schema, nested_schemas=nested_schemas).query_alone()


_MAKES_TABLE = (WriteMode.CREATE, WriteMode.CREATE_IF_MISSING, WriteMode.REPLACE)


def _check_order(one: SparkStatement, earlier: Sequence[SparkStatement], reader: _StatementReader) -> None:
    """Refuse what looks at or replaces the rows that an earlier statement writes: all is one snapshot."""
    written: dict[FoldedName, WriteStatement] = {}
    for other in earlier:
        if isinstance(other, WriteStatement):
            written.setdefault(other.table.folded, other)
    for key, name in one.query.reads.items():
        if key in written:
            raise reader.error(
                0,
                f"reads {name}, which statement {written[key].number} writes; all statements read the "
                "snapshot before both. Put that query in a temporary view and use it in both.",
            )
    first = written.get(one.table.folded) if isinstance(one, WriteStatement) else None
    if first is None or not isinstance(one, WriteStatement):
        return
    if one.mode is not WriteMode.APPEND or first.mode in _MAKES_TABLE:
        problem = f"statement {first.number} already writes {one.table}. Combine both with UNION ALL."
        raise reader.error(0, problem)


def _split(text: str, number: int) -> Iterator[tuple[int, int]]:
    """Yield where each statement starts and ends; those between two semicolons with nothing else are none."""
    tokens = _tokens(text, number)
    start: int | None = None
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            if start is not None:
                yield start, token.start
            start = None
        elif start is None:
            start = token.start
    if start is not None:
        yield start, len(text)


def _tokens(text: str, number: int) -> list[Token]:
    try:
        return list(Spark().tokenize(text))
    except TokenError as error:
        raise error_at(number, text, 0, repr(text[:20]), f"cannot be read: {error}.") from None


_USE = "Use INSERT INTO, INSERT OVERWRITE or CREATE TABLE … AS, or CREATE TEMPORARY VIEW for what they share."
_OPERATORS = {
    "Merge": "DuckLakeSparkMergeOperator",
    "Update": "DuckLakeSparkUpdateOperator",
    "Delete": "DuckLakeSparkDeleteOperator",
    "Alter": "DuckLakeDDLOperator",
    "Drop": "DuckLakeDDLOperator",
    "TruncateTable": "DuckLakeDDLOperator",
}
_PROPERTIES = {
    "FileFormatProperty": "USING: a lake's files are Parquet. Leave it out.",
    "LocationProperty": "LOCATION: the lake decides where its files are. Leave it out.",
    "SchemaCommentProperty": "COMMENT: comment on the table with the DDL operator.",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands in a text, and its number."""

    text: str
    start: int
    end: int
    number: int


class _StatementReader:
    """Reads one statement of a text."""

    def __init__(
        self, place: _Place, views: set[str], default_schema: SchemaPath, *, nested_schemas: bool
    ) -> None:
        self._text = place.text
        self._offset = place.start
        self._sql = place.text[place.start : place.end]
        self._number = place.number
        self._views = views
        self._default_schema = default_schema
        self._nested_schemas = nested_schemas

    def statement(self) -> SparkStatement:
        """Return the parsed statement."""
        return self._typed(self._statement)

    def query_alone(self) -> SparkQuery:
        """Return the whole text as a query."""
        return self._typed(self._query_alone)

    def _typed(self, read: Callable[[], Read]) -> Read:
        """Read a tree and what it says; both go down as deep as the text."""
        try:
            return read()
        except (trees.TooDeepError, RecursionError):
            raise self.error(0, trees.TOO_DEEP) from None

    def _statement(self) -> SparkStatement:
        tree = self._tree()
        if isinstance(tree, exp.Insert):
            return self._insert(tree)
        if isinstance(tree, exp.Create) and tree.kind in ("TABLE", "VIEW"):
            return self._create(tree)
        if (operator := _OPERATORS.get(type(tree).__name__)) is not None:
            raise self.error(0, f"another operator does this: use {operator}.")
        raise self.error(0, f"this does not write a table of the lake. {_USE}")

    def _query_alone(self) -> SparkQuery:
        tree = self._tree()
        if not isinstance(tree, exp.Query):
            raise self.error(0, "this is not a query.")
        return self._query(tree, self._sql, 0)

    def error(self, position: int, problem: str) -> InvalidStatementError:
        """Return the error for what stands at a position of the statement."""
        near = self._sql[position:].split(maxsplit=1)
        place = self._offset + position
        return error_at(self._number, self._text, place, repr(near[0] if near else ""), problem)

    def _unsupported(self, position: int, problem: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(str(self.error(position, problem)))

    def _tree(self) -> exp.Expr:
        try:
            tree = trees.parse_one(self._sql, "spark")
        except trees.TooDeepError:
            raise
        except SqlglotError as error:
            errors = error.errors if isinstance(error, ParseError) else ()
            found = errors[0] if errors else {}
            near = f" near {found['highlight']!r}" if found.get("highlight") else ""
            line = self._sql.splitlines(keepends=True)[: (found.get("line") or 1) - 1]
            position = min(sum(map(len, line)), len(self._sql))
            raise self.error(position, f"cannot be read{near}; correct it there.") from None
        return tree

    # INSERT

    def _insert(self, tree: exp.Insert) -> WriteStatement:
        target = tree.this
        columns: tuple[str, ...] = ()
        if isinstance(target, exp.Schema):
            columns = tuple(column.name for column in target.expressions)
            target = target.this
        table, end = self._target(target)
        for key in ("where", "exists", "partition", "settings"):
            if tree.args.get(key) or target.args.get(key):
                raise self._unsupported(end, "only whole tables can be overwritten or appended to here.")
        tokens = self._after(end)
        if columns:
            tokens = _behind_parentheses(tokens)
        by_name = bool(tree.args.get("by_name"))
        if by_name:
            tokens = tokens[2:]
        before = "" if tree.args.get("with_") is None else self._with_text()
        if not tokens:
            raise self.error(end, "no query follows.")
        start = tokens[0].start
        query = self._insert_query(tree, before, start)
        mode = WriteMode.OVERWRITE if tree.args.get("overwrite") else WriteMode.APPEND
        return WriteStatement(self._number, table, mode, query, columns, by_name=by_name)

    def _insert_query(self, tree: exp.Insert, before: str, start: int) -> SparkQuery:
        """Return the query of an INSERT; a WITH clause may stand before the INSERT itself."""
        rest = self._sql[start:]
        parts = [part for part in (tree.expression, tree.args.get("source")) if part]
        references = [one for part in parts for one in self._references(part, -start)]
        if before:
            references = [_moved(one, len(before)) for one in references]
            references = [*self._references(tree.args["with_"], 0), *references]
        return SparkQuery(before + rest, tuple(references), functions_of(tree))

    def _with_text(self) -> str:
        """Return the text before INSERT."""
        depth = 0
        for token in _tokens(self._sql, self._number):
            depth += _depth(token)
            if depth == 0 and token.text.upper() == "INSERT":
                return self._sql[: token.start]
        raise self.error(0, f"cannot be read. {_USE}")

    # CREATE

    def _create(self, tree: exp.Create) -> SparkStatement:
        is_view = tree.kind == "VIEW"
        properties = tree.args.get("properties")
        kinds = {type(one).__name__ for one in properties.expressions} if properties else set()
        target = tree.this
        if isinstance(target, exp.Schema):
            raise self.error(0, "give names to columns in the query, with AS.")
        if is_view and "TemporaryProperty" not in kinds:
            raise self.error(
                0, "use the DDL operator to create a view in the lake; here, write TEMPORARY VIEW."
            )
        if not isinstance(tree.expression, exp.Query):
            raise self.error(0, f"no query follows; use the DDL operator to create an empty table. {_USE}")
        query = self._create_query(tree, target)
        if is_view:
            if target.args.get("db"):
                raise self.error(_start(target), "a temporary view has no schema. Leave it out.")
            return ViewStatement(self._number, target.name, query)
        for kind in sorted(kinds - {"PartitionedByProperty"}):
            raise self._unsupported(0, _PROPERTIES.get(kind, f"{kind}: tables of a lake do not have it."))
        table, end = self._target(target)
        keys = self._partition_keys(end) if "PartitionedByProperty" in kinds else ()
        return WriteStatement(self._number, table, _create_mode(tree), query, by_name=True, partition_by=keys)

    def _create_query(self, tree: exp.Create, target: exp.Table) -> SparkQuery:
        _, end = self._target(target)
        depth = 0
        for token in self._after(end):
            depth += _depth(token)
            if depth == 0 and token.token_type.name == "ALIAS":
                return self._query(tree.expression, self._sql[token.end + 1 :], token.end + 1)
        raise self.error(end, "expected AS and a query.")

    def _partition_keys(self, end: int) -> tuple[str, ...]:
        """Return the keys between the parentheses of PARTITIONED BY, as written."""
        tokens = self._after(end)
        first = next(place for place, token in enumerate(tokens) if token.text == "(")
        keys, depth, start = [], 0, tokens[first].end + 1
        for token in tokens[first:]:
            depth += _depth(token)
            if depth == 0 or (depth == 1 and token.text == ","):
                keys.append(self._sql[start : token.start].strip())
                start = token.end + 1
            if depth == 0:
                break
        return tuple(keys)

    # Names

    def _target(self, table: exp.Expr) -> tuple[QualifiedName, int]:
        """Return a table's name, and where it ends."""
        if not isinstance(table, exp.Table) or not _is_named(table):
            raise self.error(0, f"this does not write a table of the lake. {_USE}")
        return self._name(table), _end(table)

    def _name(self, table: exp.Table) -> QualifiedName:
        if table.catalog and not self._nested_schemas:
            raise self.error(
                _start(table),
                "names a catalog. Name tables as schema.table: the connection defines the lake.",
            )
        *above, name = (part.name for part in table.parts)
        return QualifiedName(SchemaPath(tuple(above)) if above else self._default_schema, name)

    def _after(self, end: int) -> list[Token]:
        return [token for token in _tokens(self._sql, self._number) if token.start >= end]

    def _query(self, tree: exp.Expr, text: str, start: int) -> SparkQuery:
        return SparkQuery(text, tuple(self._references(tree, -start)), functions_of(tree))

    def _references(self, tree: exp.Expr, shift: int) -> Iterator[Reference]:
        """Yield the tables of the lake that a query names, at their places moved by ``shift``."""
        names, scopes = _Names(tree), Scopes()
        conditions = ReadConditions(_tokens(self._sql, self._number), self._sql)
        for table in (one for one in tree.find_all(exp.Table) if one.find_ancestor(exp.Hint) is None):
            if not _is_named(table) or self._is_local(table, scopes):
                continue
            if table.args.get("version") or table.args.get("when"):
                raise self._unsupported(_end(table), "give the snapshot to the operator instead, as at=….")
            has_alias = bool(table.alias) or isinstance(table.parent, exp.Insert)  # TABLE takes none
            if not has_alias and table.args.get("sample"):
                raise self._unsupported(_end(table), "give the table an alias after TABLESAMPLE (…).")
            start, end = _start(table), _end(table)
            in_columns = names.in_columns(table)
            if in_columns and names.is_ambiguous(table):
                raise self._unsupported(
                    start,
                    f"the query also reads another {table.name}: give both an alias, and use it with their "
                    "columns.",
                )
            name, condition = self._name(table), conditions.of(table, end)
            one = Reference(name, start, end, has_alias, in_columns, condition)
            yield _moved(one, shift)

    def _is_local(self, table: exp.Table, scopes: Scopes) -> bool:
        """Return True if a name is that of a common table expression, or of a view that the user made."""
        is_view = not table.db and fold(table.name) in self._views
        return is_view or scopes.is_common(table)


def _create_mode(tree: exp.Create) -> WriteMode:
    if tree.args.get("replace"):
        return WriteMode.REPLACE
    return WriteMode.CREATE_IF_MISSING if tree.args.get("exists") else WriteMode.CREATE


def _is_named(table: exp.Table) -> bool:
    """Return True if a table is a name, and nothing that is called."""
    return all(isinstance(part, exp.Identifier) for part in table.parts)


def _start(table: exp.Table) -> int:
    return int(table.parts[0].meta["start"])


def _end(table: exp.Table) -> int:
    return int(table.parts[-1].meta["end"]) + 1


def _path(named: exp.Expr) -> tuple[str, ...]:
    """Return a table's name with its schemas; of anything else, only what it goes by."""
    parts = named.parts if isinstance(named, exp.Table) else ()
    return tuple(fold(part.name) for part in parts) or (fold(named.alias_or_name),)


class _Names:
    """The names in a query: columns with the schema of their table, and relations by a table's name."""

    def __init__(self, tree: exp.Expr) -> None:
        tables = list(tree.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral))
        self._paths: dict[str, set[tuple[str, ...] | None]] = {}  # None: an alias
        for one in tables:
            if not _is_written(one):
                path = None if one.alias else _path(one)
                self._paths.setdefault(fold(one.alias_or_name), set()).add(path)
        lengths = {len(one.parts) for one in tables if isinstance(one, exp.Table) and one.db}
        self._columns: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        for column in tree.find_all(exp.Column) if lengths else ():
            self._add_column(_column_parts(column), lengths)

    def _add_column(self, parts: Sequence[exp.Expr], lengths: Collection[int]) -> None:
        for length in lengths:
            if len(parts) > length:  # schema, table, column, and perhaps fields in it
                path = tuple(fold(part.name) for part in parts[:length])
                place = int(parts[0].meta["start"]), int(parts[length - 1].meta["start"])
                self._columns.setdefault(path, []).append(place)

    def in_columns(self, table: exp.Table) -> tuple[tuple[int, int], ...]:
        """Return the places of columns that are named with the table's schema, which its view does not have.

        The first of the tables with a name has them all.
        """
        if table.alias or not table.db:
            return ()
        return tuple(self._columns.pop(_path(table), ()))

    def is_ambiguous(self, table: exp.Table) -> bool:
        """Return True if another relation has the table's name: a column's schema then separates them."""
        path = _path(table)
        return bool(self._paths.get(path[-1], set()) - {path})


def _column_parts(column: exp.Column) -> list[exp.Expr]:
    """Return the names of a column, outermost first; sqlglot has those beyond the fourth around it."""
    parts: list[exp.Expr] = list(column.parts)
    above = column.parent
    while isinstance(above, exp.Dot) and isinstance(above.expression, exp.Identifier):
        parts.append(above.expression)
        above = above.parent
    return parts


def _is_written(named: exp.Expr) -> bool:
    """Return True if a table is the one that the statement writes."""
    return named.arg_key == "this" and isinstance(named.parent, exp.Insert | exp.Create | exp.Schema)


def _moved(one: Reference, by: int) -> Reference:
    columns = tuple((start + by, end + by) for start, end in one.in_columns)
    return replace(one, start=one.start + by, end=one.end + by, in_columns=columns)


def _depth(token: Token) -> int:
    return {"(": 1, ")": -1}.get(token.text, 0) if token.token_type.name in ("L_PAREN", "R_PAREN") else 0


def _behind_parentheses(tokens: list[Token]) -> list[Token]:
    depth = 0
    for place, token in enumerate(tokens):
        depth += _depth(token)
        if depth == 0:
            return tokens[place + 1 :]
    return []
