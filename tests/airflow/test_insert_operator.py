"""The insert operator around its job: connections, commits, failures. The job is a stand-in without Spark."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog.testing
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
from airflow_provider_ducklake.hooks.submit_settings import installation
from airflow_provider_ducklake.hooks.task import default_namespace
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.log_lines import size
from airflow_provider_ducklake.lake.storage.files import writing
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.operators.stream import DuckLakeSparkStreamOperator
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import (
    UnluckyCommits,
    context_of,
    mapped_xcoms,
    parse,
    rendered_fields,
    succeeded,
    xcom,
)
from tests.airflow.spark_submit import LEAVES_PROCESS, duckdb, files_below, stand_in
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase

CATALOG_PASSWORD, STORAGE_SECRET, JDBC_PASSWORD = "catalog-pa55", "storage-s3cret", "jdbc-pa55"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", None]})


pytestmark = [LEAVES_PROCESS, pytest.mark.usefixtures("submit", "spark_conn", "collected")]


def snapshot_count(catalog: CatalogDatabase) -> int:
    return duckdb(catalog, "SELECT count(*) FROM ducklake_snapshots('lake')")[0][0]


def elsewhere(catalog: CatalogDatabase, sql: str) -> str:
    """Python that runs SQL on the lake as another DuckDB would, in the process that executes it."""
    return f"""
from tests.reference.duckdb_lake import open_lake
with open_lake({catalog.attach_string!r}, {catalog.data_path!r}, data_inlining_row_limit=0) as lake:
    lake.sql({sql!r})
