"""Measure what importing our operators adds to a DAG file that has Airflow's SparkSubmitOperator.

Target: a tenth of a second of processor time.

    python benchmarks/imports.py
"""

from __future__ import annotations

import pkgutil
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from airflow_provider_ducklake import operators  # noqa: E402
from tests.airflow.conftest import run_python  # noqa: E402

OPERATORS = [one.name for one in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}.")]
ROUNDS = 5
MEASURE = f"""
    import time
    started = time.process_time()
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    airflow = time.process_time()
    import {", ".join(OPERATORS)}
    print(airflow - started, time.process_time() - airflow)
"""


def main() -> int:
    rounds = [run_python(MEASURE).split() for _ in range(ROUNDS)]
    airflow, ours = (statistics.median(float(one[place]) for one in rounds) for place in (0, 1))
    print(f"SparkSubmitOperator {airflow:.2f} s, ours {ours:.3f} s more: {ours / airflow:.3f} of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
