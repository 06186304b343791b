"""Inserts by real Spark jobs in one DAG run, read back by DuckDB."""

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from airflow.models.dagrun import DagRun

from airflow_provider_ducklake.lake.catalog.drafting import overwrite
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import parse, state_of, sync_dag, xcom
from tests.airflow.spark_submit import ROOT, SparkSubmit, recorded
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

JDBC_PASSWORD = "jdbc-pa55"
SUCCEED, FAIL = ("csv", "parquet", "jdbc", "transform"), {"mismatch", "missing"}

# What the DAG's author writes.
DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

HERE = "{{ var.value.here }}"
DAYS = {"format": "csv", "path": f"{HERE}/days.csv", "options": {"inferSchema": True}}

with DAG("real_inserts", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None):
    csv = DuckLakeSparkInsertOperator(
        task_id="csv", table="sales.orders", source=f"{HERE}/orders.csv", overwrite_where="id <= 2"
    )
    parquet = DuckLakeSparkInsertOperator(
        task_id="parquet",
        table="sales.by_day",
        source=f"{HERE}/by_day",
        create_table=True,
        partition_by=["year(day)", "bucket(4, id)"],
    )
    jdbc = DuckLakeSparkInsertOperator(
        task_id="jdbc",
        table="sales.joined",
        sql="joined.sql",
        sources={"days": DAYS, "erp": {"format": "jdbc", "conn_id": "erp", "options": {"dbtable": "orders"}}},
        create_table=True,
    )
    transform = DuckLakeSparkInsertOperator(
        task_id="transform",
        table="sales.clean",
        transform="cleaning.orders:clean",
        sources={"raw": f"{HERE}/orders.csv"},
        py_files=f"{HERE}/cleaning.zip,{HERE}/rules.py",
        create_table=True,
        partition_by="id",
    )
    mismatch = DuckLakeSparkInsertOperator(
        task_id="mismatch", table="sales.orders", source=f"{HERE}/by_day", retries=3
    )
    missing = DuckLakeSparkInsertOperator(
        task_id="missing", table="sales.fresh", source=f"{HERE}/nothing.csv", create_table=True
    )
    csv >> parquet >> jdbc >> transform >> [mismatch, missing]
"""
JOINED_SQL = """
SELECT e.id, e.customer, d.day, e.price, e.ordered FROM erp AS e JOIN days AS d ON d.id = e.id
"""

# The user's own code, which also is where another client comes in between.
CLEAN = """
import duckdb
import rules

def clean(spark, sources):
    rules.another_client_creates_the_table()
    return sources["raw"].selectExpr("CAST(id AS INT) AS id", "upper(customer) AS customer")
