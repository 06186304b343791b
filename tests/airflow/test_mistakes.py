"""Mistakes that people make in DAGs: each with what the answer has to name, and the way out it has to show.

The lake of a mistake has the tables ``main.orders`` (id BIGINT, name VARCHAR, price DECIMAL(9, 2)) and
``main.feed`` (id BIGINT), its snapshot 1 has expired, and its connection is ``ducklake_default``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import new_dag, run_next_try, start_run, sync_dag
from tests.airflow.spark_submit import LEAVES_PROCESS, SparkSubmit, files_below, recorded
from tests.airflow.test_failed_submits import RECORDS, REPLAY
from tests.interop.lakes import alone
from tests.reference.catalogs import file_catalog


@dataclass(frozen=True)
class Mistake:
    """``retried`` is whether the next try may do better; ``prepare`` is a method of the test's workshop."""

    name: str
    operator: type
    arguments: dict[str, Any]
    named: tuple[str, ...]
    way_out: str
    retried: bool = False
    prepare: str | None = None


def of(operator: type, **usual: Any) -> Callable[..., Mistake]:
    """Return what makes a mistake with an operator, whose usual arguments it has unless it gives others."""

    def mistake(name: str, /, *named: str, to: str, **given: Any) -> Mistake:
        fate = {key: given.pop(key) for key in ("retried", "prepare") if key in given}
        return Mistake(name, operator, usual | given, named, to, **fate)

    return mistake


insert = of(operators.DuckLakeSparkInsertOperator, table="orders", source="{data}/orders.parquet")
merge = of(operators.DuckLakeSparkMergeOperator, table="orders", source_table="feed", on=["id"])
sql = of(operators.DuckLakeSparkSQLOperator)
ddl = of(operators.DuckLakeDDLOperator)
delete = of(operators.DuckLakeSparkDeleteOperator, table="orders")
update = of(operators.DuckLakeSparkUpdateOperator, table="orders")
commit = of(operators.DuckLakeCommitOperator)
restore = of(operators.DuckLakeRestoreOperator, table="orders")
tag = of(operators.DuckLakeTagOperator)
export = of(operators.DuckLakeExportCatalogOperator)
sensor = of(DuckLakeSnapshotSensor, table="orders")


def jdbc(**options: Any) -> dict[str, Any]:
    return {"format": "jdbc", "options": {"dbtable": "t", **options}}


# Found when Airflow reads the DAG file: an import error.
IN_THE_DAG_FILE = [
    insert(
        "a password in a JDBC URL",
        "source",
        "'url'",
        to="conn_id",
        source=jdbc(url="jdbc:postgresql://h/d?user=u&password=x"),
    ),
    insert("a mode that there is not", "mode", "'upsert'", to="append", mode="upsert"),
    insert("two origins of rows", "source", "sql", to="exactly one", source="a.csv", sql="SELECT 1"),
    insert(
        "partition keys without create_table", "partition_by", to="create_table=True", partition_by=["id"]
    ),
    insert(
        "arguments by other names",
        "DuckLakeSparkInsertOperator has no argument path, partitions",
        to="Did you mean source, partition_by?",
        path="x",
        partitions=["id"],
    ),
    insert("an argument of the job", "application_args", to="cannot be given", application_args=["x"]),
    merge("staging a merge", "stage_only", "commits", to="Leave it out", insert_all=True, stage_only=True),
    sql(
        "staging Spark SQL",
        "stage_only",
        "commits",
        to="Leave it out",
        sql="INSERT INTO orders SELECT 1",
        stage_only=True,
    ),
    merge("a merge that does nothing", "when_", to="insert_all"),
    ddl("DDL without statements", "sql", to="create_lake=True"),
]

