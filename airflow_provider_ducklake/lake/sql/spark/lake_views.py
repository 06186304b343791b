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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot import Token

    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName


# Functions of Spark that a view of a lake may call: they compute a value from their arguments, and no more.
#
# Left out is what calls Java (``reflect``), loads classes or opens files and addresses that its arguments
# name (Avro, Protocol Buffers, XML), decodes sketches, or describes the session; so are functions of users.
# *Source:* ``SHOW FUNCTIONS`` of Spark 4.2; ``tests/spark/test_lake_views.py`` has the reasons.


_NAMES = """
abs acos acosh add_months aes_decrypt aes_encrypt aggregate any any_value approx_count_distinct
approx_percentile array array_agg array_append array_compact array_contains array_distinct array_except
array_insert array_intersect array_join array_max array_min array_position array_prepend array_remove
array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan
atan2 atanh avg base64 bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor
bitmap_bit_position bitmap_bucket_number bitmap_count bool_and bool_or boolean bround btrim cardinality
cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation collect_list
collect_set concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if covar_pop
covar_samp crc32 csc cume_dist curdate current_date current_time current_timestamp current_timezone
current_user date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank double e
element_at elt encode endswith equal_null every exists exp explode explode_outer expm1 extract factorial
filter find_in_set first first_value flatten float floor forall format_number format_string from_csv
from_json from_unixtime from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash
hex histogram_numeric hour hypot if ifnull ilike initcap inline inline_outer instr int is_valid_utf8
is_variant_null isnan isnotnull isnull json_array_length json_object_keys json_tuple kurtosis lag last
last_day last_value lcase lead least left len length levenshtein like listagg ln localtimestamp locate log
log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
mask max max_by md5 mean median min min_by minute mod mode monotonically_increasing_id month monthname
months_between named_struct nanvl negative next_day now nth_value ntile nullif nullifzero nvl nvl2
octet_length overlay parse_json parse_url percent_rank percentile percentile_approx percentile_cont
percentile_disc pi pmod posexplode posexplode_outer position positive pow power printf quarter quote
radians raise_error rand randn random randstr rank reduce regexp regexp_count regexp_extract
regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count
regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike round
row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec second
sentences sequence session_user session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned
shuffle sign signum sin sinh size skewness slice smallint some sort_array soundex space split split_part
sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack startswith std stddev stddev_pop
stddev_samp str_to_map string string_agg struct substr substring substring_index sum tan tanh time
time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis
time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd
timestampdiff tinyint to_binary to_char to_csv to_date to_json to_number to_time to_timestamp
to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object
transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_avg try_cast
try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz
try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum
try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
try_variant_get typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_seconds
unix_timestamp upper url_decode url_encode user uuid validate_utf8 var_pop var_samp variance
variant_explode variant_explode_outer variant_get weekday weekofyear width_bucket window window_time
xxhash64 year zeroifnull zip_with
"""
FUNCTIONS = frozenset(_NAMES.split())


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
    """Refuse a view's query that is too long to be looked at."""
    _View(name, text).check_length()


def checked_text(name: QualifiedName, text: str) -> str:
    """Return a view's query as Spark may run it, with the same words, numbers, strings and names."""
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
    """Return the positions of names that a query gives to tables, ``t`` in ``AS t(a, b)``."""
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
