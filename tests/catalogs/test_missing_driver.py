"""A catalog whose driver is not installed says which extra brings it."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
sys.modules[sys.argv[2]] = None
from airflow_provider_ducklake.catalog.lake import Lake
try:
    Lake.create(sys.argv[1], "/data")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("postgresql://u@127.0.0.1:1/d", "psycopg", "postgres"),
        ("mysql://u@127.0.0.1:1/d", "pymysql", "mysql"),
        ("duckdb:///{folder}/lake.duckdb", "duckdb_engine", "duckdb"),
        ("duckdb:///{folder}/lake.duckdb", "pytz", "duckdb"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(url, module, extra, tmp_path):
    arguments = [url.format(folder=tmp_path), module]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("CatalogUnavailableError")
    assert f"missing: {module}" in done.stdout
    assert f"airflow-provider-ducklake-spark[{extra}]" in done.stdout