"""


@dataclass(frozen=True)
class TaskLog:
    """What was logged so far."""

    entries: Sequence[Mapping[str, Any]]

    def __call__(self) -> list[str]:
        return [_line(one) for one in self.entries]

    def levels(self, line: str) -> list[str]:
        return [one["log_level"] for one in self.entries if _line(one) == line]


def _line(entry: Mapping[str, Any]) -> str:
    return entry["event"] % entry.get("positional_args", ())


@pytest.fixture
def task_log() -> Iterator[TaskLog]:
    """What the operator logged, line by line."""
    with structlog.testing.capture_logs() as entries:
        yield TaskLog(entries)


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """A lake with the table orders (id INT, name VARCHAR), and a job that needs no Spark."""
    connect(sqlite_catalog)
    duckdb(sqlite_catalog, "CREATE TABLE orders (id INT, name VARCHAR)")
    return sqlite_catalog


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path)
    return str(path)


@pytest.fixture
def no_rows(tmp_path: Path) -> str:
    path = tmp_path / "no_rows.parquet"
    pq.write_table(ROWS.slice(0, 0), path)
    return str(path)


def insert(table: str = "main.orders", **arguments: Any) -> dict[str, Any]:
    result = DuckLakeSparkInsertOperator(task_id="insert", table=table, **arguments).execute(
        context_of("insert")
    )
    assert json.loads(json.dumps(result)) == result
    return result


# --- what is committed ---


def test_rows_go_into_a_table_as_one_snapshot(lake, rows):
    result = insert(source=rows)

    (file,) = files_below(lake)
    assert result == {
        "table": "main.orders",
        "snapshot_id": 2,
        "rows_added": 3,
        "files_added": 1,
        "bytes_added": file.stat().st_size,
        "rows_removed": 0,
        "columns_added": {},
        "columns_widened": {},
        "already_committed": False,
    }
    assert duckdb(lake, "FROM orders ORDER BY id") == [(1, "a"), (2, "b"), (3, None)]


def test_a_table_is_created_together_with_its_rows(lake, rows):
    result = insert("main.fresh", source=rows, create_table=True)

    assert result["snapshot_id"] == 2
    ((changes,),) = duckdb(lake, "SELECT changes FROM ducklake_snapshots('lake') WHERE snapshot_id = 2")
    assert set(changes) == {"tables_created", "tables_inserted_into"}
    assert duckdb(lake, "SELECT count(*), sum(id) FROM fresh") == [(3, 6)]


def test_no_rows_leave_no_file_no_folder_and_no_snapshot(lake, no_rows, task_log):
    result = insert(source=no_rows)

    assert (result["snapshot_id"], result["rows_added"], result["files_added"]) == (None, 0, 0)
    assert snapshot_count(lake) == 2
    assert list(Path(lake.data_path).rglob("ducklake-*")) == []
    assert "The source has no rows: main.orders is unchanged, no snapshot was made." in task_log()


def test_no_rows_still_create_a_table(lake, no_rows):
    result = insert("main.fresh", source=no_rows, create_table=True, partition_by="id")

    assert (result["snapshot_id"], result["files_added"]) == (2, 0)
    assert duckdb(lake, "FROM fresh") == []
    assert list(Path(lake.data_path).rglob("ducklake-*")) == []


@pytest.mark.usefixtures("lake")
def test_the_last_lines_of_the_log_have_the_numbers_the_seconds_and_a_query(rows, task_log):
    written = insert(source=rows)["bytes_added"]

    numbers, seconds, query = task_log()[-3:]
    assert numbers == f"Committed snapshot 2 to main.orders: 3 rows in 1 file ({size(written)})"
    part = r"[\d.]+ s"
    assert re.fullmatch(rf"Took {part}: plan {part}, Spark {part}, commit {part}", seconds)
    assert query == "In DuckDB: FROM lake.main.orders AT (VERSION => 2)"


# --- rows that are replaced ---


def test_all_rows_are_replaced_in_one_snapshot(lake, rows, no_rows):
    duckdb(lake, "INSERT INTO orders VALUES (9, 'z')")

    assert insert(source=rows, mode="overwrite")["snapshot_id"] == 3
    assert duckdb(lake, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]

    assert insert(source=no_rows, mode="overwrite")["snapshot_id"] == 4
    assert duckdb(lake, "FROM orders") == []


def test_rows_of_a_condition_are_replaced(lake, rows):
    duckdb(lake, "INSERT INTO orders VALUES (1, 'old'), (4, 'stays')")

    insert(source=rows, overwrite_where="id <= 3")

    assert duckdb(lake, "FROM orders ORDER BY id") == [(1, "a"), (2, "b"), (3, None), (4, "stays")]


OVERWRITES = [{"mode": "overwrite"}, {"overwrite_where": "id <= 3"}]


@pytest.mark.parametrize("choice", OVERWRITES)
def test_an_overwrite_says_how_many_rows_it_removed_and_warns_if_none_came(
    lake, rows, no_rows, choice, task_log
):
    duckdb(lake, "INSERT INTO orders VALUES (2, 'old'), (3, 'old')")

    replaced, emptied = insert(source=rows, **choice), insert(source=no_rows, **choice)

    assert (replaced["rows_removed"], emptied["rows_removed"]) == (2, 3)
    written = size(replaced["bytes_added"])
    lines = [one for one in task_log() if one.startswith("Committed")]
    assert lines == [
        f"Committed snapshot 3 to main.orders: replaced 2 rows by 3 rows in 1 file ({written})",
        "Committed snapshot 4 to main.orders: replaced 3 rows by 0",
    ]
    assert task_log.levels(lines[1]) == ["warning"]


@pytest.mark.parametrize("choice", [*OVERWRITES, {}, {"stage_only": True}])
def test_a_source_without_rows_skips_or_fails_the_task_that_asks_for_it(lake, rows, no_rows, choice):
    duckdb(lake, "INSERT INTO orders VALUES (2, 'old'), (3, 'old')")

    with pytest.raises(AirflowSkipException, match="No rows for main"):
        insert(source=no_rows, if_empty="skip", **choice)
    with pytest.raises(AirflowFailException, match="EmptySourceError: There are no rows for"):
        insert(source=no_rows, if_empty="fail", **choice)

    assert duckdb(lake, "FROM orders ORDER BY id") == [(2, "old"), (3, "old")]
    assert snapshot_count(lake) == 3
    assert len(files_below(lake)) == 1
    assert insert(source=rows, if_empty="fail", **choice)["table"] == "main.orders"


@pytest.mark.parametrize("choice", OVERWRITES)
def test_rows_that_others_add_meanwhile_are_a_conflict_and_never_lost(lake, rows, submit, choice):
    submit.meanwhile(elsewhere(lake, "INSERT INTO orders VALUES (2, 'z')"))

    with pytest.raises(errors.TransactionConflictError, match="added"):
        insert(source=rows, **choice)

    assert duckdb(lake, "FROM orders") == [(2, "z")]
    assert len(files_below(lake)) == 1


def test_a_table_to_be_overwritten_is_created_where_there_is_none(lake, rows, submit):
    assert insert("main.fresh", source=rows, mode="overwrite", create_table=True)["snapshot_id"] == 2

    submit.meanwhile(elsewhere(lake, "CREATE TABLE other (id INT, name VARCHAR)"))
    with pytest.raises(errors.TransactionConflictError):
        insert("main.other", source=rows, mode="overwrite", create_table=True)


REFUSED: dict[type[Exception], list[tuple[dict[str, Any], str]]] = {
    errors.InvalidInputError: [
        ({"mode": "replace"}, "mode is 'replace'; choose one of append, overwrite, overwrite_partitions"),
        ({"if_empty": "error"}, "if_empty is 'error'; choose one of replace, skip, fail"),
        ({"schema_evolution": "all"}, "choose one of strict, add_columns, add_and_widen"),
        ({"mode": "overwrite_partitions", "overwrite_where": "id = 1"}, "give one of them"),
        ({"mode": "overwrite", "stage_only": True}, "stage_only=True can only append"),
        ({"schema_evolution": "add_columns", "stage_only": True}, "stage_only=True can only append"),
    ],
    AirflowFailException: [
        ({"mode": "overwrite_partitions"}, "main.orders is not partitioned"),
        ({"table": "main.absent"}, "Table main.absent does not exist at snapshot 1. .*create_table=True"),
        ({"table": "nowhere.orders"}, "Schema 'nowhere' does not exist"),
        ({"table": "a.b.c"}, "Schema 'a.b' does not exist"),
        ({"table": "a..c"}, "Cannot read 'a..c' as a name"),
        ({"source": {"format": "avro", "path": "x"}}, "'avro' is not one of"),
        ({"source": ["a.csv", "b.csv"]}, r"a path or a mapping, not \['a.csv', 'b.csv'\]. For several files"),
        (
            {"source": {"format": "jdbc", "conn_id": "no", "options": {}}},
            "'no' of a jdbc source does not exist",
        ),
        ({"source": {"format": "csv", "path": "x", "conn_id": "erp"}}, "only a source of format jdbc"),
        ({"source": {"format": "jdbc", "conn_id": "spark_default"}}, "has no known JDBC URL"),
    ],
}


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("error", "arguments", "message"), [(error, *one) for error, all_ in REFUSED.items() for one in all_]
)
def test_what_cannot_be_meant_is_refused_before_any_job(rows, submit, error, arguments, message):
    with pytest.raises(error, match=message):
        insert(**{"source": rows, **arguments})

    assert submit.calls == []


# --- the table comes to be while the job runs ---


def test_an_equal_table_that_came_to_be_meanwhile_takes_the_rows(lake, rows, submit):
    submit.meanwhile(
        elsewhere(lake, "CREATE TABLE fresh (id INT, name VARCHAR); INSERT INTO fresh VALUES (9, 'z')")
    )

    result = insert("main.fresh", source=rows, create_table=True)

    assert result["snapshot_id"] == 4
    assert duckdb(lake, "SELECT count(*), sum(id) FROM fresh") == [(4, 15)]


def test_an_equal_table_of_an_odd_name_that_came_to_be_meanwhile_takes_the_rows(lake, rows, submit):
    """Its directory is named by a UUID, so that the files lie outside the directory of the other's table."""
    submit.meanwhile(elsewhere(lake, 'CREATE TABLE "frésh table" (id INT, name VARCHAR)'))

    insert(("main", "frésh table"), source=rows, create_table=True)

    assert duckdb(lake, 'SELECT count(*), sum(id) FROM "frésh table"') == [(3, 6)]


