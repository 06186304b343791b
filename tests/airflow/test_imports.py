"""A DAG file is parsed every few seconds: what importing our operators adds to what Airflow's own bring.

How long it takes is measured by ``benchmarks/imports.py``.
"""

import json
import pkgutil

from airflow_provider_ducklake import operators
from tests.airflow.processes import run_python

OPERATORS = tuple(
    one.name for one in pkgutil.iter_modules(operators.__path__, "airflow_provider_ducklake.operators.")
)
OF_LINKS = ["airflow.sdk.bases.operatorlink"]  # a small class, which Airflow asks operators for
HEAVY = {
    "pyspark",
    "pyarrow",
    "fsspec",
    "pandas",
    "numpy",
    "psycopg",
    "duckdb",
    "sqlalchemy",
    "sqlglot",
    "uuid6",
}

ADDED = f"""
    import json, sys
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    before = set(sys.modules)
    import {", ".join(OPERATORS)}
    print(json.dumps({{"before": sorted(before), "added": sorted(set(sys.modules) - before)}}))
"""


def test_a_dag_file_loads_nothing_heavy(record_property):
    found = json.loads(run_python(ADDED))

    before, added = found["before"], found["added"]
    record_property("modules of SparkSubmitOperator", len(before))
    record_property(
        "of them SQLAlchemy dialects", sum(name.startswith("sqlalchemy.dialects") for name in before)
    )
    record_property("modules added", ", ".join(added))
    assert set(OPERATORS) <= set(added)
    assert [name for name in added if name.split(".")[0] in HEAVY | {"airflow"}] == OF_LINKS
    assert [name for name in added if ".lake.catalog" in name or ".lake.storage" in name] == []
