"""Views that a catalog keeps in Spark's dialect: which of them Spark may run.

Everybody who writes the catalog writes these texts, and Spark SQL can run programs, call Java and read files.
So the parser that runs a text judges it: each part of the plan that Spark has parsed, before it looks up any
name, has to be on a list, and so has each function that is called. That plan is run, and no text again.
*Source:* ``SHOW FUNCTIONS`` and ``AstBuilder`` of Spark 4.2.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from ...errors import InvalidInputError, UnsupportedFeatureError
from .. import sources
from ..job.errors import message_of
from ..sessions.kind import kind_of
from ..sessions.settings import as_views_are_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..job.request import Step


# Functions of Spark that a view may call: they compute a value from their arguments, and no more.
#
# Left out is what calls Java (``reflect``), loads classes or opens files and addresses that its arguments
# name (Avro, Protocol Buffers, XML), decodes sketches, or describes the job; so are functions of users.
# ``tests/spark/test_lake_views.py`` has the reasons.
_FUNCTIONS = """
abs acos acosh add_months aes_decrypt aes_encrypt aggregate any any_value approx_count_distinct
approx_percentile array array_agg array_append array_compact array_contains array_distinct array_except
array_insert array_intersect array_join array_max array_min array_position array_prepend array_remove
array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan
atan2 atanh avg base64 bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor
bitmap_bit_position bitmap_bucket_number bitmap_count bool_and bool_or boolean bround btrim cardinality cast
cbrt ceil ceiling char char_length character_length chr coalesce collate collation collect_list collect_set
concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if covar_pop covar_samp crc32
csc cume_dist curdate current_date current_time current_timestamp current_timezone current_user date date_add
date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
dayofmonth dayofweek dayofyear decimal decode degrees dense_rank double e element_at elt encode endswith
equal_null every exists exp explode explode_outer expm1 extract factorial filter find_in_set first first_value
flatten float floor forall format_number format_string from_csv from_json from_unixtime from_utc_timestamp get
get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hour hypot if ifnull ilike
initcap inline inline_outer instr int is_valid_utf8 is_variant_null isnan isnotnull isnull json_array_length
json_object_keys json_tuple kurtosis lag last last_day last_value lcase lead least left len length levenshtein
like listagg ln localtimestamp locate log log10 log1p log2 lower lpad ltrim luhn_check make_date
make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8
make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries
map_keys map_values map_zip_with mask max max_by md5 mean median min min_by minute mod mode
monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day now nth_value
ntile nullif nullifzero nvl nvl2 octet_length overlay parse_json parse_url percent_rank percentile
percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow
power printf quarter quote radians raise_error rand randn random randstr rank reduce regexp regexp_count
regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy
regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint
rlike round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec
second sentences sequence session_user session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned
shuffle sign signum sin sinh size skewness slice smallint some sort_array soundex space split split_part sqrt
st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack startswith std stddev stddev_pop
stddev_samp str_to_map string string_agg struct substr substring substring_index sum tan tanh time time_diff
time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_binary
to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
to_unix_timestamp to_utc_timestamp to_varchar to_variant_object transform transform_keys transform_values
translate trim trunc try_add try_aes_decrypt try_avg try_cast try_divide try_element_at try_make_interval
try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex uniform unix_date unix_micros
unix_millis unix_seconds unix_timestamp upper url_decode url_encode user uuid validate_utf8 var_pop var_samp
variance variant_explode variant_explode_outer variant_get weekday weekofyear width_bucket window window_time
xxhash64 year zeroifnull zip_with
"""
# The parts of a parsed query that compute rows and nothing else.
_PARTS = """
Add Aggregate AggregateExpression Alias AliasIdentifier And AnyValue Ascending$ AttributeReference BitwiseAnd
BitwiseNot BitwiseOr BitwiseXor CTERelationDef CTERelationRef CaseWhen Cast Coalesce Collate Complete$ Concat
CreateNamedStruct Cross$ Cube CurrentRow$ Descending$ Distinct Divide EqualNullSafe EqualTo Except Exists
ExprId Filter First FullOuter$ FunctionIdentifier Generate GlobalLimit GreaterThan GreaterThanOrEqual
GroupingSets ILike In InSubquery Inner$ IntegralDivide Intersect IsNotNull IsNotUnknown IsNull IsUnknown Join
JoinHint LambdaFunction Last LateralJoin LateralSubquery LeftAnti$ LeftOuter$ LeftSemi$ LessThan
LessThanOrEqual Like LikeAll LikeAny LimitAll ListQuery Literal LocalLimit LocalRelation Lower MultiAlias
Multiply NamePlaceholder$ NaturalJoin Not NotLikeAll NotLikeAny NullsFirst$ NullsLast$ NumericEvalContext
Offset OneRowRelation Or Overlay Pivot Project RLike RangeFrame$ Remainder RepartitionByExpression RightOuter$
Rollup RowFrame$ Sample SampleMethod$Bernoulli$ SampleMethod$System$ ScalarSubquery SemiStructuredExtract
ShiftLeft ShiftRight ShiftRightUnsigned Sort SortOrder SpecifiedWindowFrame StringLocate StringTrim
StringTrimLeft StringTrimRight SubqueryAlias Substring Subtract TimestampAdd TimestampDiff UnaryMinus
UnaryPositive UnboundedFollowing$ UnboundedPreceding$ Union Unpivot UnresolvedAlias UnresolvedAttribute
UnresolvedCollation UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator UnresolvedHaving
UnresolvedHint UnresolvedInlineTable UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedQualify
UnresolvedRelation UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedSubqueryColumnAliases
UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWindowExpression UnspecifiedFrame$ UsingJoin
WindowExpression WindowSpecDefinition WindowSpecReference WithCTE WithWindowDefinition
"""
FUNCTIONS, PARTS = frozenset(_FUNCTIONS.split()), frozenset(_PARTS.split())
_CALLS = frozenset({"UnresolvedFunction", "UnresolvedGenerator", "UnresolvedTableValuedFunction"})
_OPERATORS = frozenset({"between"})  # that Spark reads as functions
_TYPED_BY_TEXT = {"from_csv": 1, "from_json": 1, "variant_get": 2, "try_variant_get": 2}  # argument's place
_VALUES = (
    "java.util.UUID",
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow",
    "org.apache.spark.sql.types.",
    "org.apache.spark.sql.util.CaseInsensitiveStringMap",  # options of a relation, looked at there
    "org.apache.spark.unsafe.types.",
    "scala.Enumeration$",
    "scala.None$",
)


def rows_of_view(spark: SparkSession, step: Step, relations: Collection[str]) -> DataFrame:
    """Return the rows of a view of the lake, which may read the job's views of these names.

    Raises:
        UnsupportedFeatureError: it is not trusted, and may do more than compute rows or cannot be judged.
    """
    try:
        with as_views_are_written(spark):
            if step.is_trusted:
                return sources.query(spark, step.query, f"View {step.lake_view}")
            plan = kind_of(spark).parsed(step.query)
        problem = (
            "cannot be checked before a Spark Connect server runs it"
            if plan is None
            else problem_of(plan, relations)
        )
        if problem is None:
            return kind_of(spark).rows_of(plan)
    except AnalysisException as error:
        raise InvalidInputError(f"View {step.lake_view} failed: {message_of(error)}") from error
    raise UnsupportedFeatureError(
        f"View {step.lake_view}: its query {problem}. Everybody who can write the catalog can change a view, "
        "so Spark runs only what docs/sql.md lists of views. Change the view, or write the query into the "
        "task's own sql; if you trust all who can write the catalog, give trust_views=True."
    )


def problem_of(plan: Any, relations: Collection[str]) -> str | None:  # noqa: ANN401 - an object of the JVM
    """Say what in a parsed query may do more than compute rows from these relations; None: nothing."""
    rest = [plan]
    while rest:
        part = rest.pop()
        if not hasattr(part, "getClass"):
            continue  # a string, a number, a flag
        of_class = str(part.getClass().getName())
        kind = of_class.rpartition(".")[2].partition("$$anon")[0]
        if of_class.startswith("scala.collection."):
            items = part.iterator()
            rest.extend(items.next() for _ in range(part.size()))
        elif of_class.startswith(("scala.Some", "scala.Tuple")) or (
            of_class.startswith("org.apache.spark.sql.catalyst.") and kind in PARTS
        ):
            problem = _problem_of_name(kind, part, relations)
            if problem is not None:
                return problem
            rest.extend(part.productElement(place) for place in range(part.productArity()))
        elif not of_class.startswith(_VALUES):
            return f"has a clause or an operator that views may not have ({kind})"
    return None


def _problem_of_name(kind: str, part: Any, relations: Collection[str]) -> str | None:  # noqa: ANN401 - likewise
    """Say what is wrong with the name that a part reads or calls, if it has one."""
    if kind == "UnresolvedRelation":
        is_known = part.productElement(0).mkString("\0") in relations
        if is_known and part.options().isEmpty() and not part.isStreaming():
            return None
        name = part.productElement(0).mkString(".")
        return f"reads {name!r}, where Spark would look for a table or file of its own"
    if kind not in _CALLS:
        return None
    called = part.productElement(0)
    name = called.unquotedString() if kind == "UnresolvedGenerator" else called.mkString(".")
    if name.lower() not in FUNCTIONS | _OPERATORS:
        return f"calls {name!r}, which is not among the functions of views"
    place = _TYPED_BY_TEXT.get(name.lower())
    if place is not None and not _has_plain_schema(part.productElement(1), place):
        return f"calls {name!r} with a schema that is not written as 'a INT, b STRING'"
    return None


def _has_plain_schema(arguments: Any, place: int) -> bool:  # noqa: ANN401 - likewise
    """Return True if the type among arguments is no JSON, of which Spark runs defaults and loads classes."""
    if arguments.size() <= place:
        return bool(place > 1)  # that of a variant may be left out
    schema = arguments.apply(place)
    if schema.nodeName() == "UnresolvedFunction":
        return str(schema.productElement(0).mkString(".")).lower() in ("schema_of_csv", "schema_of_json")
    return schema.nodeName() == "Literal" and "{" not in str(schema.productElement(0).toString())