def test_no_rows_for_a_table_that_came_to_be_meanwhile_change_nothing(lake, no_rows, submit):
    submit.meanwhile(elsewhere(lake, "CREATE TABLE fresh (id INT, name VARCHAR)"))

    result = insert("main.fresh", source=no_rows, create_table=True)

    assert (result["snapshot_id"], snapshot_count(lake)) == (None, 3)


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE fresh (id BIGINT, name VARCHAR)",
        "CREATE TABLE fresh (name VARCHAR, id INT)",
        "CREATE TABLE fresh (id INT, name VARCHAR, more INT)",
        "CREATE TABLE fresh (id INT NOT NULL, name VARCHAR)",
        "CREATE TABLE fresh (id INT, name VARCHAR); ALTER TABLE fresh SET PARTITIONED BY (id)",
        "CREATE VIEW fresh AS SELECT 1 AS id",
    ],
)
def test_another_table_that_came_to_be_meanwhile_is_a_conflict(lake, rows, submit, definition):
    submit.meanwhile(elsewhere(lake, definition))

    with pytest.raises(errors.TransactionConflictError):
        insert("main.fresh", source=rows, create_table=True)

    assert files_below(lake) == []


def test_a_table_dropped_meanwhile_is_a_conflict(lake, rows, submit):
    submit.meanwhile(elsewhere(lake, "DROP TABLE orders"))

    with pytest.raises(errors.TransactionConflictError, match="rerun the task"):
        insert(source=rows)

    assert files_below(lake) == []


def test_rows_of_others_meanwhile_are_no_conflict(lake, rows, submit):
    submit.meanwhile(elsewhere(lake, "INSERT INTO orders VALUES (10, 'x')"))

    assert insert(source=rows)["snapshot_id"] == 3
    assert duckdb(lake, "SELECT count(*), sum(id) FROM orders") == [(4, 16)]


