"""Laws of the texts of nested values: we read them back, and DuckDB reads the same value."""

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.names.identifiers import fold, quote
from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    Field,
    ListType,
    MapType,
    ScalarType,
    StructType,
)
from airflow_provider_ducklake.lake.format.types.literals import format_literal, parse_literal
from tests.properties.strategies import names, physical, storable_scalars

VARCHAR = ScalarType("varchar")
JSON = ScalarType("json")
# Text of the reference's: it cannot name the first and last instants, and JSON is a language of its own.
NOT_FREE = {JSON, *map(ScalarType, ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"))}
NOT_FREE |= {ScalarType("timestamptz"), ScalarType("timestamptz_ns")}

strings = st.lists(
    st.sampled_from([*"ab '\"\\,[]{}()=:\n\t\r\0", "NULL", "null", "é", "nan", "CAST(", "::"]), max_size=6
).map(lambda parts: "".join(parts).encode())
leaves = st.just(VARCHAR) | storable_scalars.filter(lambda type_: type_ not in NOT_FREE)
keys = st.sampled_from([VARCHAR, ScalarType("int32"), ScalarType("uuid")])


def structs(members: st.SearchStrategy[DuckLakeType]) -> st.SearchStrategy[StructType]:
    fields = st.lists(
        st.builds(Field, names | st.sampled_from(["it's", 'q"', "b\\", "[", "a: b"]), members),
        min_size=1,
        max_size=3,
        unique_by=lambda field: fold(field.name),
    )
    return fields.map(lambda found: StructType(tuple(found)))


nested = st.recursive(
    leaves,
    lambda inner: st.builds(ListType, inner) | st.builds(MapType, keys, inner) | structs(inner),
    max_leaves=5,
).filter(lambda type_: isinstance(type_, ListType | MapType | StructType))


def values(type_: DuckLakeType, *, null: bool = True) -> st.SearchStrategy:
    drawn = _values(type_)
    return st.none() | drawn if null else drawn


def _values(type_: DuckLakeType) -> st.SearchStrategy:
    match type_:
        case ListType(element):
            return st.lists(values(element), max_size=3)
        case MapType(key, item):
            pairs = st.tuples(values(key, null=False), values(item))
            return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
        case StructType(fields):
            return st.fixed_dictionaries({field.name: values(field.type) for field in fields})
        case ScalarType("varchar"):
            return strings | physical(type_)
        case _:
            return physical(type_)


typed = nested.flatmap(lambda type_: st.tuples(st.just(type_), values(type_, null=False)))


def shown(value: object) -> object:
    """Return what tells any two values apart, -0.0 and 0.0 too, whatever the order of struct members."""
    if isinstance(value, dict):
        return sorted((name, shown(member)) for name, member in value.items())
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return repr(value)


@given(typed)
def test_a_nested_value_reads_back_from_its_text(type_and_value):
    type_, value = type_and_value

    assert shown(parse_literal(type_, format_literal(type_, value))) == shown(value)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


_SQL = {"timestamp_s": "TIMESTAMP_S", "float32": "FLOAT", "float64": "DOUBLE"} | {
    f"{prefix}int{bits}": f"{prefix}{word}"
    for prefix in ("", "u")
    for bits, word in ((8, "tinyint"), (16, "smallint"), (32, "integer"), (64, "bigint"))
}


def sql(type_: DuckLakeType) -> str:
    match type_:
        case ListType(element):
            return f"{sql(element)}[]"
        case MapType(key, item):
            return f"MAP({sql(key)}, {sql(item)})"
        case StructType(fields):
            return f"STRUCT({', '.join(f'{quote(field.name)} {sql(field.type)}' for field in fields)})"
        case ScalarType() | DecimalType():
            return _SQL.get(str(type_), str(type_))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(typed)
@example((StructType((Field("s", ListType(VARCHAR)),)), {"s": [b"a]"]}))
@example((ListType(StructType((Field("s", VARCHAR),))), [{"s": b"}"}]))
@example((MapType(VARCHAR, VARCHAR), [(b"\\", b"")]))
def test_duckdb_reads_the_value_that_we_wrote(duck, type_and_value):
    type_, value = type_and_value
    text = format_literal(type_, value)

    (read,) = duck.execute(f"SELECT (CAST(? AS {sql(type_)}))::VARCHAR", [text]).fetchone()

    # inside a list, so that DuckDB's quotes mean what they do in its casts
    assert shown(parse_literal(ListType(type_), f"[{read}]")) == shown([value]), text
