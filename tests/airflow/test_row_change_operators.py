"""The operators that delete, update and merge rows: the example by real Spark jobs, and what needs no job."""

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.task import CommitIdentity
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.spark.job.request import Action, Clause, RowChangeSource
from airflow_provider_ducklake.lake.writes.verb import Commit
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
from tests.airflow.dags import (
    UnluckyCommits,
    clear,
    context_of,
    dies_before_commit,
    loses_the_answer,
    make_task,
    parse,
    run_next_try,
    start_run,
    succeeded,
    tried,
    xcom,
)
from tests.airflow.spark_submit import LEAVES_PROCESS, ROOT, SparkSubmit, recorded, stand_in
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

EXAMPLE = ROOT / "example_dags" / "example_ducklake_row_changes.py"
OPERATORS = (DuckLakeSparkDeleteOperator, DuckLakeSparkUpdateOperator, DuckLakeSparkMergeOperator)


@pytest.fixture
def submit(connect, set_connection, sqlite_catalog, tmp_path, monkeypatch) -> Iterator[SparkSubmit]:
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    yield recorded(tmp_path / "bin", monkeypatch)
    gc.collect()


@pytest.mark.usefixtures("airflow_db", "submit")
def test_the_example_changes_what_it_says(sqlite_catalog: CatalogDatabase, on_server):
    run = succeeded(on_server(parse(EXAMPLE)))

    with open_lake(sqlite_catalog) as lake:
        assert lake.sql("FROM customers ORDER BY id") == [
            (1, "a", "BERN"),
            (2, "B", "BERLIN"),
            (4, "d", "BERN"),
            (5, "e", "BASEL"),
            (8, "H", "Hamburg"),
        ]
        head = lake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]
        counts = ("rows_deleted", "rows_updated", "rows_added", "snapshot_id", "read_snapshot_id")
        assert [
            tuple(xcom(run, task)[count] for count in counts) for task in ("merge", "update", "forget")
        ] == [(1, 1, 1, head - 2, head - 3), (0, 4, 0, head - 1, head - 2), (1, 0, 0, head, head - 1)]
        changed = lake.sql(
            "SELECT change_type FROM "
            f"ducklake_table_changes('lake', 'main', 'customers', {head - 1}, {head - 1})"
        )
        assert sorted(changed) == [("update_postimage",)] * 4 + [("update_preimage",)] * 4
        tables = ("ducklake_data_file", "ducklake_delete_file")
        named = {
            Path(path).name
            for table in tables
            for (path,) in lake.sql(f"SELECT path FROM __ducklake_metadata_lake.{table}")
        }
    assert {path.name for path in Path(sqlite_catalog.data_path).rglob("*") if path.is_file()} == named


# --- what may happen around a commit; DuckDB takes Spark's place


class Unlucky(UnluckyCommits, DuckLakeSparkDeleteOperator):
    events: ClassVar[list[Callable[[Lake], Any]]] = []


def deleting(where: str) -> Unlucky:
    return make_task(Unlucky, "rows", task_id="rows", table="t", where=where)


@pytest.fixture
def others(connect, set_connection, sqlite_catalog, tmp_path, monkeypatch) -> Iterator[SparkSubmit]:
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    yield stand_in(tmp_path / "bin", monkeypatch)
    Unlucky.events.clear()
    gc.collect()


def files_of(lake: Lake) -> set[str]:
    return {path.name for path in Path(lake.table_snapshot("t").root).rglob("*") if path.is_file()}


@LEAVES_PROCESS
@pytest.mark.usefixtures("airflow_db", "others")
def test_a_change_is_made_once_and_again_when_the_task_is_cleared(lake):
    before = lake.current_snapshot().id
    Unlucky.events[:] = [dies_before_commit, loses_the_answer]
    task = deleting("id % 10 = 3")
    run = start_run(task.dag)

    states = [run_next_try(run, task) for _ in range(3)]

    assert states == ["up_for_retry", "up_for_retry", "success"]
    assert lake.current_snapshot().id == before + 1
    assert xcom(run, "rows")["already_committed"] is True
    assert xcom(run, "rows")["snapshot_id"] == before + 1
    assert lake.row_count("t") == 270
    with lake.transaction() as tx:
        more = lake.read_arrow("t", filter="id < 20")
        tx.append_arrow("t", more.set_column(0, "id", pa.array([13] * more.num_rows)))

    clear(run, "rows")

    assert run_next_try(run, task) == "success"
    assert xcom(run, "rows")["rows_deleted"] == 18
    assert (xcom(run, "rows")["snapshot_id"], lake.row_count("t")) == (before + 3, 270)