# --- failures ---


@pytest.mark.usefixtures("lake")
def test_a_missing_schema_is_created_only_with_its_table(lake, rows, submit):
    with pytest.raises(AirflowFailException, match="SchemaNotFoundError: Schema 'nowhere' does not exist"):
        insert("nowhere.orders", source=rows)
    assert submit.calls == []

    insert("nowhere.orders", source=rows, create_table=True)

    assert duckdb(lake, "SELECT count(*) FROM nowhere.orders") == [(3,)]


def test_a_job_that_dies_leaves_nothing(lake, rows, submit):
    submit.meanwhile("print('Killed by a test'); raise SystemExit(137)")

    with pytest.raises(errors.SparkJobError, match=r"(?s)driver was killed.*exit code 137.*Killed by a test"):
        insert("main.fresh", source=rows, create_table=True)

    assert (snapshot_count(lake), files_below(lake)) == (2, [])


def test_a_job_that_ends_well_without_a_result_is_not_believed(lake, rows, submit):
    submit.meanwhile("raise SystemExit(0)")

    with pytest.raises(errors.SparkJobError, match="ended without a result"):
        insert(source=rows)

    assert (snapshot_count(lake), files_below(lake)) == (2, [])


def test_an_error_that_no_retry_cures_fails_the_task_for_good(lake, rows, submit):
    submit.meanwhile(
        "from airflow_provider_ducklake.lake.errors import SchemaMismatchError\n"
        "from airflow_provider_ducklake.lake.spark.job import io as job_io\n"
        "job_io.write_error(request, SchemaMismatchError('main.orders', ['a is missing', 'b too']))\n"
        "raise SystemExit(1)"
    )

    with pytest.raises(AirflowFailException, match=r"(?s)- a is missing\n.*- b too"):
        insert(source=rows)

    assert files_below(lake) == []


def test_a_job_that_is_timed_out_is_stopped_before_its_files_are_removed(lake, rows, tmp_path, monkeypatch):
    """Else it would go on to write into the folder that was just removed."""
    stand_in(tmp_path / "bin", monkeypatch, is_warm=False).meanwhile(
        f"import time, pathlib; pathlib.Path({str(tmp_path / 'reached')!r}).touch(); time.sleep(60)"
    )

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    def when_reached() -> None:
        while not (tmp_path / "reached").exists():
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        threading.Thread(target=when_reached, daemon=True).start()
        with pytest.raises(Interrupted):
            insert(source=rows)
    finally:
        signal.signal(signal.SIGALRM, previous)

    assert files_below(lake) == []
    assert not any("stand_in_job" in command for command in command_lines())


