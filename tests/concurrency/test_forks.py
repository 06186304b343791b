"""A process that was forked from one with an open lake."""

import os

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_parent_and_child_go_on_with_connections_of_their_own(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        child = os.fork()
        if child == 0:
            for number in range(5):
                lake.append_arrow("t", pa.table({"i": [number]}))
            os._exit(0)
        for number in range(5):
            lake.append_arrow("t", pa.table({"i": [10 + number]}))

        assert os.waitpid(child, 0)[1] == 0
        rows = sorted(lake.read_arrow("t")["i"].to_pylist())
        assert rows == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(DISTINCT rowid) FROM t") == [(10,)]