# Found by the task, nearly all before anything is submitted.
IN_A_TASK = [
    insert("a wrong table name", "main.oders", to="Did you mean main.orders?", table="oders"),
    insert("a wrong schema", "'sales'", to="Did you mean main.orders?", table="sales.orders"),
    insert("a name with the lake's", "a.b.c", "name of a lake", to="leave it out", table="a.b.c.d"),
    insert("no lake in the database", "no_lake.sqlite", to="create_lake=True", prepare="no_lake"),
    insert("no connection", "'nowhere'", to="Create it", ducklake_conn_id="nowhere"),
    insert(
        "a connection of another type",
        "'erp'",
        "'postgres'",
        to="type 'ducklake'",
        prepare="erp",
        ducklake_conn_id="erp",
    ),
    insert(
        "a file of the catalog by a relative path",
        "'lake.sqlite'",
        "relative",
        to="absolute path",
        prepare="relative",
    ),
    insert(
        "a database that does not answer",
        "127.0.0.1:1",
        to="Check that the database runs",
        retried=True,
        prepare="unreachable",
    ),
    insert(
        "a driver that is not installed",
        "pymysql",
        to="pip install 'pymysql>=1.1.1'",
        retried=True,
        prepare="no_driver",
    ),
    insert(
        "a data path that is not the lake's", "'/elsewhere/'", to="clear the field", prepare="other_data_path"
    ),
    insert(
        "a data path that cannot be written",
        "{data}/files/",
        to="Check the path, and your permissions",
        retried=True,
        prepare="unwritable",
    ),
    insert(
        "no Spark connection",
        "Spark connection 'spark_nowhere' does not exist",
        to="Create it",
        spark_conn_id="spark_nowhere",
    ),
    insert(
        "no spark-submit",
        "spark-submit was not found",
        to="Install pyspark",
        retried=True,
        prepare="no_spark_submit",
    ),
    insert(
        "a source that is not there",
        "source",
        "gone.csv",
        to="retries wait",
        retried=True,
        source="{data}/gone.csv",
    ),
    insert("a source that is rendered to None", "source is", to="returned a path", source="{{ none }}"),
    insert(
        "no Java",
        "Java",
        "JAVA_HOME",
        "bin/java: No such file",
        to="Install Java 17",
        retried=True,
        prepare="no_java",
    ),
    insert(
        "a master that does not answer",
        "No Spark master answers",
        to="Spark says",
        retried=True,
        prepare="no_master",
    ),
    insert(
        "cluster mode without a cluster",
        "'cluster'",
        to="Python jobs in client mode only. Set deploy_mode='client'",
        deploy_mode="cluster",
    ),
    insert(
        "rows of other columns",
        "main.orders",
        "id",
        "note",
        to="schema_evolution",
        source="{data}/others.parquet",
    ),
    insert(
        "a key that a source does not have",
        "source",
        "header",
        to="options",
        source={"path": "a.csv", "header": True},
    ),
    insert(
        "a format that Spark is not given",
        "'xlsx'",
        to="transform",
        source={"path": "a.xlsx", "format": "xlsx"},
    ),
    insert(
        "a database's connection that does not exist",
        "'nowhere'",
        to="Create it",
        source={"format": "jdbc", "conn_id": "nowhere"},
    ),
    insert("a function without a module", "'clean'", to="module:function", source=None, transform="clean"),
    sql(
        "MERGE INTO as Spark SQL",
        "MERGE",
        to="DuckLakeSparkMergeOperator",
        sql="MERGE INTO orders USING feed ON orders.id = feed.id WHEN MATCHED THEN DELETE",
    ),
    sql(
        "a typo in Spark SQL",
        "Statement 1, line 1",
        "near 'feed'",
        to="correct it there",
        sql="INSERT INTO orders SELECT id FORM feed)",
    ),
    sql(
        "a query of a table that is not there",
        "fed",
        to="Check the name",
        sql="INSERT INTO orders SELECT * FROM fed",
    ),
    sql(
        "a query of a snapshot to come",
        "999",
        to="the lake holds snapshots",
        sql="INSERT INTO orders SELECT * FROM feed",
        at="999",
    ),
    sql(
        "a time without a zone",
        "2026-01-01T00:00:00",
        to="Add one",
        sql="INSERT INTO orders SELECT * FROM feed",
        at="2026-01-01 00:00:00",
    ),
    delete(
        "a text without quotes",
        "'name = Bern'",
        "Column 'Bern'",
        to="Correct the name; put strings in single quotes",
        where="name = Bern",
    ),
    delete(
        "a syntax error in a condition",
        "where: 'id = = 1' cannot be run",
        "Syntax error at or near '='",
        to="Correct it. Spark says",
        where="id = = 1",
    ),
    update(
        "an update of a column that is not there",
        "prize",
        "main.orders",
        to="its columns are",
        set={"prize": "1"},
        where="id = 1",
    ),
    merge(
        "a merge on a column that is not there",
        "key",
        "main.orders",
        to="its columns are",
        on=["key"],
        insert_all=True,
    ),
    merge(
        "a merge with a table that is not there",
        "main.fed",
        to="Check the name",
        source_table="fed",
        insert_all=True,
    ),
    ddl(
        "a typo in DDL",
        "Statement 2, line 2",
        "TABEL",
        to="Nothing was run",
        sql="CREATE TABLE t (a INT);\nCREATE TABEL u (a INT)",
    ),
    ddl(
        "a column that is there already",
        "name",
        to="Choose another name",
        sql="ALTER TABLE orders ADD COLUMN name VARCHAR",
    ),
    commit("a commit of nothing", "staged", to="stage_only=True", staged=[]),
    commit(
        "a commit of what was not staged",
        "orders.parquet",
        to="stage_only=True",
        staged="{data}/orders.parquet",
    ),
    restore("restoring a snapshot that never was", "999", to="the lake holds snapshots", at=999),
    restore("restoring a snapshot that has expired", "1", to="may have expired", at=1),
    of(operators.DuckLakeExpireSnapshotsOperator)(
        "forgetting what is young", "older_than", to="min_retention", older_than="1 hour"
    ),
    restore(
        "a tag that there is not",
        "'q3-close'",
        to="tag a snapshot with DuckLakeTagOperator",
        at="tag:q3-close",
    ),
    tag("a tag that is written twice", "'tag:q3-close'", to="leave out 'tag:'", name="tag:q3-close"),
    tag("tagging what has expired", "snapshot 1", to="the lake holds snapshots", name="q3-close", at=1),
    export(
        "a frozen lake in the working directory",
        "'q3.ducklake'",
        to="give an absolute path or a URI",
        path="q3.ducklake",
    ),
    export(
        "a frozen lake where a file is",
        "orders.parquet",
        to="remove that one: it is not a frozen lake's catalog",
        path="{data}/orders.parquet",
    ),
    of(operators.DuckLakeTableHealthOperator)(
        "a bound of a number that there is not", "'size'", to="choose from", fail_above={"size": 1}
    ),
    of(operators.DuckLakeAddFilesOperator)(
        "files that are not there",
        "gone.parquet",
        to="Check the path",
        retried=True,
        table="orders",
        paths="{data}/gone.parquet",
    ),
    of(operators.DuckLakeAddTableOperator)(
        "a table of another format that is not there",
        "gone",
        to="Correct the path",
        retried=True,
        table="orders",
        source="{data}/gone",
        format="delta",
    ),
    sensor("a sensor of a bad name", "a..d", to="Quote parts", table="a..d"),
    sensor("a sensor of changes that there are not", "merge", to="insert", changes=("merge",)),
]