def command_lines() -> list[str]:
    """The command lines of our children that have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


class CommitsThen(UnluckyCommits, DuckLakeSparkInsertOperator):
    """The operator with something happening right after its commit."""

    events: ClassVar[list[Any]] = []


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), errors.CommitStateUnknownError(2, "broken")],  # a retry of the task finds out
)
def test_files_stay_when_the_commit_may_have_landed(lake, rows, error):
    @contextmanager
    def then(_lake: Any) -> Iterator[None]:
        yield
        raise error

    operator = CommitsThen(task_id="insert", table="main.orders", source=rows)
    operator.events.append(then)

    with pytest.raises(type(error)):
        operator.execute(context_of("insert"))

    assert duckdb(lake, "SELECT sum(id) FROM orders") == [(6,)]  # a count alone would not open the files


@pytest.mark.usefixtures("lake")
def test_a_clean_up_that_fails_after_the_commit_does_not_fail_the_task(rows, submit, task_log):
    """A retry would write the rows a second time."""
    submit.meanwhile(
        "import pathlib; path = pathlib.Path(request.directory, 'request.json');"
        "path.unlink(); path.mkdir(); (path / 'in the way').touch()"
    )

    assert insert(source=rows)["rows_added"] == 3
    assert any("Cannot remove the job's own files" in line for line in task_log())


# --- arguments ---


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"source": "a.csv", "durable": True, "deploy_mode": "client"},
        {"source": "a.csv", "on_clear": "overwrite"},
    ],
)
def test_arguments_that_cannot_be_meant_are_import_errors_of_the_dag(arguments):
    with pytest.raises(errors.InvalidInputError):
        DuckLakeSparkInsertOperator(task_id="insert", table="main.orders", **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "jdbc:x", "password": "pa55"}, "'password' holds a secret"),
        ({"url": "jdbc:x://h/d?password=pa55"}, "'url' holds a secret"),
        ({"url": "jdbc:x://reader:pa55@h/d"}, "'url' holds a secret"),
        ({"URL": "jdbc:oracle:thin:scott/pa55@//h:1521/x"}, "'URL' holds a secret"),
        ({"connection.uri": "mongodb://reader:pa55@h/d"}, "'connection.uri' holds a secret"),
        ({"url": "jdbc:x", "pem_private_key": "pa55"}, "'pem_private_key' holds a secret"),
        ({"fs.azure.account.key.lake.dfs.core.windows.net": "pa55"}, "account.key.* holds a secret"),
        ({"fs.azure.sas.in.lake.blob.core.windows.net": "pa55"}, "azure.sas.* holds a secret"),
        ({"extra": "https://lake.blob.core.windows.net/x?sv=2024&sig=pa55"}, "'extra' holds a secret"),
        ({"url": "jdbc:x", "password": "{{ var.value.pa55word }}"}, "'password' holds a secret"),
    ],
)
def test_a_secret_in_a_source_is_an_import_error_of_the_dag(options, message):
    refused_at_import({"format": "jdbc", "options": options}, message)


@pytest.mark.parametrize(
    "path",
    [
        "https://reader:pa55@h/x.csv",
        "s3a://KEY:pa55@bucket/x.csv",
        "jdbc:oracle:thin:scott/pa55@//h:1521/x",
        "JDBC:ORACLE:oci:scott/pa55@alias",
        "jdbc:sqlserver://h:1433;user=reader;password=pa55",
        "abfss://in@lake.dfs.core.windows.net/x.csv?sv=2024-01-01&sig=pa55",
        "https://bucket.s3.amazonaws.com/x.csv?X-Amz-Signature=pa55",
        "https://storage.googleapis.com/b/x.csv?X-Goog-Signature=pa55",
    ],
)
def test_a_secret_in_a_path_is_an_import_error_of_the_dag(path):
    refused_at_import(path, "its path holds a password or a signature")
    refused_at_import({"format": "csv", "path": path}, "its path holds a password or a signature")


@pytest.mark.parametrize(
    "source",
    [
        "hdfs://namenode:8020/a@b/x.csv",
        "abfss://container@account.dfs.core.windows.net/x.csv",
        "/data/token=3/password=x/part-?.csv",
        {"format": "csv", "path": "/data/x.csv", "options": {"sep": ";", "quote": "?"}},
        {"format": "jdbc", "options": {"url": "jdbc:oracle:thin:@//h:1521/x", "dbtable": "t"}},
        {"format": "jdbc", "options": {"url": "jdbc:oracle:thin:/@alias", "dbtable": "t"}},
    ],
)
def test_what_only_looks_like_a_login_is_taken(source):
    DuckLakeSparkInsertOperator(task_id="load", table="t", source=source)


def refused_at_import(jdbc, message):
    for operator, arguments in (
        (DuckLakeSparkInsertOperator, {"table": "t", "source": jdbc}),
        (DuckLakeSparkInsertOperator, {"table": "t", "sql": "SELECT * FROM s", "sources": {"s": jdbc}}),
        (DuckLakeSparkMergeOperator, {"table": "t", "source": jdbc, "on": ["id"], "insert_all": True}),
        (DuckLakeSparkSQLOperator, {"sql": "INSERT INTO t SELECT * FROM s", "sources": {"s": jdbc}}),
        (
            DuckLakeSparkStreamOperator,
            {"table": "t", "transform": "m:f", "checkpoint": "/c", "sources": {"s": jdbc}},
        ),
    ):
        with pytest.raises(errors.InvalidInputError, match=message) as caught:
            operator(task_id="load", **arguments)
        assert "pa55" not in str(caught.value)


@pytest.mark.usefixtures("lake")
def test_the_arguments_of_spark_submit_pass_through(rows, submit):
    insert(
        source=rows,
        conf={"spark.sql.shuffle.partitions": "3"},
        packages="org.example:reader:1.0",
        py_files="mine.py,more.zip",
        jars="a.jar",
        files="b.txt",
        executor_memory="3g",
        driver_memory="1g",
        num_executors=2,
        name="nightly",
        verbose=True,
        env_vars={"MINE": "1"},
        properties_file="spark.conf",
        deploy_mode="client",
    )

    (call,) = submit.calls
    assert call.value_of("--master") == "local[2]"
    assert call.conf == {"spark.log.level": "WARN", "spark.sql.shuffle.partitions": "3"}
    package, *own = call.value_of("--py-files").split(",")
    assert Path(package).name.startswith("airflow_provider_ducklake-")
    assert own == ["mine.py", "more.zip"]
    options = {
        "--packages": "org.example:reader:1.0",
        "--jars": "a.jar",
        "--files": "b.txt",
        "--executor-memory": "3g",
        "--driver-memory": "1g",
        "--num-executors": "2",
        "--name": "nightly",
        "--properties-file": "spark.conf",
        "--deploy-mode": "client",
    }
    assert {option: call.value_of(option) for option in options} == options
    assert "--verbose" in call.arguments
    assert call.environment["MINE"] == "1"
    assert call.arguments[-3].endswith("spark/launcher/main.py")
    assert call.arguments[-2].endswith("/request.json")
    assert len(call.arguments[-1]) == 64  # the digest of the request


@pytest.mark.usefixtures("lake")
def test_the_submitted_file_may_be_another(rows, submit):
    insert(source=rows, application="local:///opt/ducklake/main.py")

    assert submit.calls[0].arguments[-3] == "local:///opt/ducklake/main.py"


@pytest.mark.usefixtures("lake")
def test_the_users_log_level_counts(rows, submit):
    insert(source=rows, conf={"spark.log.level": "INFO"})

    assert submit.calls[0].conf["spark.log.level"] == "INFO"


@pytest.mark.parametrize("name", ["conn_id", "spark_conn_id"])
@pytest.mark.usefixtures("lake")
def test_the_spark_connection_has_two_names_also_in_default_args(rows, submit, set_connection, name):
    set_connection("cluster", conn_type="spark", host="local[7]")

    with DAG("defaults", schedule=None, default_args={name: "cluster"}):
        operator = DuckLakeSparkInsertOperator(task_id="insert", table="main.orders", source=rows)
    operator.execute(context_of("insert"))

    assert submit.calls[0].value_of("--master") == "local[7]"


# --- secrets ---

JDBC = {"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "orders"}}


@pytest.fixture
def erp(set_connection: Callable[..., str]) -> None:
    set_connection(
        "erp", conn_type="postgres", host="db", login="reader", password=JDBC_PASSWORD, schema="erp"
    )


def keep_request(path: Path) -> str:
    """Code for the job that keeps its request where a test can look at it."""
    return f"import shutil; shutil.copy(request.directory + 'request.json', {str(path)!r})"


@pytest.mark.usefixtures("lake", "erp")
def test_a_jdbc_password_travels_in_the_environment_only(submit, tmp_path):
    submit.meanwhile(keep_request(tmp_path / "request.json"))

    insert(source={"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "orders"}})

    (call,) = submit.calls
    (variable,) = [name for name, value in call.environment.items() if value == JDBC_PASSWORD]
    assert not any(JDBC_PASSWORD in argument for argument in call.arguments)
    text = (tmp_path / "request.json").read_text()
    assert JDBC_PASSWORD not in text
    dataset = json.loads(text)["source"]["dataset"]
    assert dataset["password_env"] == variable
    assert dataset["options"] == {
        "url": "jdbc:postgresql://db:5432/erp",
        "driver": "org.postgresql.Driver",
        "user": "reader",
        "dbtable": "orders",
    }
    assert JDBC_PASSWORD not in os.environ.values()


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("master", "environment", "conf", "found"),
    [
        ("local[2]", {}, {}, sys.executable),
        ("local[2]", {"PYSPARK_PYTHON": "/opt/python"}, {}, "/opt/python"),
        ("local[2]", {"PYSPARK_DRIVER_PYTHON": "/opt/python"}, {}, None),
        ("local[2]", {}, {"spark.pyspark.python": "/opt/python"}, None),
        ("spark://master:7077", {}, {}, None),
    ],
)
def test_local_mode_runs_the_python_of_the_task_unless_another_is_named(
    rows, submit, set_connection, monkeypatch, master, environment, conf, found
):
    set_connection("spark_default", conn_type="spark", host=master)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    insert(source=rows, conf=conf)

    assert submit.calls[0].environment.get("PYSPARK_PYTHON") == found


@pytest.mark.usefixtures("lake", "spark_conn")
def test_a_connection_adds_the_package_that_its_store_needs(
    sqlite_catalog, connect, submit, task_log, monkeypatch
):
    connect(sqlite_catalog, spark_packages="auto")
    monkeypatch.setenv("SPARK_HOME", find_spec("pyspark").submodule_search_locations[0])

    with suppress(errors.DuckLakeError, AirflowFailException):  # the stand-in reads no store
        insert(source="s3://landing/rows.csv", packages="org.example:reader:1.0")

    hadoop_aws = f"org.apache.hadoop:hadoop-aws:{installation('spark-submit').hadoop}"
    assert submit.calls[0].value_of("--packages") == f"org.example:reader:1.0,{hadoop_aws}"
    assert f"Added packages={hadoop_aws} (spark_packages of the connection)" in task_log()


@pytest.mark.usefixtures("lake", "erp")
def test_several_jdbc_sources_have_a_variable_each(submit, set_connection):
    set_connection("crm", conn_type="mysql", host="db", login="reader", password="other-pa55", schema="crm")
    source = {"format": "JDBC", "options": {"query": "SELECT 1"}}

    insert(sql="…", sources={"a": source | {"conn_id": "erp"}, "b": source | {"conn_id": "crm"}})

    environment = submit.calls[0].environment
    assert {environment["DUCKLAKE_JDBC_PASSWORD_0"], environment["DUCKLAKE_JDBC_PASSWORD_1"]} == {
        JDBC_PASSWORD,
        "other-pa55",
    }


@pytest.mark.usefixtures("lake", "erp")
@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ({}, {"deploy_mode": "cluster"}),
        ({}, {"default_args": {"deploy_mode": "cluster"}}),
        ({}, {"conf": {"spark.submit.deployMode": "cluster"}}),
        ({"deploy-mode": "cluster"}, {}),
    ],
)
def test_a_jdbc_password_is_refused_where_it_had_to_travel_openly(submit, set_connection, extra, arguments):
    set_connection("spark_default", conn_type="spark", host="yarn", extra=extra)

    with pytest.raises(AirflowFailException, match=r"client mode only; this job's deploy mode is 'cluster'"):
        insert(source={"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "orders"}}, **arguments)

    assert submit.calls == []


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_the_key_of_documents_is_for_drivers_here_alone(
    sqlite_catalog, connect, set_connection, rows, submit, deploy_mode
):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("orders", {"id": "int32", "name": "varchar"})
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="yarn")

    with suppress(errors.SparkJobError):  # the stand-in has no key then
        insert(source=rows, deploy_mode=deploy_mode, durable=False)

    environment = submit.calls[0].environment
    assert (writing.VARIABLE in environment) is (deploy_mode == "client")


@pytest.mark.usefixtures("erp")
def test_the_argument_counts_before_the_connections_deploy_mode(lake, submit, set_connection):
    set_connection("spark_default", conn_type="spark", host="local[2]", extra={"deploy-mode": "cluster"})

    insert(
        source={"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "orders"}}, deploy_mode="client"
    )

    assert submit.calls[0].value_of("--deploy-mode") == "client"
    assert snapshot_count(lake) == 2


# --- in a DAG run ---

DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG, Variable, task
from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

with DAG("inserts", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None, params={"table": "orders"}):
    one = DuckLakeSparkInsertOperator(
        task_id="one",
        table="main.{{ params.table }}",
        source={"path": "{{ var.value.folder }}/rows.parquet", "options": {"mergeSchema": "{{ 1 == 1 }}"}},
        message="rows of {{ dag.dag_id }}",
        conf={"spark.mine": "{{ task.task_id }}"},
    )

    @task
    def files(inserted: dict):
        assert inserted["rows_added"] == 3
        folder = Variable.get("folder")
        return [f"{folder}/rows.parquet", f"{folder}/no_rows.parquet"]

    mapped = DuckLakeSparkInsertOperator.partial(
        task_id="mapped", table="main.orders", conf={"spark.mine": "{{ task.task_id }}"}
    ).expand(source=files(one.output))
    query = DuckLakeSparkInsertOperator(
        task_id="query",
        table="{{ ti.xcom_pull(task_ids='one')['table'] }}",
        sql="query.sql",
        sources={"r": "{{ var.value.folder }}"},
    )
    jdbc = DuckLakeSparkInsertOperator(
        task_id="jdbc",
        table="main.orders",
        source={"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "orders"}},
    )
    mapped >> query >> jdbc
"""