@LEAVES_PROCESS
@pytest.mark.usefixtures("airflow_db")
def test_a_delete_in_between_is_a_conflict_that_leaves_nothing_behind(lake, others, sqlite_catalog):
    files = files_of(lake)
    others.meanwhile(
        "from airflow_provider_ducklake.lake.catalog.lake import Lake\n"
        f"with Lake.connect({sqlite_catalog.sqlalchemy_url!r}) as lake, lake.transaction() as tx:\n"
        "    tx.delete_rows('t', 'id = 4')"
    )
    task = deleting("id < 50")
    run = tried(task, "up_for_retry")
    assert lake.row_count("t") == 299
    assert {name for name in files_of(lake) - files if not name.startswith("ducklake-")} == set()
    others.meanwhile("")
    assert run_next_try(run, task) == "success"
    assert (xcom(run, "rows")["rows_deleted"], lake.row_count("t")) == (49, 250)


# --- what is decided before any job


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (id BIGINT, day DATE, name VARCHAR, s STRUCT(a INT))")
        for first in (0, 100, 200):
            duck.sql(
                f"INSERT INTO t SELECT i, DATE '2024-01-01' + (i // 100)::INT, 'n' || i, {{'a': i}} "
                f"FROM range({first}, {first + 100}) r(i)"
            )
        duck.sql("CREATE TABLE empty (id BIGINT)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


# what `planned` makes a task of
RowChangeOperator = type[
    DuckLakeSparkDeleteOperator | DuckLakeSparkUpdateOperator | DuckLakeSparkMergeOperator
]


def planned(lake: Lake, class_: RowChangeOperator, **arguments: Any) -> RowChangeSource | None:
    """Return what a job would be asked."""
    with DAG("rows", schedule=None):
        task = class_(task_id="rows", **{"table": "t", **arguments})
    identity = CommitIdentity(CommitKey(("rows",)), starts_over=False, extra={})
    request = task.verb(identity).plan(lake, Commit(CommitInfo()), lambda source: source).request
    if request is None:
        return None
    assert isinstance(request.source, RowChangeSource)
    return request.source


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("id < 150 AND upper(name) LIKE '%9'", 2),
        ("target.day = '2024-01-02'", 1),
        ("day = DATE '2024-01-02' AND id > 250", 0),
        ("id = '5' OR name = \"n5\"", 3),
        ("s.a BETWEEN 20 AND 30", 1),
    ],
)
def test_files_are_left_out_by_what_spark_and_we_read_alike(lake, where, files):
    found = planned(lake, DuckLakeSparkDeleteOperator, where=where)

    assert (0 if found is None else len(found.target.files)) == files
    if found is not None:
        assert found.target.where is None
        assert found.not_matched_by_source == (Clause(Action.DELETE, where, values_see_target=False),)


def test_nothing_that_can_be_hit_needs_no_job(lake):
    assert planned(lake, DuckLakeSparkDeleteOperator, where="id > 300") is None
    assert planned(lake, DuckLakeSparkUpdateOperator, table="empty", set={"id": "1"}, where="true") is None
    merge = {"source": "/in/s.parquet", "on": ["id"], "table": "empty"}
    assert planned(lake, DuckLakeSparkMergeOperator, update_all=True, **merge) is None
    assert planned(lake, DuckLakeSparkMergeOperator, insert_all=True, **merge) is not None


def test_what_a_merge_asks_for(lake):
    found = planned(
        lake,
        DuckLakeSparkMergeOperator,
        source_table="empty",
        on=["id"],
        when_matched=[{"condition": "target.id > 3", "delete": "True"}, {"update": {"s.a": "5"}}],
        insert_all=True,
        target_alias="old",
    )

    assert found is not None
    assert found.on == "`old`.`id` = `source`.`id`"
    assert found.matched == (
        Clause(Action.DELETE, "target.id > 3", values_see_target=False),
        Clause(Action.UPDATE, None, {"s.a": "5"}, values_see_target=False),
    )
    assert found.not_matched == (Clause(Action.INSERT, None, None, values_see_target=False),)
    assert {len(file.column_stats) for file in found.target.files} == {1}
    assert found.source is not None
    (view,) = found.source.tables
    assert [one.query for one in found.source.steps] == [f"SELECT * FROM `{view}`"]