pytestmark = [LEAVES_PROCESS, pytest.mark.usefixtures("airflow_db")]


class Workshop:
    """A lake, its connections, and the ways in which they can be wrong."""

    def __init__(self, folder: Path, set_connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = folder
        self._set = set_connection
        self._patch = monkeypatch
        self.catalog = file_catalog("sqlite", folder / "lake")
        self._make_lake()
        self.fields = connection_fields(self.catalog)
        self._set(**self.fields)
        self._set("spark_default", conn_type="spark", host="local[1]")
        self.submit = recorded(folder / "bin", monkeypatch)

    def _make_lake(self) -> None:
        pq.write_table(pa.table({"id": [1]}), self.data / "orders.parquet")
        pq.write_table(pa.table({"id": ["one"], "note": ["x"]}), self.data / "others.parquet")
        with Lake.create(self.catalog.sqlalchemy_url, self.catalog.data_path) as lake:
            alone(lake).create_table("orders", {"id": "int64", "name": "varchar", "price": "decimal(9,2)"})
            alone(lake).create_table("feed", {"id": "int64"})
            lake.set_option("data_inlining_row_limit", 0)
            lake.append_arrow(
                "orders", pa.table({"id": [1], "name": ["Bern"], "price": pa.array([1], pa.decimal128(9, 2))})
            )
            lake.expire_snapshots(snapshots=[1])

    def _settings(self, **fields: Any) -> None:
        self._set(**self.fields | fields)

    def no_lake(self) -> None:
        self._settings(schema=str(self.data / "no_lake.sqlite"))

    def erp(self) -> None:
        self._set("erp", conn_type="postgres", host="erp", extra={"sslmode": "require"})

    def relative(self) -> None:
        self._settings(schema="lake.sqlite")

    def unreachable(self) -> None:
        self._settings(host="127.0.0.1", port=1, schema="lakehouse", extra={"catalog_type": "postgres"})

    def no_driver(self) -> None:
        self._settings(host="db", schema="lakehouse", extra={"catalog_type": "mysql"})
        self._patch.setitem(sys.modules, "pymysql", None)

    def other_data_path(self) -> None:
        self._settings(extra={"catalog_type": "sqlite", "data_path": "/elsewhere/"})

    def unwritable(self) -> None:
        catalog = file_catalog("sqlite", self.data / "other")
        (self.data / "files").write_text("a file where the directory should be")
        with Lake.create(catalog.sqlalchemy_url, f"{self.data}/files/") as lake, lake.transaction() as tx:
            tx.create_table("orders", {"id": "int64"})
        self._set(**connection_fields(catalog))

    def no_java(self) -> None:
        self._patch.setenv("JAVA_HOME", str(self.data))

    def no_master(self) -> None:
        SparkSubmit(
            self.data / "replay", [sys.executable, "-c", REPLAY, str(RECORDS / "no_master.txt")], self._patch
        )

    def no_spark_submit(self) -> None:
        self._patch.setenv("PATH", str(self.data))


@pytest.fixture
def workshop(tmp_path, set_connection, monkeypatch) -> Workshop:
    return Workshop(tmp_path, set_connection, monkeypatch)


def by_name(mistake: Mistake) -> str:
    return mistake.name.replace(" ", "_")


def filled_in(value: Any, data: Path) -> Any:
    return value.replace("{data}", str(data)) if isinstance(value, str) else value


def check(mistake: Mistake, answer: str, data: Path, record_property: Any) -> None:
    sentence = " ".join(answer.split())
    record_property("mistake", mistake.name)
    record_property("answer", sentence.replace(str(data), "…"))
    for part in (*mistake.named, mistake.way_out):
        assert filled_in(part, data) in sentence, sentence
    assert "Traceback" not in answer
    assert sentence.endswith((".", "'", ")", "?")) or "Spark says" in sentence, sentence
    assert len(sentence) < 700


@pytest.mark.parametrize("mistake", IN_THE_DAG_FILE, ids=by_name)
def test_a_mistake_in_the_dag_file_is_an_import_error_with_the_way_out(mistake, tmp_path, record_property):
    with pytest.raises(DuckLakeError) as raised:
        mistake.operator(task_id="mistake", **mistake.arguments)

    check(mistake, str(raised.value), tmp_path, record_property)


# Spark has to start for these to be found; of a warm one test_spark_connect.py asks the same.
FOUND_BY_SPARK = ("rows of other columns", "a syntax error in a condition")


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(one, marks=[pytest.mark.submits] * (one.name in FOUND_BY_SPARK)) for one in IN_A_TASK],
    ids=by_name,
)
def test_a_mistake_of_a_task_is_answered_with_the_way_out(mistake, workshop, record_property):
    answers: list[BaseException] = []
    arguments = {name: filled_in(value, workshop.data) for name, value in mistake.arguments.items()}
    with new_dag(
        f"mistake_{IN_A_TASK.index(mistake)}",
        default_args={
            "retries": 2,
            "retry_delay": timedelta(0),
            "on_failure_callback": lambda context: answers.append(context["exception"]),
            "on_retry_callback": lambda context: answers.append(context["exception"]),
        },
    ) as dag:
        task = mistake.operator(task_id="mistake", **arguments)
    sync_dag(dag)
    run = start_run(dag)
    if mistake.prepare is not None:
        getattr(workshop, mistake.prepare)()

    before = files_below(workshop.catalog)

    state = run_next_try(run, task)

    assert files_below(workshop.catalog) == before
    assert state == ("up_for_retry" if mistake.retried else "failed"), answers
    assert bool(workshop.submit.calls) == (mistake.name in ("no Java", *FOUND_BY_SPARK))
    (answer,) = answers
    check(mistake, str(answer), workshop.data, record_property)