@pytest.fixture
def dag_file(rows, tmp_path, monkeypatch) -> Path:
    """The DAG's file, with a query beside it."""
    monkeypatch.setenv("AIRFLOW_VAR_FOLDER", str(Path(rows).parent))
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / "query.sql").write_text("SELECT * FROM r WHERE '{{ run_id }}' <> ''")
    (folder / "inserts.py").write_text(DAG_FILE)
    return folder / "inserts.py"


@pytest.mark.usefixtures("airflow_db", "erp", "no_rows")
def test_a_dag_run_on_postgres_shows_its_results_and_no_secret(
    postgres_catalog, set_connection, submit, dag_file, capfd
):
    fields = connection_fields(postgres_catalog, storage_options={"secret": STORAGE_SECRET})
    set_connection(**fields | {"password": CATALOG_PASSWORD})
    duckdb(postgres_catalog, "CREATE TABLE orders (id INT, name VARCHAR)")

    run = succeeded(parse(dag_file))

    assert duckdb(postgres_catalog, "SELECT count(*), sum(id) FROM orders") == [(6, 12)]
    check_results(run)
    check_snapshots(postgres_catalog, run)
    rendered = {task_id: rendered_fields(run, task_id) for task_id in ("one", "query", "jdbc")}
    check_rendered(rendered, run)
    log = "".join(capfd.readouterr())
    assert "Committed snapshot 2 to main.orders: 3 rows in 1 file" in log
    seen = [
        log,
        json.dumps([call.arguments for call in submit.calls]),
        json.dumps(rendered, default=str),
        str([xcom(run, task_id) for task_id in rendered]),
    ]
    for secret in (CATALOG_PASSWORD, STORAGE_SECRET, JDBC_PASSWORD):
        assert not any(secret in text for text in seen)
    for secret in (CATALOG_PASSWORD, STORAGE_SECRET):
        assert not any(
            secret in value
            for call in submit.calls
            for name, value in call.environment.items()
            if not name.startswith("AIRFLOW_CONN_")  # the connections of this very test
        )


