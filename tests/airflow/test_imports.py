"""A DAG file is parsed every few seconds: what importing our operator adds to what Airflow's own brings."""

import json

from tests.airflow.processes import run_python

MODULE = "airflow_provider_ducklake.operators.insert"
WITHOUT_SPARK = "airflow_provider_ducklake.operators.ddl"
COMMIT = "airflow_provider_ducklake.operators.commit"
SQL = "airflow_provider_ducklake.operators.sql"
STREAM = "airflow_provider_ducklake.operators.stream"
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
MOST_SECONDS = 0.1
ROUNDS = 3

# Processor time of one process: whatever else runs on the machine does not count.
MEASURE = f"""
    import json, sys, time
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    before, started = set(sys.modules), time.process_time()
    import {MODULE}
    import {WITHOUT_SPARK}
    import {COMMIT}
    import {SQL}
    import {STREAM}
    seconds, added = time.process_time() - started, set(sys.modules) - before
    print(json.dumps({{"before": sorted(before), "added": sorted(added), "seconds": seconds}}))
"""


def test_a_dag_file_waits_a_tenth_of_a_second_at_most_and_loads_nothing_heavy(record_property):
    measured = [json.loads(run_python(MEASURE)) for _ in range(ROUNDS)]

    before, added = measured[0]["before"], measured[0]["added"]
    record_property("modules of SparkSubmitOperator", len(before))
    record_property(
        "of them SQLAlchemy dialects", sum(name.startswith("sqlalchemy.dialects") for name in before)
    )
    record_property("modules added", ", ".join(added))
    assert {MODULE, WITHOUT_SPARK, COMMIT, SQL, STREAM} <= set(added)
    assert [name for name in added if name.split(".")[0] in HEAVY | {"airflow"}] == []
    assert [name for name in added if ".catalog" in name or ".storage" in name] == []
    assert min(one["seconds"] for one in measured) <= MOST_SECONDS, measured  # the others were disturbed
