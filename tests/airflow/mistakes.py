"""Mistakes that people make in DAGs: each with what the answer has to name, and the way out it has to show.

The lake of a mistake has the tables ``main.orders`` (id BIGINT, name VARCHAR, price DECIMAL(9, 2)) and
``main.feed`` (id BIGINT), its snapshot 1 has expired, and its connection is ``ducklake_default``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_ducklake.operators.add_files import DuckLakeAddFilesOperator
from airflow_provider_ducklake.operators.add_table import DuckLakeAddTableOperator
from airflow_provider_ducklake.operators.commit import DuckLakeCommitOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.operators.export_catalog import DuckLakeExportCatalogOperator
from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.restore import DuckLakeRestoreOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.operators.tag import DuckLakeTagOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor


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


def insert(
    name: str,
    named: tuple[str, ...],
    way_out: str,
    *,
    retried: bool = False,
    prepare: str | None = None,
    **arguments: Any,
) -> Mistake:
    given = {"table": "orders"} | arguments
    if not {"source", "sql", "transform"} & given.keys():
        given["source"] = "{data}/orders.parquet"
    return Mistake(name, DuckLakeSparkInsertOperator, given, named, way_out, retried, prepare)


def jdbc(**options: Any) -> dict[str, Any]:
    return {"format": "jdbc", "options": {"dbtable": "t", **options}}


# Found when Airflow reads the DAG file: an import error.
IN_THE_DAG_FILE = [
    insert(
        "a password in a JDBC URL",
        ("source", "'url'"),
        "conn_id",
        source=jdbc(url="jdbc:postgresql://h/d?user=u&password=x"),
    ),
    insert("a mode that there is not", ("mode", "'upsert'"), "append", mode="upsert"),
    insert("two origins of rows", ("source", "sql"), "exactly one", source="a.csv", sql="SELECT 1"),
    insert(
        "partition keys without create_table", ("partition_by",), "create_table=True", partition_by=["id"]
    ),
    insert(
        "arguments by other names",
        ("DuckLakeSparkInsertOperator has no argument path, partitions",),
        "Did you mean source, partition_by?",
        path="x",
        partitions=["id"],
    ),
    insert("an argument of the job", ("application_args",), "cannot be given", application_args=["x"]),
    Mistake(
        "staging a merge",
        DuckLakeSparkMergeOperator,
        {"table": "orders", "source_table": "feed", "on": ["id"], "insert_all": True, "stage_only": True},
        ("stage_only", "commits"),
        "Leave it out",
    ),
    Mistake(
        "staging Spark SQL",
        DuckLakeSparkSQLOperator,
        {"sql": "INSERT INTO orders SELECT 1", "stage_only": True},
        ("stage_only", "commits"),
        "Leave it out",
    ),
    Mistake(
        "a merge that does nothing",
        DuckLakeSparkMergeOperator,
        {"table": "orders", "source_table": "feed", "on": ["id"]},
        ("when_",),
        "insert_all",
    ),
    Mistake("DDL without statements", DuckLakeDDLOperator, {}, ("sql",), "create_lake=True"),
]

# Found by the task, nearly all before anything is submitted.
IN_A_TASK = [
    insert("a wrong table name", ("main.oders",), "Did you mean main.orders?", table="oders"),
    insert("a wrong schema", ("'sales'",), "Did you mean main.orders?", table="sales.orders"),
    insert("a name with the lake's", ("a.b.c", "name of a lake"), "leave it out", table="a.b.c.d"),
    insert("no lake in the database", ("no_lake.sqlite",), "create_lake=True", prepare="no_lake"),
    insert("no connection", ("'nowhere'",), "Create it", ducklake_conn_id="nowhere"),
    insert(
        "a connection of another type",
        ("'erp'", "'postgres'"),
        "type 'ducklake'",
        ducklake_conn_id="erp",
        prepare="erp",
    ),
    insert(
        "a file of the catalog by a relative path",
        ("'lake.sqlite'", "relative"),
        "absolute path",
        prepare="relative",
    ),
    insert(
        "a database that does not answer",
        ("127.0.0.1:1",),
        "Check that the database runs",
        retried=True,
        prepare="unreachable",
    ),
    insert(
        "a driver that is not installed",
        ("pymysql",),
        "pip install 'pymysql>=1.1.1'",
        retried=True,
        prepare="no_driver",
    ),
    insert(
        "a data path that is not the lake's", ("'/elsewhere/'",), "clear the field", prepare="other_data_path"
    ),
    insert(
        "a data path that cannot be written",
        ("{data}/files/",),
        "Check the path, and your permissions",
        retried=True,
        prepare="unwritable",
    ),
    insert("no Spark connection", ("'spark_nowhere'",), "Create it", spark_conn_id="spark_nowhere"),
    insert("no spark-submit", ("spark-submit",), "Install pyspark", retried=True, prepare="no_spark_submit"),
    insert(
        "a source that is not there",
        ("source", "gone.csv"),
        "retries wait",
        retried=True,
        source="{data}/gone.csv",
    ),
    insert("a source that is rendered to None", ("source is",), "returned a path", source="{{ none }}"),
    insert("no Java", ("Java", "JAVA_HOME"), "Install Java 17", retried=True, prepare="no_java"),
    insert(
        "a master that does not answer",
        ("No Spark master answers",),
        "Spark says",
        retried=True,
        prepare="no_master",
    ),
    insert("cluster mode without a cluster", ("'cluster'",), "deploy_mode='client'", deploy_mode="cluster"),
    insert(
        "rows of other columns",
        ("main.orders", "id", "note"),
        "schema_evolution",
        source="{data}/others.parquet",
    ),
    insert(
        "a key that a source does not have",
        ("source", "header"),
        "options",
        source={"path": "a.csv", "header": True},
    ),
    insert(
        "a format that Spark is not given",
        ("'xlsx'",),
        "transform",
        source={"path": "a.xlsx", "format": "xlsx"},
    ),
    insert(
        "a database's connection that does not exist",
        ("'nowhere'",),
        "Create it",
        source={"format": "jdbc", "conn_id": "nowhere"},
    ),
    insert("a function without a module", ("'clean'",), "module:function", source=None, transform="clean"),
    Mistake(
        "MERGE INTO as Spark SQL",
        DuckLakeSparkSQLOperator,
        {"sql": "MERGE INTO orders USING feed ON orders.id = feed.id WHEN MATCHED THEN DELETE"},
        ("MERGE",),
        "DuckLakeSparkMergeOperator",
    ),
    Mistake(
        "a typo in Spark SQL",
        DuckLakeSparkSQLOperator,
        {"sql": "INSERT INTO orders SELECT id FORM feed)"},
        ("Statement 1, line 1", "near 'feed'"),
        "correct it there",
    ),
    Mistake(
        "a query of a table that is not there",
        DuckLakeSparkSQLOperator,
        {"sql": "INSERT INTO orders SELECT * FROM fed"},
        ("fed",),
        "Check the name",
    ),
    Mistake(
        "a query of a snapshot to come",
        DuckLakeSparkSQLOperator,
        {"sql": "INSERT INTO orders SELECT * FROM feed", "at": "999"},
        ("999",),
        "the lake holds snapshots",
    ),
    Mistake(
        "a time without a zone",
        DuckLakeSparkSQLOperator,
        {"sql": "INSERT INTO orders SELECT * FROM feed", "at": "2026-01-01 00:00:00"},
        ("2026-01-01T00:00:00",),
        "Add one",
    ),
    Mistake(
        "a text without quotes",
        DuckLakeSparkDeleteOperator,
        {"table": "orders", "where": "name = Bern"},
        ("'name = Bern'", "Column 'Bern'"),
        "Correct the name; put strings in single quotes",
    ),
    Mistake(
        "a syntax error in a condition",
        DuckLakeSparkDeleteOperator,
        {"table": "orders", "where": "id = = 1"},
        ("where: 'id = = 1' cannot be run", "Syntax error at or near '='"),
        "Correct it. Spark says",
    ),
    Mistake(
        "an update of a column that is not there",
        DuckLakeSparkUpdateOperator,
        {"table": "orders", "set": {"prize": "1"}, "where": "id = 1"},
        ("prize", "main.orders"),
        "its columns are",
    ),
    Mistake(
        "a merge on a column that is not there",
        DuckLakeSparkMergeOperator,
        {"table": "orders", "source_table": "feed", "on": ["key"], "insert_all": True},
        ("key", "main.orders"),
        "its columns are",
    ),
    Mistake(
        "a merge with a table that is not there",
        DuckLakeSparkMergeOperator,
        {"table": "orders", "source_table": "fed", "on": ["id"], "insert_all": True},
        ("main.fed",),
        "Check the name",
    ),
    Mistake(
        "a typo in DDL",
        DuckLakeDDLOperator,
        {"sql": "CREATE TABLE t (a INT);\nCREATE TABEL u (a INT)"},
        ("Statement 2, line 2", "TABEL"),
        "Nothing was run",
    ),
    Mistake(
        "a column that is there already",
        DuckLakeDDLOperator,
        {"sql": "ALTER TABLE orders ADD COLUMN name VARCHAR"},
        ("name",),
        "Choose another name",
    ),
    Mistake("a commit of nothing", DuckLakeCommitOperator, {"staged": []}, ("staged",), "stage_only=True"),
    Mistake(
        "a commit of what was not staged",
        DuckLakeCommitOperator,
        {"staged": "{data}/orders.parquet"},
        ("orders.parquet",),
        "stage_only=True",
    ),
    Mistake(
        "restoring a snapshot that never was",
        DuckLakeRestoreOperator,
        {"table": "orders", "at": 999},
        ("999",),
        "the lake holds snapshots",
    ),
    Mistake(
        "restoring a snapshot that has expired",
        DuckLakeRestoreOperator,
        {"table": "orders", "at": 1},
        ("1",),
        "may have expired",
    ),
    Mistake(
        "forgetting what is young",
        DuckLakeExpireSnapshotsOperator,
        {"older_than": "1 hour"},
        ("older_than",),
        "min_retention",
    ),
    Mistake(
        "a tag that there is not",
        DuckLakeRestoreOperator,
        {"table": "orders", "at": "tag:q3-close"},
        ("'q3-close'",),
        "tag a snapshot with DuckLakeTagOperator",
    ),
    Mistake(
        "a tag that is written twice",
        DuckLakeTagOperator,
        {"name": "tag:q3-close"},
        ("'tag:q3-close'",),
        "leave out 'tag:'",
    ),
    Mistake(
        "tagging what has expired",
        DuckLakeTagOperator,
        {"name": "q3-close", "at": 1},
        ("snapshot 1",),
        "the lake holds snapshots",
    ),
    Mistake(
        "a frozen lake in the working directory",
        DuckLakeExportCatalogOperator,
        {"path": "q3.ducklake"},
        ("'q3.ducklake'",),
        "give an absolute path or a URI",
    ),
    Mistake(
        "a frozen lake where a file is",
        DuckLakeExportCatalogOperator,
        {"path": "{data}/orders.parquet"},
        ("orders.parquet",),
        "remove that one: it is not a frozen lake's catalog",
    ),
    Mistake(
        "a bound of a number that there is not",
        DuckLakeTableHealthOperator,
        {"fail_above": {"size": 1}},
        ("'size'",),
        "choose from",
    ),
    Mistake(
        "files that are not there",
        DuckLakeAddFilesOperator,
        {"table": "orders", "paths": "{data}/gone.parquet"},
        ("gone.parquet",),
        "Check the path",
        retried=True,
    ),
    Mistake(
        "a table of another format that is not there",
        DuckLakeAddTableOperator,
        {"table": "orders", "source": "{data}/gone", "format": "delta"},
        ("gone",),
        "Correct the path",
        retried=True,
    ),
    Mistake("a sensor of a bad name", DuckLakeSnapshotSensor, {"table": "a..d"}, ("a..d",), "Quote parts"),
    Mistake(
        "a sensor of changes that there are not",
        DuckLakeSnapshotSensor,
        {"table": "orders", "changes": ("merge",)},
        ("merge",),
        "insert",
    ),
]