def check_results(run: DagRun) -> None:
    one = xcom(run, "one")
    numbers = {"rows_added", "files_added", "bytes_added", "rows_removed", "columns_added", "columns_widened"}
    assert set(one) == {"table", "snapshot_id", *numbers, "already_committed"}
    assert (one["table"], one["snapshot_id"], one["rows_added"]) == ("main.orders", 2, 3)
    assert [(r["snapshot_id"], r["rows_added"]) for r in mapped_xcoms(run, "mapped")] == [(3, 3), (None, 0)]


def check_snapshots(catalog: CatalogDatabase, run: DagRun) -> None:
    rows = duckdb(
        catalog,
        "SELECT author, commit_message, commit_extra_info FROM ducklake_snapshots('lake') "
        "WHERE snapshot_id > 1 ORDER BY snapshot_id",
    )
    assert [row[:2] for row in rows] == [("airflow", "rows of inserts"), ("airflow", "inserts.mapped")]
    where = {
        "dag_id": "inserts",
        "run_id": run.run_id,
        "try_number": 1,
        "logical_date": run.logical_date.isoformat(),
        "namespace": default_namespace(),
        "part": 0,
        "generation": 1,
    }
    identities = [json.loads(row[2])["airflow"] for row in rows]
    urls = [identity.pop("log_url") for identity in identities]
    assert identities == [
        {**where, "task_id": "one", "map_index": -1},
        {**where, "task_id": "mapped", "map_index": 0},
    ]
    assert all(url.startswith("http://localhost:8080/dags/inserts/runs/") for url in urls)


