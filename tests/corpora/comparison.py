"""Rows of a lake's table compared with what DuckDB reads of the file, by DuckDB."""

import re
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.lake.format.names.identifiers import quote
from tests.interop.comparison import with_texts_of_variants
from tests.reference.duckdb_lake import DuckLakeConnection
from tests.spark.reading import plain

# What a lake has no type for, and what it may store in its place without a change of any value.
_SAME = (
    (r"ENUM\([^)]*\)|\bJSON\b", "VARCHAR"),
    (r"\bDECIMAL\(20,\s*0\)", "BIGINT"),  # what Spark has for UBIGINT
    (r"\[\d+\]", "[]"),
    (r"GEOMETRY\('(?:[^']|'')*'\)", "GEOMETRY"),  # no lake keeps a coordinate system, DuckDB's own neither
    (r"\bU?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)\b", "integer"),
    (r"\b(FLOAT|DOUBLE)\b", "float"),
    (r"DECIMAL\(\d+,\s*\d+\)", "decimal"),
    (r"TIMESTAMP_(S|MS|NS)\b", "TIMESTAMP"),
)
# What rows of ours have in place of the type: WKB, and the parts that Spark has of an interval.
_OURS = {
    "GEOMETRY": "ST_GeomFromWKB({0})",
    "INTERVAL": "to_months({0}.months) + to_days({0}.days) + to_microseconds({0}.microseconds)",
}
_LONGEST, _LONGEST_VALUE = 500, 80  # characters


def other_table(duck: DuckLakeConnection, found: str, expected: str, *, of_types: bool = True) -> str:
    """Say how a table of the lake differs from what DuckDB reads of the file; empty: it does not."""
    ours, theirs = (_described(duck, source) for source in (found, expected))
    if list(ours) != list(theirs):
        return f"columns {', '.join(ours)}, and not {', '.join(theirs)}"[:_LONGEST]
    differ = [
        f"column {name} is {type_}, and not {theirs[name]}"
        for name, type_ in ours.items()
        if of_types and _kind(type_) != _kind(theirs[name])
    ]
    return "; ".join(differ)[:_LONGEST] or _other_rows(duck, found, expected, theirs)


def other_arrow(duck: DuckLakeConnection, rows: pa.Table, expected: str) -> str:
    """Say how rows that a reader of ours gave differ; empty: they do not."""
    if not rows.num_columns:
        return ""
    duck.raw.register("rows_of_ours", plain(with_texts_of_variants(rows)))
    try:
        return _other_rows(duck, "rows_of_ours", expected, _described(duck, expected), _OURS)
    finally:
        duck.raw.unregister("rows_of_ours")


def is_table(duck: DuckLakeConnection, found: str, rows: pa.Table) -> bool:
    """Whether a table of the lake has the types and values of Arrow rows."""
    try:
        duck.raw.register("given_rows", _without_halves(rows))
        return not other_table(duck, found, "given_rows")
    except duckdb.Error:
        return False
    finally:
        duck.raw.unregister("given_rows")


def _without_halves(rows: pa.Table) -> pa.Table:
    """Return rows with floats for halves, which DuckDB takes from no Arrow table."""
    fields = [pa.field(one.name, pa.float32()) if one.type == pa.float16() else one for one in rows.schema]
    return rows.cast(pa.schema(fields))


def _described(duck: DuckLakeConnection, source: str) -> dict[str, str]:
    return {name: type_ for name, type_, *_ in duck.sql(f"DESCRIBE FROM {source}")}


def _kind(type_: str) -> str:
    for pattern, kind in _SAME:
        type_ = re.sub(pattern, kind, type_)
    return type_


def _other_rows(
    duck: DuckLakeConnection,
    found: str,
    expected: str,
    types: Mapping[str, str],
    read_as: Mapping[str, str] = {},
) -> str:
    (one,), (other,) = (duck.sql(f"SELECT count(*) FROM {source}")[0] for source in (found, expected))
    if one != other:
        return f"{one} rows, and not {other}"
    ours = f"SELECT {', '.join(_text(*one, read_as) for one in types.items())} FROM {found}"
    theirs = f"SELECT {', '.join(_text(*one, {}) for one in types.items())} FROM {expected}"
    more = duck.sql(f"{ours} EXCEPT ALL {theirs} ORDER BY ALL LIMIT 1")
    if not more:
        return ""  # there are as many rows
    (other,) = duck.sql(f"{theirs} EXCEPT ALL {ours} ORDER BY ALL LIMIT 1")
    differ = {name: pair for name, *pair in zip(types, more[0], other, strict=True) if pair[0] != pair[1]}
    return "; ".join(
        f"column {name} has {_short(one)}, and not {_short(expected)}"
        for name, (one, expected) in differ.items()
    )[:_LONGEST]


def _short(value: str | None) -> str:
    return (
        "NULL"
        if value is None
        else repr(value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]} …")
    )


def _text(name: str, type_: str, read_as: Mapping[str, str]) -> str:
    value = read_as.get(type_.partition("(")[0], "CAST({0} AS {1})" if type_ != "VARIANT" else "{0}")
    text = f"CAST({value.format(quote(name), type_)} AS VARCHAR)"
    return f"replace({text}, '-nan', 'nan')"  # the sign of a NaN is no value
