"""Inlined rows find their columns however a database spells their names."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.dialects.postgres import PostgresDialect
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import KEYWORDS
from tests.interop.lakes import alone
from tests.reference.duckdb_lake import open_lake


def test_names_with_capitals_and_keywords(catalog):
    columns = dict.fromkeys(("Total", "Value", 'odd "Name"', "50%", "%(x)s %%"), "int32")
    one = pa.table({name: pa.array([number], pa.int32()) for number, name in enumerate(columns)})
    nothing = pa.table({name: pa.nulls(1, pa.int32()) for name in columns})
    many = pa.concat_tables([one] * 20)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", columns)
        for rows in (nothing, one, many):
            lake.append_arrow("t", rows)
        assert lake.read_arrow("t").num_rows == 22

    with open_lake(catalog) as duck:
        duck.sql("INSERT INTO t VALUES (7, 8, 9, 10, 11)")
        assert duck.sql('SELECT count(*), max("Total"), max("Value"), min("odd ""Name""") FROM t') == [
            (23, 7, 8, 2)
        ]
        assert duck.sql('SELECT min("50%"), min("%(x)s %%") FROM t') == [(3, 4)]


# What SQLite keeps and DuckDB does not, and what SQLAlchemy takes for free.
OTHERS = {"autoincrement", "nothing", "returning", "indexed", "notnull", "isnull", "glob"}


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.capitalize])
def test_any_keyword_names_a_column(catalog, spelled):
    kept = {"row_id", "begin_snapshot", "end_snapshot"} | PostgresDialect.inlined_form.kept_names
    names = [spelled(word) for word in sorted((KEYWORDS | OTHERS) - kept)]
    rows = pa.table({name: pa.array([place], pa.int32()) for place, name in enumerate(names)})
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", dict.fromkeys(names, "int32"))
        lake.append_arrow("t", rows)
        assert lake.files("t") == []
        assert lake.read_arrow("t").equals(rows)
    with open_lake(catalog) as duck:
        assert duck.sql("FROM t") == [tuple(range(len(names)))]
        duck.sql("INSERT INTO t FROM t")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").equals(pa.concat_tables([rows, rows]))