def check_rendered(rendered: dict[str, dict[str, Any]], run: DagRun) -> None:
    assert rendered["one"]["table"] == "main.orders"
    assert rendered["one"]["source"]["options"] == {"mergeSchema": "True"}
    assert rendered["one"]["message"] == "rows of inserts"
    assert rendered["one"]["conf"] == {"spark.log.level": "WARN", "spark.mine": "one"}
    assert rendered["one"]["application"].endswith("launcher/main.py")
    assert rendered["query"]["sql"] == f"SELECT * FROM r WHERE '{run.run_id}' <> ''"
    assert rendered["query"]["table"] == "main.orders"
    assert rendered["jdbc"]["source"]["conn_id"] == "erp"


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        (
            {"conn_type": "mysql", "host": "h", "port": 3307, "schema": "d"},
            {"url": "jdbc:mysql://h:3307/d", "driver": "com.mysql.cj.jdbc.Driver"},
        ),
        (
            {"conn_type": "mssql", "host": "h", "schema": "d"},
            {
                "url": "jdbc:sqlserver://h:1433;databaseName=d",
                "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
            },
        ),
        ({"conn_type": "jdbc", "host": "jdbc:h2:/x"}, {"url": "jdbc:h2:/x"}),
        (
            {"conn_type": "jdbc", "host": "jdbc:h2:/x", "extra": {"driver_class": "org.h2.Driver"}},
            {"url": "jdbc:h2:/x", "driver": "org.h2.Driver"},
        ),
    ],
)
def test_a_connection_gives_the_address_and_the_drivers_class(set_connection, fields, options):
    set_connection("erp", **fields)

    source = JdbcPasswords().resolve({"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "t"}})

    assert source == {"format": "jdbc", "options": {**options, "dbtable": "t"}}


def test_what_the_source_itself_says_counts(set_connection):
    set_connection("erp", conn_type="postgres", host="h", login="reader")

    for given in ({"url": "jdbc:other:x", "user": "me"}, {"driver": "mine", "user": "me"}):
        source = JdbcPasswords().resolve({"format": "jdbc", "conn_id": "erp", "options": given})
        assert {**source["options"], **given} == source["options"]
        assert source["options"].get("driver") == given.get("driver")