@pytest.mark.parametrize(
    ("class_", "arguments", "message"),
    [
        (DuckLakeSparkDeleteOperator, {"where": " "}, "Give a condition"),
        (
            DuckLakeSparkUpdateOperator,
            {"set": {"id": "1"}, "where": None},
            "to update all rows, give where='true'",
        ),
        (DuckLakeSparkUpdateOperator, {"set": {}, "where": "true"}, "for each column"),
        (DuckLakeSparkUpdateOperator, {"set": {"id": 5}, "where": "true"}, "for each column"),
        (
            DuckLakeSparkUpdateOperator,
            {"set": {"id": "5"}, "where": "true", "stage_only": True},
            "commits its changes itself",
        ),
        (DuckLakeSparkMergeOperator, {"on": "a", "update_all": True}, "exactly one of source"),
        (DuckLakeSparkMergeOperator, {"on": "a", "source": "x"}, "There is nothing to do"),
        (DuckLakeSparkMergeOperator, {"on": [], "source": "x", "update_all": True}, "on is empty"),
        (
            DuckLakeSparkMergeOperator,
            {"on": "a", "source": "x", "update_all": True, "source_alias": "Target"},
            "two different names",
        ),
        *(
            (DuckLakeSparkMergeOperator, {"on": "a", "source": "x", **clauses}, message)
            for clauses, message in (
                ({"update_all": True, "when_matched": [{"delete": True}]}, "one of each"),
                ({"when_matched": [{"delete": True}, {"update": "*"}]}, "would never apply"),
                ({"when_matched": [{"delete": True, "update": "*"}]}, "exactly one of"),
                ({"when_matched": [{"insert": "*"}]}, "a clause is a dict"),
                ({"when_matched": [{"delete": False}]}, "Leave the clause out"),
                ({"when_matched": [{"condition": True, "delete": True}]}, "not a string"),
                ({"when_matched": "update"}, "give a list"),
                ({"when_not_matched": [{"delete": True}]}, "a clause is a dict"),
                ({"when_not_matched_by_source": [{"update": "*"}]}, "name the columns"),
            )
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_job(lake, class_, arguments, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        planned(lake, class_, **arguments)


@pytest.mark.parametrize("class_", OPERATORS)
def test_each_argument_is_explained_and_what_a_run_may_want_is_templated(class_):
    of_parents = DuckLakeSparkOperator.__doc__
    own = set(class_.__init__.__wrapped__.__kwdefaults__ or {}) | set(
        class_.__init__.__wrapped__.__annotations__
    )
    own -= {"kwargs", "return"}

    assert own <= set(re.findall(r":param (\w+):", class_.__doc__ + of_parents))
    for argument in re.findall(r":param (\w+):(?:[^:]|:(?!param))*?\(templated", class_.__doc__):
        assert argument in class_.template_fields


def test_the_example_of_the_guide_is_a_dag_file(tmp_path):
    page = (ROOT / "docs" / "row_changes.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "example.py").write_text(code)

    types = [task.task_type for task in parse(tmp_path / "example.py").tasks]
    assert sorted(types) == sorted(class_.__name__ for class_ in OPERATORS)


MERGED = {"sql": "SELECT 1 AS id", "update_all": True}


@pytest.mark.parametrize(
    ("class_", "arguments", "of"),
    [
        (DuckLakeSparkDeleteOperator, {"where": "id = 1 AND nosuch > 3"}, " of '.*'"),
        (DuckLakeSparkUpdateOperator, {"set": {"id": "id + nosuch"}, "where": "true"}, " of '.*'"),
        (DuckLakeSparkUpdateOperator, {"set": {"id": "1"}, "where": "target.nosuch"}, " of '.*'"),
        (DuckLakeSparkMergeOperator, {"on": "target.nosuch = source.id", **MERGED}, " of '.*'"),
        (DuckLakeSparkMergeOperator, {"on": ["nosuch"], **MERGED}, ""),
    ],
)
def test_a_column_that_does_not_exist_is_found_before_spark_starts(
    sqlite_catalog, submit, class_, arguments, of
):
    by_duckdb(sqlite_catalog, "CREATE TABLE orders AS SELECT 1 AS id", data_inlining_row_limit=0)
    task = class_(task_id="change", table="main.orders", **arguments)

    with pytest.raises(
        AirflowFailException, match=f"Column 'nosuch'{of} is not in main.orders; its columns are: id"
    ):
        task.execute(context_of("change"))

    assert submit.calls == []
