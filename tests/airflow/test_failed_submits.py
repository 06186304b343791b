"""Jobs that die before they can say why: the task's error says it, in a sentence and by Spark's own line."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.errors import SourceNotFoundError, SparkJobError
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import context_of
from tests.airflow.spark_submit import LEAVES_PROCESS, SparkSubmit, files_below, recorded
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase

RECORDS = Path(__file__).parents[1] / "spark" / "failed_logs"
REPLAY = """
import os, sys
text = open(sys.argv[1]).read()
print(text, flush=True)
code = int(text.split()[-1].rstrip("."))
os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)
"""


pytestmark = [LEAVES_PROCESS, pytest.mark.usefixtures("collected")]


@pytest.fixture
def lake(
    sqlite_catalog: CatalogDatabase, connect: Callable[..., str], set_connection: Callable[..., str]
) -> CatalogDatabase:
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[1]")
    by_duckdb(sqlite_catalog, "CREATE TABLE orders (id INT)", data_inlining_row_limit=0)
    return sqlite_catalog


def insert(**arguments: Any) -> dict[str, Any]:
    arguments = {"sql": "SELECT 1 AS id"} | arguments
    operator = DuckLakeSparkInsertOperator(task_id="insert", table="main.orders", **arguments)
    return operator.execute(context_of("insert"))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("no_master", r"^No Spark master answers .* Spark says: .*All masters are unresponsive"),
        ("old_java", "^The Java where the task runs is too old"),
        ("no_such_package", "^Spark cannot download one of .*hadoop-aws;0.0.1"),
        ("no_request", "^The Spark driver cannot read .*request.json"),
        ("killed_jvm", "^The Spark driver was killed from outside"),
    ],
)
def test_the_log_of_a_dead_job_is_told(lake, tmp_path, monkeypatch, record, message):
    SparkSubmit(tmp_path / "bin", [sys.executable, "-c", REPLAY, str(RECORDS / f"{record}.txt")], monkeypatch)

    with pytest.raises(SparkJobError, match=message) as caught:
        insert()

    assert "Cannot execute" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert files_below(lake) == []


SAYS_AND_DIES = """
import sys
from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.spark.job import io as job_io
print(open(sys.argv[1]).read(), flush=True)
job_io.write_error(job_io.read_request(*sys.argv[-2:]), SparkJobError(sys.argv[2]))
sys.exit(1)
"""
CAST = "NumberFormatException: [CAST_INVALID_INPUT] The value 'JAVA_HOME is not set' of the type"
STOPPED = "SparkException: Job 3 cancelled because SparkContext was shut down"


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ("no_java", CAST, f"^{re.escape(CAST)}"),
        ("no_such_package", CAST, f"^{re.escape(CAST)}"),
        ("no_master", STOPPED, f"(?s)^No Spark master answers .*\n  {STOPPED}"),
        ("no_master", CAST, f"^{re.escape(CAST)}"),
    ],
)
def test_the_error_that_a_job_left_is_raised_whatever_its_log_says(
    tmp_path, monkeypatch, record, error, message
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    command = [sys.executable, "-P", "-c", SAYS_AND_DIES, str(RECORDS / f"{record}.txt"), error]
    SparkSubmit(tmp_path / "bin", command, monkeypatch)

    with pytest.raises(SparkJobError, match=message):
        insert()


def test_without_java_the_task_says_so(lake, tmp_path, monkeypatch):
    recorded(tmp_path / "bin", monkeypatch)
    programs = tmp_path / "no_java"
    programs.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith("java"):
            (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{programs}")
    monkeypatch.delenv("JAVA_HOME")

    with pytest.raises(
        SparkJobError, match=r"^Spark found no Java where the task runs.* JAVA_HOME is not set$"
    ):
        insert()

    assert files_below(lake) == []


@pytest.mark.parametrize("path", ["in.csv", "folder/", "file.parquet"])
def test_a_source_that_is_not_there_yet_is_found_before_spark_starts_and_retried(
    lake, tmp_path, monkeypatch, path
):
    submit = recorded(tmp_path / "bin", monkeypatch)

    with pytest.raises(SourceNotFoundError, match=f"source: .*/{path} does not exist.*retries wait"):
        insert(sql=None, source=f"{tmp_path}/{path}")
    with pytest.raises(SourceNotFoundError, match=r"sources\['o'\]: .* does not exist"):
        insert(sources={"o": f"{tmp_path}/{path}"})

    assert submit.calls == []
    assert files_below(lake) == []


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("path", ["{{ none }}", "{{ '' }}", None])
def test_a_source_that_renders_to_nothing_has_a_sentence_of_its_own(tmp_path, monkeypatch, path):
    submit = recorded(tmp_path / "bin", monkeypatch)
    operator = DuckLakeSparkInsertOperator(task_id="insert", table="main.orders", source="{{ x }}")
    operator.source = path if path is None else operator.render_template(path, {})

    with pytest.raises(
        AirflowFailException, match=r"^InvalidInputError: source is .*template rendered no value"
    ):
        operator.execute(context_of("insert"))

    assert submit.calls == []
