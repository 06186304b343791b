"""A catalog file that any DuckDB makes for us is one that DuckDB 1.x opens."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.catalog.database.connect import duckdb_engine, parse_url
from tests.reference.duckdb_lake import open_lake

MAKE_LAKE = """
import sys
import pyarrow as pa
from airflow_provider_ducklake.catalog.lake import Lake

with Lake.create(sys.argv[1], sys.argv[2]) as lake:
    with lake.transaction() as tx:
        tx.create_table("main.orders", {"id": "int64"})
        tx.append_arrow("main.orders", pa.table({"id": [1, 2]}))
import duckdb
print(duckdb.__version__)
"""
OF_FILE = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'lake'"


def _packages(version: str, folder: Path) -> list[str]:
    """Return the path of that DuckDB's packages; none for the one that is installed."""
    if version == duckdb.__version__:
        return []
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", folder, f"duckdb=={version}"]
    subprocess.run(command, check=True)
    return [str(folder)]


@pytest.fixture
def versions(size) -> list[str]:
    return [duckdb.__version__] if size == "ci" else [duckdb.__version__, "2.0.0"]


def test_the_reference_opens_a_catalog_file_whichever_duckdb_made_it(versions, tmp_path):
    for version in versions:
        catalog, data_path = tmp_path / version / "lake.duckdb", f"{tmp_path / version}/files/"
        catalog.parent.mkdir()
        paths = [*_packages(version, tmp_path / f"duckdb-{version}"), str(Path(__file__).parents[2])]
        made = subprocess.run(
            [sys.executable, "-c", MAKE_LAKE, f"duckdb:///{catalog}", data_path],
            env={"PYTHONPATH": ":".join(paths), "PATH": ""},
            check=True,
            capture_output=True,
            text=True,
        )

        with open_lake(f"ducklake:{catalog}") as lake:
            assert lake.sql("SELECT sum(id) FROM orders") == [(3,)]
        assert made.stdout.split() == [version]
        with duckdb.connect(catalog) as connection:
            assert connection.execute(OF_FILE).fetchall() == [("v1.0.0+",)]


def test_new_catalog_files_are_asked_for_as_of_duckdb_1(duckdb_catalog):
    for read_only in (False, True):
        engine = duckdb_engine(parse_url(f"duckdb:///{duckdb_catalog.location}"), read_only=read_only)
        with engine.connect() as connection:
            asked = connection.exec_driver_sql("SELECT current_setting('storage_compatibility_version')")
            assert asked.scalar_one() == "v1.0.0"
