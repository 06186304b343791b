"""Laws of the texts of nested values: we read them back, and DuckDB reads the same value."""

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.names.identifiers import fold, quote
from airflow_provider_ducklake.lake.format.types import ducklake_types as dl
from airflow_provider_ducklake.lake.format.types.literals import format_literal, parse_literal
from tests.properties.strategies import names, physical, storable_scalars

VARCHAR = dl.ScalarType("varchar")
JSON = dl.ScalarType("json")
# Text of the reference's: it cannot name the first and last instants, and JSON is a language of its own.
NOT_FREE = {JSON, *map(dl.ScalarType, ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"))}
NOT_FREE |= {dl.ScalarType("timestamptz"), dl.ScalarType("timestamptz_ns")}

strings = st.lists(
    st.sampled_from([*"ab '\"\\,[]{}()=:\n\t\r\0", "NULL", "null", "é", "nan", "CAST(", "::"]), max_size=6
).map(lambda parts: "".join(parts).encode())
leaves = st.just(VARCHAR) | storable_scalars.filter(lambda type_: type_ not in NOT_FREE)
keys = st.sampled_from([VARCHAR, dl.ScalarType("int32"), dl.ScalarType("uuid")])


def structs(members: st.SearchStrategy[dl.DuckLakeType]) -> st.SearchStrategy[dl.StructType]:
    fields = st.lists(
        st.builds(dl.Field, names | st.sampled_from(["it's", 'q"', "b\\", "[", "a: b"]), members),
        min_size=1,
        max_size=3,
        unique_by=lambda field: fold(field.name),
    )
    return fields.map(lambda found: dl.StructType(tuple(found)))


nested = st.recursive(
    leaves,
    lambda inner: st.builds(dl.ListType, inner) | st.builds(dl.MapType, keys, inner) | structs(inner),
    max_leaves=5,
).filter(lambda type_: isinstance(type_, dl.ListType | dl.MapType | dl.StructType))


def values(type_: dl.DuckLakeType, *, null: bool = True) -> st.SearchStrategy:
    drawn = _values(type_)
    return st.none() | drawn if null else drawn


def _values(type_: dl.DuckLakeType) -> st.SearchStrategy:
    match type_:
        case dl.ListType(element):
            return st.lists(values(element), max_size=3)
        case dl.MapType(key, item):
            pairs = st.tuples(values(key, null=False), values(item))
            return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
        case dl.StructType(fields):
            return st.fixed_dictionaries({field.name: values(field.type) for field in fields})
        case dl.ScalarType("varchar"):
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


def sql(type_: dl.DuckLakeType) -> str:
    match type_:
        case dl.ListType(element):
            return f"{sql(element)}[]"
        case dl.MapType(key, item):
            return f"MAP({sql(key)}, {sql(item)})"
        case dl.StructType(fields):
            return f"STRUCT({', '.join(f'{quote(field.name)} {sql(field.type)}' for field in fields)})"
        case dl.ScalarType() | dl.DecimalType():
            return _SQL.get(str(type_), str(type_))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(typed)
@example((dl.StructType((dl.Field("s", dl.ListType(VARCHAR)),)), {"s": [b"a]"]}))
@example((dl.ListType(dl.StructType((dl.Field("s", VARCHAR),))), [{"s": b"}"}]))
@example((dl.MapType(VARCHAR, VARCHAR), [(b"\\", b"")]))
def test_duckdb_reads_the_value_that_we_wrote(duck, type_and_value):
    type_, value = type_and_value
    text = format_literal(type_, value)

    (read,) = duck.execute(f"SELECT (CAST(? AS {sql(type_)}))::VARCHAR", [text]).fetchone()

    # inside a list, so that DuckDB's quotes mean what they do in its casts
    assert shown(parse_literal(dl.ListType(type_), f"[{read}]")) == shown([value]), text
