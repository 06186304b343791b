"""Strings that DuckDB could not read again reach no table, whoever brings them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, InvalidValueError, SchemaMismatchError
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_field
from tests.interop.lakes import alone
from tests.reference.duckdb_lake import open_lake

LATIN = "café".encode("latin-1")
TABLE = "CREATE TABLE t (id BIGINT, s VARCHAR, l STRUCT(j JSON)[], j JSON)"


def strings(*values: bytes) -> pa.Array:
    """Return what Arrow takes for strings."""
    return pa.array(values, pa.binary()).view(pa.string())


def rows(count: int, s: bytes = b"s", inner: str = "1", j: str = "{}") -> pa.Table:
    """Return rows of which the last has the values given."""
    good = count - 1
    return pa.table(
        {
            "id": range(count),
            "s": strings(*[b"good"] * good, s),
            "l": [[{"j": "[]"}]] * good + [[{"j": "null"}, {"j": inner}]],
            "j": ["true"] * good + [j],
        }
    )


@pytest.fixture(params=[1, 50], ids=["inlined", "file"])
def count(request) -> int:
    return request.param


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"s": LATIN}, "column s: 1 value is not valid UTF-8, such as b'caf\\xe9'"),
        ({"j": ""}, "column j: 1 value is not valid JSON, such as ''"),
        ({"inner": "{a:1}"}, "column l.element.j: 1 value is not valid JSON, such as '{a:1}'"),
        (
            {"j": 501 * "[" + 501 * "]"},
            "column j: 1 value is not valid JSON of at most 500 levels, such as '" + 40 * "[" + "' …",
        ),
        ({"j": '"' + 99 * "x"}, "column j: 1 value is not valid JSON, such as '\"" + 39 * "x" + "' …"),
    ],
)
def test_arrow_rows_are_refused_before_anything_is_written(sqlite_catalog, count, wrong, problem):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(TABLE)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            lake.append_arrow("t", rows(count))
            before = lake.current_snapshot()

            with pytest.raises(InvalidValueError) as caught:
                lake.append_arrow("t", rows(count, **wrong))

            assert caught.value.problems == (problem,)
            assert lake.current_snapshot() == before
        assert duck.sql("SELECT count(s), count(l), count(j) FROM t") == [(count, count, count)]


def test_a_partition_by_bad_strings_is_the_same_error(sqlite_catalog, count):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(TABLE)
        duck.sql("ALTER TABLE t SET PARTITIONED BY (s)")
        with (
            Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
            pytest.raises(InvalidValueError, match="column s: 1 value is not valid UTF-8"),
        ):
            lake.append_arrow("t", rows(count, s=LATIN))


def test_inlined_rows_that_hold_no_json_are_not_flushed(sqlite_catalog):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(TABLE)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            lake.append_arrow("t", rows(3))
            _damage_inlined(sqlite_catalog)

            with pytest.raises(InvalidValueError, match="column j: 3 values are not valid JSON"):
                lake.flush_inlined_data()

            assert lake.table_snapshot("t").files in {None, ()}


def _damage_inlined(catalog) -> None:
    """Have rows as an earlier release took them."""
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(catalog.location) as connection:
        (name,) = connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchone()
        connection.execute(f'UPDATE "{name}" SET j = ?', ("not json",))
    connection.close()


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("s", LATIN, "column s has values that are not valid UTF-8, such as b'caf\\xe9'"),
        ("j", b"not json", "column j has values that are not valid JSON, such as 'not json'"),
    ],
)
def test_bad_strings_in_the_footer_of_a_foreign_file_are_refused(
    sqlite_catalog, tmp_path, column, value, problem
):
    path = tmp_path / "foreign.parquet"
    values = {"s": strings(b"a", value if column == "s" else b"b")}
    values["j"] = pa.ExtensionArray.from_storage(pa.json_(), strings(b"1", value if column == "j" else b"2"))
    pq.write_table(pa.table(values), path)
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE t (s VARCHAR, j JSON)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            with pytest.raises(SchemaMismatchError) as caught, lake.transaction() as transaction:
                transaction.add_data_files("t", [str(path)])
            assert caught.value.differences == (problem,)


def test_a_default_that_is_no_json_is_refused(sqlite_catalog):
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE t (id BIGINT)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            for text in ("not json", r'"\ud800"'):
                with pytest.raises(InvalidInputError, match="JSON"), lake.transaction() as transaction:
                    transaction.add_column("t", "j", "json", default=text)


_NAN = float("nan")
_MAPS = {
    "texts": ("map(varchar, int64)", [("k", 1), ("k", 2)]),
    "zeros": ("map(float64, int64)", [(0.0, 1), (-0.0, 2)]),
    "no numbers": ("map(float64, int64)", [(_NAN, 1), (_NAN, 2)]),
    "structs": ("map(struct(a int64), int64)", [({"a": 1}, 1), ({"a": 1}, 2)]),
    "in a list": ("map(varchar, int64)[]", [[("a", 1)], [("k", 1), ("k", 2)]]),
    "in a struct": ("struct(x int64, m map(varchar, int64))", {"x": 1, "m": [("k", 1), ("k", 2)]}),
    "in a map": ("map(varchar, map(int64, int64))", [("a", [(1, 1), (1, 2)])]),
}


@pytest.mark.parametrize("kind", _MAPS)
def test_a_map_with_a_key_twice_is_refused_as_duckdb_reads_none(sqlite_catalog, kind):
    type_, value = _MAPS[kind]
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"v": type_})
        (column,) = lake.table_snapshot("t").schema.columns
        target = arrow_field(column, field_ids=False).type

        said = r"column v\S*: .*maps, each of whose keys is another"
        for count in (1, 200):  # inlined, and in a file
            with pytest.raises(InvalidValueError, match=said):
                lake.append_arrow("t", pa.table({"v": pa.array([None, *[value] * count], target)}))
        once = [value[:1] if isinstance(value, list) else {"x": 1, "m": value["m"][:1]}]
        if kind != "in a map":
            lake.append_arrow("t", pa.table({"v": pa.array([None, *once], target).slice(1)}))
            assert lake.row_count("t") == 1