"""
RULES = """
def another_client_creates_the_table():
    from tests.reference.duckdb_lake import open_lake
    with open_lake({attach!r}, {data_path!r}, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE sales.clean (id INT, customer VARCHAR)")
        lake.sql("ALTER TABLE sales.clean SET PARTITIONED BY (id)")
        lake.sql("INSERT INTO sales.clean VALUES (7, 'THEIRS')")
"""

DERBY = """
connect 'jdbc:derby:{database};create=true;user=reader;password={password}';
create table orders (id int, customer varchar(20), price decimal(9,2), ordered timestamp);
insert into orders values
  (1, 'ann', 1.50, '2026-01-01 12:30:00'), (2, 'bob', 2.25, null), (3, 'cyd', 3.00, null);
call syscs_util.syscs_set_database_property('derby.user.reader', '{password}');
call syscs_util.syscs_set_database_property('derby.connection.requireAuthentication', 'true');
call syscs_util.syscs_set_database_property('derby.authentication.provider', 'BUILTIN');
"""


def make_derby(folder: Path) -> str:
    """Make a database that asks for a password, with the driver that comes with Spark; return its URL."""
    database = folder / "erp"
    (folder / "erp.sql").write_text(DERBY.format(database=database, password=JDBC_PASSWORD))
    jars = map(str, Path(pyspark.__file__).with_name("jars").glob("derby*.jar"))
    made = subprocess.run(
        ["java", "-cp", os.pathsep.join(jars), "org.apache.derby.tools.ij", str(folder / "erp.sql")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ERROR" not in made.stdout, made.stdout
    return f"jdbc:derby:{database}"


def make_sources(folder: Path, catalog: CatalogDatabase) -> None:
    """Lay out what the DAG reads and imports."""
    (folder / "orders.csv").write_text("customer,price,id\nann,1.50,1\nbob,2.25,2\n")
    (folder / "days.csv").write_text("id,day\n1,2025-12-31\n2,2026-01-01\n")
    (folder / "by_day").mkdir()
    for number, day in enumerate((date(2025, 12, 31), date(2026, 1, 1))):
        ids = [number * 2, number * 2 + 1]
        rows = pa.table({"id": ids, "day": [day, day], "tags": [["a"], []]})
        pq.write_table(rows, folder / "by_day" / f"{number}.parquet")
    with zipfile.ZipFile(folder / "cleaning.zip", "w") as archive:
        archive.writestr("cleaning/__init__.py", "")
        archive.writestr("cleaning/orders.py", CLEAN)
    rules = RULES.format(attach=catalog.attach_string, data_path=catalog.data_path)
    (folder / "rules.py").write_text(rules)
    (folder / "joined.sql").write_text(JOINED_SQL)
    (folder / "dag.py").write_text(DAG_FILE)


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    monkeypatch.setattr(overwrite, "MOST_BYTES_READ", 0)  # the job finds what is to be replaced
    monkeypatch.chdir(tmp_path)  # Derby writes its log there
    monkeypatch.setenv("AIRFLOW_VAR_HERE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the other client of `RULES`
    return recorded(tmp_path / "bin", monkeypatch)


@pytest.fixture
def lake(
    sqlite_catalog: CatalogDatabase,
    connect: Callable[..., str],
    set_connection: SetConnection,
    tmp_path: Path,
) -> CatalogDatabase:
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    url = make_derby(tmp_path)
    set_connection("erp", conn_type="jdbc", host=url, login="reader", password=JDBC_PASSWORD)
    make_sources(tmp_path, sqlite_catalog)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE SCHEMA sales")
        reference.sql("CREATE TABLE sales.orders (id BIGINT, price DECIMAL(9,2), customer VARCHAR)")
        reference.sql("INSERT INTO sales.orders VALUES (1, 9.99, 'gone'), (3, 3.00, 'cyd')")
    return sqlite_catalog


@pytest.mark.submits
@pytest.mark.usefixtures("airflow_db")
def test_sources_of_each_kind_land_as_one_snapshot_each(lake, submit, tmp_path, capfd):
    run = sync_dag(parse(tmp_path / "dag.py")).test()

    log = "".join(capfd.readouterr())
    states = {task_id: state_of(run, task_id) for task_id in run_tasks(run)}
    assert {task_id for task_id, state in states.items() if state == "failed"} == FAIL, log
    assert JDBC_PASSWORD not in log + json.dumps([call.arguments for call in submit.calls])
    check_rows(lake)
    check_snapshots(lake, run)
    check_failures(run, log)
    check_what_is_left(lake)
    check_log(log)


def run_tasks(run: DagRun) -> list[str]:
    return [ti.task_id for ti in run.get_task_instances()]


def check_rows(catalog: CatalogDatabase) -> None:
    with open_lake(catalog) as reference:
        assert reference.sql("FROM sales.orders ORDER BY id") == [
            (1, Decimal("1.50"), "ann"),
            (2, Decimal("2.25"), "bob"),
            (3, Decimal("3.00"), "cyd"),
        ]
        assert reference.sql("FROM sales.by_day ORDER BY id") == [
            (0, date(2025, 12, 31), ["a"]),
            (1, date(2025, 12, 31), []),
            (2, date(2026, 1, 1), ["a"]),
            (3, date(2026, 1, 1), []),
        ]
        assert reference.sql("FROM sales.joined ORDER BY id") == [
            (1, "ann", date(2025, 12, 31), Decimal("1.50"), datetime(2026, 1, 1, 12, 30)),  # noqa: DTZ001
            (2, "bob", date(2026, 1, 1), Decimal("2.25"), None),
        ]
        assert reference.sql("FROM sales.clean ORDER BY id") == [(1, "ANN"), (2, "BOB"), (7, "THEIRS")]
        assert reference.sql("SELECT count(*) FROM sales.by_day WHERE year(day) = 2026") == [(2,)]


def check_snapshots(catalog: CatalogDatabase, run: DagRun) -> None:
    rows = by_duckdb(
        catalog,
        "SELECT commit_message, snapshot_id, changes FROM ducklake_snapshots('lake') "
        "WHERE commit_message IS NOT NULL ORDER BY snapshot_id",
    )
    created = {
        message.removeprefix("real_inserts.") for message, _, changes in rows if "tables_created" in changes
    }
    assert [message for message, _, _ in rows] == [f"real_inserts.{task_id}" for task_id in SUCCEED]
    assert created == {"parquet", "jdbc"}  # that of transform was created by another client meanwhile
    assert all("tables_inserted_into" in changes for _, _, changes in rows)
    for message, snapshot_id, _ in rows:
        result = xcom(run, message.removeprefix("real_inserts."))
        assert (result["snapshot_id"], result["rows_added"] > 0) == (snapshot_id, True)


def check_failures(run: DagRun, log: str) -> None:
    for difference in (
        "column price is missing",
        "column customer is missing",
        "column day is not in the table",
    ):
        assert f"  - {difference}" in log
    assert "nothing.csv does not exist" in log
    assert xcom(run, "mismatch") is None


def check_what_is_left(catalog: CatalogDatabase) -> None:
    """Nothing but the files that the lake knows: no request, no result, no failed job's folder."""
    with open_lake(catalog) as reference:
        known = {
            path
            for table in ("orders", "by_day", "joined", "clean")
            for data_and_deletes in reference.sql(
                "SELECT data_file, delete_file FROM "
                f"ducklake_list_files('lake', '{table}', schema => 'sales')"
            )
            for path in filter(None, data_and_deletes)
        }
    assert {str(path) for path in Path(catalog.data_path).rglob("*") if path.is_file()} == known


def check_log(log: str) -> None:
    """Spark says little where all goes well; its usual 120 lines would hide ours."""
    jobs = [job.splitlines() for job in log.split("Spark-Submit cmd")[1:]]
    by_spark = [[line for line in job if "SparkSubmitHook]" in line] for job in jobs]
    succeeded = [lines for lines in by_spark if "INFO Wrote" in lines[-1]]
    assert len(succeeded) == len(SUCCEED)
    assert max(map(len, succeeded)) < 20, succeeded
    assert "Wrote 2 rows of sales.orders in 1 file" in succeeded[0][-1]
    assert len(re.findall(r"Spark started in [\d.]+ s: application local-", log)) >= len(SUCCEED)
