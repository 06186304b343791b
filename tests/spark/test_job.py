"""The whole job by spark-submit, in an interpreter with nothing but pyspark and pyarrow; its parts."""

import logging
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import SchemaMismatchError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job import package_zip
from airflow_provider_ducklake.lake.spark.job.package_zip import application_file
from airflow_provider_ducklake.lake.spark.job.request import source_of
from airflow_provider_ducklake.lake.spark.sessions import classic
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


# --- the submitted file keeps large jars, which Spark puts on Python's path, from who looks for modules ---

RUN = "import sys\ndef main(arguments):\n    print(*sys.path, *arguments, sep='\\n')\n    return 7\n"


def test_large_jars_are_no_place_for_modules(tmp_path: Path):
    jobs = tmp_path / "airflow_provider_ducklake" / "lake" / "spark" / "jobs"
    jobs.mkdir(parents=True)
    for folder in (jobs, *jobs.parents[:3]):
        (folder / "__init__.py").touch()
    (jobs / "run.py").write_text(RUN)
    jars = {size: tmp_path / f"{size}.jar" for size in ("small", "large")}
    for jar in jars.values():
        jar.touch()
    os.truncate(jars["large"], 51 * 2**20)
    path = [str(tmp_path / "missing.jar"), *map(str, jars.values()), str(tmp_path)]

    ended = subprocess.run(
        [sys.executable, str(application_file()), "uri"],
        env={"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 7, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[-1] == "uri"
    assert str(jars["small"]) in lines
    assert str(tmp_path / "missing.jar") in lines
    assert str(jars["large"]) not in lines


# --- what a job imports ---

SCRIPT = """
import sys
for absent in ("airflow", "fsspec", "numpy", "pandas", "pyspark", "sqlalchemy"):
    sys.modules[absent] = None
import pyarrow as pa
from airflow_provider_ducklake.lake.format.files import LiveDataFile
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter

schema = new_columns({"x": "float64", "l": "struct(s varchar, d decimal(38,2))[]", "n": "timestamp_ns"})
rows = [{"x": float(n), "l": [{"s": "y" * 5000, "d": None}], "n": None} for n in range(9)]
with RollingWriter(schema, lambda: sys.argv[1]) as writer:
    writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)))
file = LiveDataFile(1, sys.argv[1], 9, 1, 1, 0, 1)
assert read_data_file(file, schema, table="t", snapshot_id=1).cast().to_pylist() == rows
assert writer.files[0].column_stats[1].max_value == "8.0"
"""


def test_files_are_written_and_read_with_pyarrow_alone(tmp_path):
    """A Spark executor may have nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "file")], check=False, capture_output=True
    )

    assert done.returncode == 0, done.stderr.decode()


# --- the zip that travels with a job ---


def test_the_same_sources_give_the_same_file(tmp_path):
    first, second = package_zip.package_zip(tmp_path), package_zip.package_zip(tmp_path)

    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    package_zip._zip_bytes.cache_clear()
    assert package_zip.zip_bytes() == first.read_bytes()


def test_it_holds_what_a_job_imports_and_nothing_of_airflow_or_the_catalog(tmp_path):
    with zipfile.ZipFile(package_zip.package_zip(tmp_path)) as archive:
        names = archive.namelist()

    folders = {name.split("/")[2] for name in names if name.startswith("airflow_provider_ducklake/lake/")}
    assert folders == {"__init__.py", "errors.py", "format", "planning", "spark", "storage", "transaction"}
    assert [name for name in names if "/lake/" not in name] == ["airflow_provider_ducklake/__init__.py"]
    assert "airflow_provider_ducklake/lake/spark/job/io.py" in names
    assert all(name.endswith(".py") for name in names)


def test_the_submitted_file_lies_alone():
    folder = package_zip.application_file().parent

    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["main.py"]


# --- lines about a long action ---


@pytest.mark.classic_only("RDDs")
def test_a_long_action_says_how_far_it_is_and_a_short_one_nothing(spark):
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    classic.log.addHandler(handler)
    classic.log.setLevel(logging.INFO)
    try:
        with classic.progress_lines(spark, seconds=60):
            spark.range(1).count()
        assert lines == []
        with classic.progress_lines(spark, seconds=0.2):
            spark.sparkContext.parallelize(range(16), 4).map(lambda _: time.sleep(0.1)).collect()
    finally:
        classic.log.removeHandler(handler)
        classic.log.setLevel(logging.NOTSET)

    assert lines
    assert all(" of 4 tasks done, " in line for line in lines)
