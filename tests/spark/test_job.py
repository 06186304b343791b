"""The whole job by spark-submit, in an interpreter that has pyspark and pyarrow and nothing else."""

import re
import subprocess
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import SchemaMismatchError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import source_of
from tests.spark.submission import log_of, make_request, slim_python, start

TRANSFORM = """
import importlib.util
import sys

def orders(spark, sources):
    absent = ["pandas", "numpy", "airflow", "sqlalchemy", "fsspec", "duckdb"]
    assert not [name for name in absent if importlib.util.find_spec(name)], absent
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert ".zip/" in sys.modules["airflow_provider_ducklake"].__file__
    return sources["orders"].selectExpr("tags", "id", "concat(name, '!') as name")
"""


@pytest.fixture(scope="module")
def slim(tmp_path_factory) -> Path:
    return slim_python(tmp_path_factory.mktemp("slim") / "venv")


def test_a_transform_runs_through_arrow_without_pandas(slim, tmp_path, new_plan):
    source = tmp_path / "orders.json"
    source.write_text('{"id": 1, "name": "a", "tags": ["x", "y"]}\n{"id": 2, "name": "b", "tags": []}\n')
    module = tmp_path / "shop_rows.py"
    module.write_text(TRANSFORM)
    schema = new_columns({"id": "int64", "name": "varchar", "tags": "varchar[]"}, not_null=["id"])
    request = make_request(
        new_plan(schema, ("bucket(2, name)",)),
        source_of(transform="shop_rows:orders", sources={"orders": str(source)}),
    )

    given = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    process = start(request, tmp_path, python=slim, py_files=(module,), conf=given)

    assert process.wait(150) == 0, log_of(tmp_path)
    (result,) = job_io.read_results(request)
    assert result.rows_written == 2
    paths = [file.path for file in result.data_files]
    rows = duckdb.sql(f"SELECT id, name, tags FROM read_parquet({paths}) ORDER BY id").fetchall()
    assert rows == [(1, "a!", ["x", "y"]), (2, "b!", [])]
    assert_short_and_ends_with_numbers(log_of(tmp_path))


def assert_short_and_ends_with_numbers(log: str) -> None:
    lines = log.splitlines()
    assert len(lines) < 25, log
    assert re.search(r"Wrote 2 rows of main\.t in \d files? \(.*\), in [\d.]+ s$", lines[-1])


def test_the_operator_gets_the_jobs_own_error(slim, tmp_path, new_plan):
    source = tmp_path / "orders.csv"
    source.write_text("id,extra\n1,2\n")
    request = make_request(new_plan(new_columns({"id": "int64", "name": "varchar"})), source_of(str(source)))

    process = start(request, tmp_path, python=slim)

    assert process.wait(150) == 1, log_of(tmp_path)
    with pytest.raises(SchemaMismatchError) as caught:
        job_io.read_results(request)
    assert caught.value.differences == ("column extra is not in the table", "column name is missing")
    assert "Traceback" not in log_of(tmp_path)
    names = sorted(path.name for path in Path(request.directory).iterdir())
    assert names == ["_ERROR.json", "request.json"]


def test_the_slim_interpreter_is_slim(slim):
    code = "import importlib.util as u; print([n for n in ('pandas', 'numpy', 'airflow') if u.find_spec(n)])"

    assert subprocess.check_output([slim, "-c", code]) == b"[]\n"
