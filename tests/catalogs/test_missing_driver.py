"""A catalog whose driver is not installed names the packages of the extra that brings it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPT = """
import sys
sys.modules[sys.argv[2]] = None
from airflow_provider_ducklake.lake.catalog.lake import Lake
try:
    Lake.create(sys.argv[1], "/data")
except Exception as error:
    print(type(error).__name__, error)
"""


EXPORT = """
import sys
sys.modules["duckdb"] = sys.modules["duckdb_engine"] = None
from airflow_provider_ducklake.lake.catalog.lake import Lake
lake = Lake.create(f"sqlite:///{sys.argv[1]}/lake.sqlite", f"{sys.argv[1]}/data/")
print(lake.export_catalog(f"{sys.argv[1]}/frozen.sqlite").format)
try:
    lake.export_catalog(f"{sys.argv[1]}/frozen.ducklake")
except Exception as error:
    print(type(error).__name__, error)
"""


MACRO = """
import sys
sys.modules["duckdb"] = None
from airflow_provider_ducklake.lake import parse_ddl
try:
    parse_ddl("CREATE TABLE t (i INTEGER); CREATE MACRO m(a) AS a")
except Exception as error:
    print(type(error).__name__, error)
"""


def installing(extra: str) -> str:
    """Return the packages of an extra: those of ours are on no index."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    return " ".join(map(repr, project["optional-dependencies"][extra]))


def test_a_lake_is_frozen_into_sqlite_without_duckdb_and_else_the_extra_is_named(tmp_path):
    arguments = [sys.executable, "-c", EXPORT, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)

    made, refused = done.stdout.splitlines()
    assert made == "sqlite"
    assert refused.startswith("CatalogUnavailableError")
    assert f"{tmp_path}/frozen.ducklake: its driver is not installed here" in refused
    assert f"pip install {installing('duckdb')}" in refused


def test_a_macro_needs_duckdb_and_names_its_package():
    done = subprocess.run([sys.executable, "-c", MACRO], capture_output=True, text=True, check=True)

    name, _, message = done.stdout.partition(" ")
    assert name == "UnsupportedFeatureError"
    assert message.endswith(f"pip install {installing('duckdb').split()[0]}.\n")


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
    assert f"pip install {installing(extra)}" in done.stdout
