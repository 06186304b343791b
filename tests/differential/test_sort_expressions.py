"""Sort keys that are expressions: the reference's rows, its values, and its rules for the columns in them."""

import logging
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, DuckLakeError, InvalidInputError
from airflow_provider_ducklake.lake.spec.sorting import FUNCTIONS, SortField
from airflow_provider_ducklake.lake.spec.sql.computed import computed
from airflow_provider_ducklake.lake.spec.sql.parse import parse_expression
from airflow_provider_ducklake.lake.storage.parquet.rows import NotComputableError, sorted_rows, values_of
from tests.differential.scenarios import Scenario
from tests.differential.test_catalogs import compare
from tests.differential.test_ddl import run, transactions
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

_COLUMNS = 'id INTEGER, b BIGINT, u UTINYINT, s VARCHAR, ts TIMESTAMP, d DATE, x DOUBLE, "S x" VARCHAR'
TABLE = f"CREATE TABLE t ({_COLUMNS})"
KEYS = (
    ("lower(s) DESC NULLS FIRST", "id % 10", "date_trunc('day', ts)"),
    ("id*2+1", "- id", "abs(id) ASC", "id::VARCHAR", "CAST(id AS BIGINT)", "coalesce(s, 'x') NULLS FIRST"),
    ("length(s)", "year(d)", "s || 'x'", "s IS NULL", "substring(s, 1, 2)", 'left("S x", 2)', "(id)", "s"),
    (
        "extract(year FROM d)",
        "date_part('year', d)",
        "CASE WHEN id > 1 AND NOT id = 3 THEN s ELSE 'it''s' END",
    ),
    (
        "round(x, 1)",
        "id IN (1, 2)",
        "id NOT BETWEEN 1 AND 2",
        "s LIKE 'a%'",
        "d >= DATE '2024-01-01'",
        "trim(s)",
    ),
)
SCENARIOS = (
    *(
        Scenario(
            f"keys {number}",
            lambda _lake, _reference: None,
            (TABLE, f"ALTER TABLE t SET SORTED BY ({', '.join(keys)})", "ALTER TABLE t RESET SORTED BY"),
        )
        for number, keys in enumerate(KEYS)
    ),
    Scenario(
        "columns in expressions get other names",
        lambda _lake, _reference: None,
        (
            TABLE,
            'ALTER TABLE t SET SORTED BY (lower(s) || "S x", id % 10 DESC, x)',
            'ALTER TABLE t RENAME COLUMN s TO "year"',
            'ALTER TABLE t RENAME COLUMN "S x" TO s',
            "ALTER TABLE t RENAME COLUMN id TO key",
            "ALTER TABLE t DROP COLUMN b",
        ),
    ),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_our_catalog_equals_the_references(catalog, reference_catalog, scenario: Scenario):
    def ours(lake: Lake, reference: DuckLakeConnection) -> None:
        for texts in transactions(scenario.reference):
            run(lake, reference, texts)

    compare(catalog, reference_catalog, replace(scenario, ours=ours), row_limit=0)


@pytest.fixture
def catalog_file(tmp_path):
    return file_catalog("sqlite", tmp_path / "lake")


REFUSED = ("t.id", "nosuch", "lower(nosuch)", "id +", "(SELECT 1", "lower(s) DESC NULLS")
STRICTER = ("sum(id)", "row_number() OVER ()", "(SELECT 1)", "nosuch(id)", "count(*)", "main.nosuch(id)")


@pytest.mark.parametrize("key", [*REFUSED, *STRICTER])
def test_keys_by_which_the_reference_cannot_sort_are_refused(catalog_file, key):
    """Some of them the reference takes, and then every insert fails."""
    with open_lake(catalog_file) as reference:
        reference.sql(TABLE)
        with pytest.raises(duckdb.Error):
            reference.sql(f"ALTER TABLE t SET SORTED BY ({key}); INSERT INTO t (id) FROM range(20)")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        before = lake.table_snapshot("t").sort_spec
        with pytest.raises((InvalidInputError, ColumnNotFoundError)), lake.transaction() as tx:
            tx.set_sorted_by("t", [key])
        assert lake.table_snapshot("t").sort_spec == before


def test_a_column_in_an_expression_is_not_dropped_as_in_the_reference(catalog_file):
    with open_lake(catalog_file) as reference:
        reference.sql(TABLE)
        reference.sql("ALTER TABLE t SET SORTED BY (lower(s), ids % 3)".replace("ids", "id"))
        with pytest.raises(duckdb.Error, match="sorted by this column"):
            reference.sql("ALTER TABLE t DROP COLUMN s")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        for column in ("s", "id"):
            with pytest.raises(InvalidInputError, match="is sorted by it"), lake.transaction() as tx:
                tx.drop_column("t", column)
        with lake.transaction() as tx:  # is no part of a name that is
            tx.drop_column("t", "d")


def test_functions_of_keys_are_scalar_functions_of_duckdb():
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('scalar', 'macro')"
        ).fetchall()
    assert FUNCTIONS - {"coalesce"} <= {name for (name,) in rows} | {"json_extract", "json_extract_string"}


