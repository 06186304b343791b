"""Sort keys that are expressions: the reference's rows, its values, and its rules for the columns in them."""

import logging
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, DuckLakeError, InvalidInputError
from airflow_provider_ducklake.lake.format.sorting import FUNCTIONS
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


@pytest.mark.parametrize("rows", [[(2, "b"), (1, "c"), (1, "a")]])
@pytest.mark.parametrize(
    ("keys", "order"),
    [
        (["lower(s)", "id"], [(2, "b"), (1, "c"), (1, "a")]),
        (["id", "length(s)", "s"], [(1, "c"), (1, "a"), (2, "b")]),
        (["id", "s"], [(1, "a"), (1, "c"), (2, "b")]),
    ],
)
def test_an_expression_is_kept_and_sorts_no_rows_of_ours(catalog_file, caplog, rows, keys, order):
    with Lake.create(catalog_file.sqlalchemy_url, data_path=catalog_file.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "s": "varchar"}, sort_by=keys)
        given = pa.table({"id": pa.array([id_ for id_, _ in rows], pa.int32()), "s": [s for _, s in rows]})
        with caplog.at_level(logging.WARNING):
            lake.append_arrow("t", given)
        assert [key.expression for key in lake.table_snapshot("t").sort_spec.fields] == keys
        assert [tuple(row.values()) for row in lake.read_arrow("t").to_pylist()] == order
    expression = next((key for key in keys if "(" in key), None)
    said = f"main.t: files are not sorted by {expression}, by which only DuckDB sorts, nor by keys after it"
    assert [record.getMessage() for record in caplog.records] == ([] if expression is None else [said])
    with open_lake(catalog_file, data_inlining_row_limit=0) as reference:
        reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
        reference.sql("INSERT INTO t VALUES (0, 'zz'), (0, 'y')")
        assert sorted(reference.sql("FROM t")) == sorted([*rows, (0, "zz"), (0, "y")])


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
