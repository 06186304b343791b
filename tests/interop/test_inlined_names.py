"""Inlined rows find their columns however a database spells their names."""

import pyarrow as pa

from airflow_provider_ducklake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake


def test_names_with_capitals_and_keywords(catalog):
    columns = dict.fromkeys(("Total", "Value", 'odd "Name"', "50%", "%(x)s %%"), "int32")
    one = pa.table({name: pa.array([number], pa.int32()) for number, name in enumerate(columns)})
    nothing = pa.table({name: pa.nulls(1, pa.int32()) for name in columns})
    many = pa.concat_tables([one] * 20)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", columns)
        for rows in (nothing, one, many):
            lake.append_arrow("t", rows)
        assert lake.read_arrow("t").num_rows == 22

    with open_lake(catalog) as duck:
        duck.sql("INSERT INTO t VALUES (7, 8, 9, 10, 11)")
        assert duck.sql('SELECT count(*), max("Total"), max("Value"), min("odd ""Name""") FROM t') == [
            (23, 7, 8, 2)
        ]
        assert duck.sql('SELECT min("50%"), min("%(x)s %%") FROM t') == [(3, 4)]