COMPUTED = (
    *("id % 10", "b % 7", "u + id", "id * 3 - u", "-(id)", "abs(id)", "id::VARCHAR", "b::VARCHAR"),
    *("coalesce(s, 'x')", "coalesce(id, u, 5)", "length(s)", "s || 'x' || s", "s IS NULL", "id IS NOT NULL"),
    *("substring(s, 2, 3)", "left(s, 2)", "lower(s)", "upper(s)", "year(d)", "month(d)", "day(d)"),
    *("year(ts)", "month(ts)", "day(ts)", "id::BIGINT", "extract(year FROM ts)", "date_trunc('month', d)"),
    *("date_trunc('week', d)", "date_trunc('quarter', ts)", "date_trunc('hour', ts)", "s::VARCHAR"),
    *("date_trunc('week', ts)", "date_trunc('minute', ts)", "date_trunc('second', ts)", "main.lower(s)"),
    *("date_trunc('day', ts)", "date_trunc('year', d)"),
)
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_ROW = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**20), 2**20),
        "b": st.none() | st.integers(-(2**63), 2**63 - 1),
        "u": st.none() | st.integers(0, 255),
        "s": st.none()
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
        "ts": st.none() | st.datetimes(),
        "d": st.none() | st.dates(),
    }
)
ARROW = pa.schema(
    [
        ("id", pa.int32()),
        ("b", pa.int64()),
        ("u", pa.uint8()),
        ("s", pa.string()),
        ("ts", pa.timestamp("us")),
        ("d", pa.date32()),
    ]
)


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("computed") / "lake")
    with Lake.create(catalog.sqlalchemy_url, data_path=catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", ARROW)
        yield lake.table_snapshot("t").schema


def _text(value: object) -> str:
    """Return a value as a text; of a date the reference cuts a timestamp."""
    return str(value).removesuffix(" 00:00:00")


@given(rows=st.lists(_ROW, min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_we_compute_what_the_reference_computes(schema, rows):
    table = pa.Table.from_pylist(rows, schema=ARROW)
    with duckdb.connect() as connection:
        connection.register("t", table)
        for text in COMPUTED:
            how = computed(parse_expression(text), schema)
            assert how is not None, text
            try:
                ours = values_of(how, table).to_pylist()
            except NotComputableError:
                assert "er(s)" in text
                continue
            theirs = [value for (value,) in connection.execute(f"SELECT {text} FROM t").fetchall()]
            assert list(map(_text, ours)) == list(map(_text, theirs)), text


def test_what_cannot_be_computed_leaves_rows_in_the_order_of_the_keys_before_it(schema, caplog):
    rows = pa.Table.from_pylist(
        [{"id": 2, "s": "\u00e9"}, {"id": 1, "s": "b"}, {"id": 1, "s": "a"}], schema=ARROW
    )

    with caplog.at_level(logging.WARNING):
        found = sorted_rows(rows, [SortField("id"), SortField("lower(s)"), SortField("b")], schema, "main.t")

    assert found["s"].to_pylist() == ["b", "a", "\u00e9"]
    (record,) = caplog.records
    assert record.getMessage() == (
        "main.t is sorted by lower(s), which cannot be computed here: rows are sorted by the keys before it "
        "only"
    )


def test_far_dates_are_not_sorted_by_their_year(schema):
    with duckdb.connect() as connection:
        rows = connection.sql(
            "SELECT d::DATE AS d FROM (VALUES ('infinity'), ('2024-01-01')) v(d)"
        ).to_arrow_table()

    with pytest.raises(NotComputableError):
        values_of(computed(parse_expression("year(d)"), schema), rows)


def test_rows_of_arrow_are_written_in_the_order_of_the_references(catalog_file, tmp_path):
    theirs = file_catalog("sqlite", tmp_path / "theirs")
    keys = "length(s) DESC, id % 3 NULLS FIRST, id"
    query = (
        "SELECT CASE WHEN i % 11 > 0 THEN i END::INTEGER AS id, repeat('x', i % 4) AS s FROM range(50) r(i)"
    )
    with open_lake(theirs) as reference:
        reference.sql(f"CREATE TABLE t (id INTEGER, s VARCHAR); ALTER TABLE t SET SORTED BY ({keys})")
        reference.sql(f"INSERT INTO t {query}")
        expected = reference.sql("SELECT * FROM t")
        rows = reference.arrow(query)
    with Lake.create(catalog_file.sqlalchemy_url, data_path=catalog_file.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "s": "varchar"}, sort_by=keys.split(", "))
            tx.append_arrow("t", rows)
        assert [tuple(row.values()) for row in lake.read_arrow("t").to_pylist()] == expected


def test_a_key_of_the_reference_that_we_cannot_read_is_kept_and_renames_say_so(catalog_file):
    with open_lake(catalog_file) as reference:
        reference.sql(TABLE)
        reference.sql("ALTER TABLE t SET SORTED BY (s COLLATE NOCASE, id & 3)")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        with pytest.raises(DuckLakeError, match="rename it with DuckDB"), lake.transaction() as tx:
            tx.rename_column("t", "s", "z")
        with lake.transaction() as tx:
            tx.rename_column("t", "x", "y")
        assert [key.expression for key in lake.table_snapshot("t").sort_spec.fields] == [
            "s COLLATE NOCASE",
            "(id & 3)",
        ]
