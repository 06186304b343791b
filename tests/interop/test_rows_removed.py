"""A commit says how many rows it removed: as many as DuckDB counts less, however they lay."""

import random

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet, DropTable, Truncate
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

WALKS, STEPS = 2, 14


def _commit(lake, *changes):
    committed = lake.committer.commit_change_sets(
        (ChangeSet(lake.current_snapshot().id, changes),), CommitInfo("test")
    )
    return None if committed is None else committed.removed


@pytest.mark.parametrize("number", range(WALKS))
def test_a_drawn_history_of_inserts_deletes_and_overwrites_is_counted_exactly(catalog, request, number):
    draw = random.Random(f"{request.config.getoption('--seed')} {number}")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        for _ in range(STEPS):
            _step(lake, catalog, draw)


def _step(lake, catalog, draw):
    if ("main", "t") not in {(str(one.schema), one.name) for one in lake.tables()}:
        alone(lake).create_table("t", {"i": "int64", "k": "int64"}, partition_by=draw.choice([(), ("k",)]))
    table = lake.table_snapshot("t")
    low, size = draw.randrange(100), draw.choice([1, 4, 60])
    match draw.choice(
        ["duck", "duck", "arrow", "arrow", "drop", "truncate", "where", "where", "rows", "rows"]
    ):
        case "duck":
            statement = draw.choice(
                [
                    f"INSERT INTO t SELECT i, i % 3 FROM range({low}, {low + size}) r(i)",
                    f"DELETE FROM t WHERE i BETWEEN {low} AND {low + size}",
                    f"UPDATE t SET k = k + 1 WHERE i = {low}",
                    "CALL ducklake_flush_inlined_data('lake')",
                ]
            )
            by_duckdb(catalog, statement)
        case "arrow":
            with lake.transaction() as tx:
                tx.append_arrow("t", pa.table({"i": range(low, low + size), "k": [draw.randrange(3)] * size}))
        case "truncate":
            _counted(lake, catalog, lambda: _commit(lake, Truncate(table.table_id, table.name)))
        case "drop":
            dropped = DropTable(table.table_id, table.name, is_replaced=True)
            _counted(lake, catalog, lambda: _commit(lake, dropped))
        case "where":
            where = f"i BETWEEN {low} AND {low + size}"
            _counted(lake, catalog, lambda: _commit(lake, *lake.writes.replacing_where(table, where)))
        case "rows":
            _counted(lake, catalog, lambda: _deleted(lake, f"i >= {low} AND i < {low + size}"))


def _deleted(lake, condition):
    with lake.transaction() as tx:
        tx.delete_rows("t", condition)
    return None if tx.committed is None else tx.committed.removed


def _counted(lake, catalog, remove):
    table_id, before = lake.table_snapshot("t").table_id, _count(catalog)
    removed = remove()
    assert (removed or {}).get(table_id, 0) == before - _count(catalog)


def _count(catalog):
    with open_lake(catalog) as duck:
        tables = {name for (name,) in duck.sql("SELECT table_name FROM ducklake_table_info('lake')")}
        return duck.sql("SELECT count(*) FROM t")[0][0] if "t" in tables else 0
