"""The operator on lakes of the reference client, which also judges what is left."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.flush_inlined_data import DuckLakeFlushInlinedDataOperator
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

TASK_INSTANCE = SimpleNamespace(
    dag_id="nightly",
    run_id="r",
    task_id="flush",
    map_index=-1,
    try_number=1,
    max_tries=0,
    log_url="",
    id="",
)


@pytest.fixture
def lake(catalog: CatalogDatabase, connect) -> CatalogDatabase:
    connect(catalog)
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i FROM range(20) r(x)")
        reference.sql("INSERT INTO t VALUES (20), (21)")
        reference.sql("DELETE FROM t WHERE i IN (3, 21)")
        reference.sql("CREATE SCHEMA s; CREATE TABLE s.u AS SELECT 1 AS i")
    return catalog


def flush(**arguments: Any) -> dict[str, Any]:
    operator = DuckLakeFlushInlinedDataOperator(task_id="flush", **arguments)
    result = operator.execute({"ti": TASK_INSTANCE})
    assert json.loads(json.dumps(result)) == result
    return result


def test_what_was_flushed_is_said_and_a_second_try_finds_nothing_left(lake):
    result = flush(table="main.t")

    counts = {
        "rows_flushed": 2,
        "rows_ended": 1,
        "deletes_flushed": 1,
        "files_added": 1,
        "delete_files_added": 2,
    }
    assert {name: result[name] for name in counts} == counts
    assert {name: result["tables"]["main.t"][name] for name in counts} == counts
    assert not result["dry_run"]
    with Lake.connect(lake.sqlalchemy_url) as ours:
        newest = ours.snapshots()[-1]
        assert (newest.id, newest.author, newest.message) == (
            result["snapshot_id"],
            "airflow",
            "nightly.flush",
        )
        assert json.loads(newest.extra)["airflow"]["run_id"] == "r"
    with open_lake(lake) as reference:
        assert reference.sql("SELECT count(*), sum(i) FROM t") == [(20, 207)]
    again = flush(table="main.t")
    assert (again["snapshot_id"], again["rows_flushed"], again["tables"]) == (None, 0, {})


@pytest.mark.usefixtures("lake")
def test_templates_make_texts_of_arguments():
    planned = flush(table="", schema="s", min_rows="1", dry_run="True")

    assert (list(planned["tables"]), planned["rows_flushed"], planned["snapshot_id"]) == (["s.u"], 1, None)
    assert flush(min_rows=2)["tables"].keys() == {"main.t"}
    assert flush(message="all of it")["tables"].keys() == {"s.u"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_rows": "many"}, "min_rows is 'many'"),
        ({"dry_run": "maybe"}, "dry_run is 'maybe'"),
        ({"table": "main.t", "schema": "main"}, "not both"),
        ({"table": "main.nothing"}, "nothing"),
    ],
)
def test_what_no_retry_can_mend_fails_at_once(sqlite_catalog, connect, arguments, words):
    connect(sqlite_catalog)
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT 1 AS i")
    with pytest.raises(AirflowFailException, match=words):
        flush(**arguments)
