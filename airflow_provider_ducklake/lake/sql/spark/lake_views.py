"""Views that a catalog keeps in Spark's dialect: which texts Spark may run.

Everybody who writes the catalog writes these texts, and Spark SQL can run programs, call Java and read files.
So Spark gets a query of words, numbers, strings and names that sqlglot and Spark cut alike, without comments;
all functions in it, and all kinds of clauses, are on a list. *Source:* ``SHOW FUNCTIONS`` and
``SqlBaseLexer.g4`` of Spark 4.2; a test compares the lists with the running Spark.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.sql import trees
from airflow_provider_ducklake.lake.sql.spark.view_functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot import Token

    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName

_MOST_CHARACTERS = 100_000
# Of these Spark's lexer and sqlglot's see the same beginning and end, whatever the session's settings are.
_SHAPES = {
    "STRING": re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL),
    "RAW_STRING": re.compile(r"[rR]'[^']*'"),
    "HEX_STRING": re.compile(r"[xX]'[0-9a-fA-F]*'"),
    "IDENTIFIER": re.compile(r"`(?:[^`]|``)+`"),
    "NUMBER": re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:L|S|Y|D|F|BD)?", re.IGNORECASE),
}
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\s+[A-Za-z_][A-Za-z0-9_]*)*")
_SYMBOLS = "( ) [ ] , . * + - / % = == <> != < > <= >= <=> << >> >>> || & | ^ ~ ! -> => : ::"
_BEGINS = frozenset(("SELECT", "WITH", "FROM", "("))
_IN_QUOTES = re.compile(r"\\.|'", re.DOTALL)
# Words before a parenthesis that call nothing. The types among them are not functions of Spark.
_KEYWORDS = """
ALL AND ANTI ANY AS BETWEEN BY CASE CHAR CHARACTER CUBE DEC DISTINCT DIV ELSE ESCAPE EXCEPT EXISTS FILTER
FOR FROM GROUP HAVING ILIKE IN INTERSECT INTERVAL JOIN LATERAL LIKE LIMIT MINUS NOT NUMERIC OFFSET ON OR
OVER PIVOT QUALIFY RLIKE ROLLUP SELECT SETS SOME TABLESAMPLE THEN UNION UNPIVOT USING VALUES VARCHAR WHEN
WHERE WITH
"""
# Of sqlglot's nodes these and all functions may be in a view: nothing that writes, runs, sets or describes.
_NODES = """
Add Alias Aliases All And Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr
BitwiseRightShift BitwiseXor Boolean Bracket CTE Case Cast Column ColumnDef Cube DPipe DataType
DataTypeParam Distinct Div Dot EQ Escape Except Except_ Exists ExtractYear Filter From GT GTE Group
GroupingSets Having HavingMax HexString ILike Identifier If IgnoreNulls In IntDiv Intersect Interval
IntervalSpan Is JSONExtract Join Kwarg LT LTE Lambda Lateral Like Limit Literal Mod Mul NEQ Neg Not Null
NullSafeEQ NullSafeNEQ Offset Or Order Ordered Paren Pivot PivotAlias PivotAny PropertyEQ Qualify
RawString RegexpLike RespectNulls Rollup Select Slice Star Struct Sub Subquery SubqueryPredicate Table
TableAlias TableSample Tuple Union UnpivotColumns Values Var Where Window WindowSpec With
WithinGroup Xor
"""

# Where a query takes rows from, and which nodes may stand there: whatever names a relation is a Table, whose
# name the plan replaces. sqlglot has a bare name behind LATERAL.
_ROWS: Mapping[str, tuple[type[exp.Expr], ...]] = {
    "From": (exp.Table, exp.Subquery, exp.Values, exp.Lateral),
    "Join": (exp.Table, exp.Subquery, exp.Values, exp.Lateral),
    "Lateral": (exp.Func, exp.Subquery),
    "Subquery": (exp.Table, exp.Query, exp.Values),
    "CTE": (exp.Query,),
}
_BEFORE_NAMES = "STREAM"  # a table's alias follows it for sqlglot, for Spark the table

_KNOWN_SYMBOLS, _KNOWN_KEYWORDS, _KNOWN_NODES = (
    frozenset(names.split()) for names in (_SYMBOLS, _KEYWORDS, _NODES)
)


def check_length(name: QualifiedName, text: str) -> None:
    """Refuse a view's query that is too long to be looked at.

    Raises:
        UnsupportedFeatureError: it is.
    """
    _View(name, text).check_length()


def checked_text(name: QualifiedName, text: str) -> str:
    """Return a view's query as Spark may run it, with the same words, numbers, strings and names.

    Raises:
        UnsupportedFeatureError: the query has something that is not on the lists; says what and where.
    """
    return _View(name, text).checked()


class _View:
    def __init__(self, name: QualifiedName, text: str) -> None:
        self._name, self._text = name, text

    def check_length(self) -> None:
        if len(self._text) > _MOST_CHARACTERS:
            raise self._refused(0, f"has {len(self._text)} characters; {_MOST_CHARACTERS} can be checked")

    def checked(self) -> str:
        self.check_length()
        try:
            tokens = Spark().tokenize(self._text)
            if not tokens or tokens[0].text.upper() not in _BEGINS:
                raise self._refused(0, "does not begin with SELECT or WITH")
            tree = trees.parse_one(self._text, "spark")
        except SqlglotError as error:
            reason = "is nested too deep" if isinstance(error, trees.TooDeepError) else "cannot be parsed"
            raise self._refused(0, reason) from None
        self._check_calls(tokens, _defined_at(tree))
        self._check_nodes(tree)
        return "".join(self._written(tokens))

    def _refused(self, position: int, what: str) -> UnsupportedFeatureError:
        before = self._text[:position]
        place = f"line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}"
        return UnsupportedFeatureError(
            f"View {self._name}, {place}: its query {what}. Everybody who can write the catalog can "
            "change a view, so Spark runs only what docs/sql.md lists of views. Change the view, or write "
            "the query into the task's own sql."
        )

    def _check_nodes(self, tree: exp.Expr) -> None:
        if not isinstance(tree, exp.Query):
            raise self._refused(0, f"is a statement ({tree.key})")
        for node in tree.walk(prune=lambda one: isinstance(one, exp.Hint | exp.JSONPath)):
            if isinstance(node, exp.Hint | exp.JSONPath):
                continue  # the one is left out, the other is a string
            if isinstance(node, exp.Table):
                self._check_table(node)
            if not isinstance(node, exp.Func) and type(node).__name__ not in _KNOWN_NODES:
                raise self._refused(_start_of(node), f"has a clause that views may not have ({node.key})")
            if not isinstance(node.this, _ROWS.get(type(node).__name__, object)):
                raise self._refused(
                    _start_of(node), f"reads rows from something that is no table ({node.key})"
                )

    def _check_table(self, table: exp.Table) -> None:
        if not isinstance(table.this, exp.Identifier):
            raise self._refused(_start_of(table), "calls a table function")
        if not table.this.quoted and not table.db and table.name.upper() == _BEFORE_NAMES:
            raise self._refused(_start_of(table), f"reads a stream ({table.name}): a name needs backticks")

    def _check_calls(self, tokens: Sequence[Token], defined_at: frozenset[int]) -> None:
        """Check each word before a parenthesis: a function, a keyword, or a name with a list of columns."""
        for place, (token, follows) in enumerate(pairwise(tokens)):
            name = token.text.lower()
            if token.text.upper() == "USING" and follows.token_type.name != "L_PAREN":
                raise self._refused(token.start, "runs a program (USING)")
            if token.text.upper() == "TABLE" and token.token_type.name != "IDENTIFIER":
                raise self._refused(token.start, "reads a whole table (TABLE): write SELECT * FROM its name")
            if follows.token_type.name != "L_PAREN" or not _is_name(token) or token.start in defined_at:
                continue
            is_quoted = token.token_type.name == "IDENTIFIER"
            if not is_quoted and token.text.upper().split()[-1] in _KNOWN_KEYWORDS:
                continue
            if name not in FUNCTIONS or (place and tokens[place - 1].token_type.name == "DOT"):
                raise self._refused(
                    token.start, f"calls {token.text!r}, which is not among the functions of views"
                )

    def _written(self, tokens: Sequence[Token]) -> Iterator[str]:
        """Yield the pieces of the text without comments, and with spaces where sqlglot sees two words."""
        end, before = 0, ""
        for token in tokens:
            if token.start < end or token.token_type.name == "HINT":
                continue  # of 1L sqlglot makes three tokens
            piece = self._piece(token)
            if token.start > end or (_ends_word(before) and _ends_word(piece[:1])):
                yield " "
            yield piece
            end, before = token.end + 1, piece

    def _piece(self, token: Token) -> str:
        kind, written = token.token_type.name, self._text[token.start : token.end + 1]
        shape = _SHAPES.get(kind)
        if shape is None:
            if _WORDS.fullmatch(written):
                return " ".join(written.split())
            if written in _KNOWN_SYMBOLS:
                return written
        elif shape.fullmatch(written) and "${" not in written:
            return _single_quoted(written) if written.startswith('"') else written
        raise self._refused(token.start, f"has {written[:50]!r}, which is not read in views")


def _defined_at(tree: exp.Expr) -> frozenset[int]:
    """Return where names begin that a query gives to tables, ``t`` in ``AS t(a, b)``."""
    names = (one.this for one in tree.find_all(exp.TableAlias))
    return frozenset(int(name.meta["start"]) for name in names if name is not None and "start" in name.meta)


def _is_name(token: Token) -> bool:
    return token.token_type.name == "IDENTIFIER" or _WORDS.fullmatch(token.text) is not None


def _start_of(node: exp.Expr) -> int:
    return min((int(one.meta["start"]) for one in node.walk() if "start" in one.meta), default=0)


def _ends_word(piece: str) -> bool:
    return piece[-1:].isalnum() or piece[-1:] == "_"


def _single_quoted(text: str) -> str:
    """Return a string in single quotes: between double ones it is a name in some sessions."""
    inner = _IN_QUOTES.sub(lambda found: "\\'" if found[0] == "'" else found[0], text[1:-1])
    return f"'{inner}'"
