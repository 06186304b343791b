"""Compare reads of a lake in Spark with Spark's plain scan of the same files, and read_arrow with DuckDB.

One session, variants interleaved, medians; the plain scan has the same explicit schema. Targets: full scan
≤ 1.05, two columns ≤ 1.15, 5 % of the files with deletes ≤ 1.15, deletes in every file ≤ 1.7, ``read_arrow``
≤ 1.5 times DuckDB. CPU is that of the JVM. Run it on an idle machine.

    python benchmarks/read.py                       # 10M rows in 20 files, 7 rounds
    python benchmarks/read.py --rows 2000000 --rounds 3
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spark.read import read_table
from airflow_provider_ducklake.lake.spark.reading.read_files import scan
from airflow_provider_ducklake.lake.spark.reading.read_layout import present_layout
from benchmarks.insert_overhead import start_spark
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import open_lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from tests.reference.duckdb_lake import DuckLakeConnection

FILES = 20
COLUMNS = """
    r::BIGINT AS id, (r * 7919 % 1000003)::INT AS number, (r * 13 % 100003) / 7.0::DOUBLE AS ratio,
    'customer-' || (r * 2654435761 % 1000000007) AS many, 'region-' || (r % 23) AS few,
    TIMESTAMP '2024-01-01' + to_seconds(r % 1000000) AS moment,
    (r * 104729 % 100000000 / 10000)::DECIMAL(18,4) AS amount,
    {'a': (r % 1000)::INT, 'b': 's' || (r % 5000)} AS st
"""
TWO = ("id", "amount")
# (table, share of its files that have deletes, one row in how many is deleted there)
DELETES = [("plain", 0.0, 0), ("few", 0.05, 20), ("one_percent", 1.0, 100), ("ten_percent", 1.0, 10)]


def fill(duck: DuckLakeConnection, rows: int) -> None:
    """Make a table for each case, all with the same rows."""
    duck.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
    duck.sql("CALL lake.set_option('parquet_compression', 'zstd')")
    per_file = rows // FILES
    for table, share, one_in in DELETES:
        duck.sql(f"CREATE TABLE {table} AS SELECT {COLUMNS} FROM range(0) x(r)")
        for number in range(FILES):
            first = number * per_file
            duck.sql(f"INSERT INTO {table} SELECT {COLUMNS} FROM range({first}, {first + per_file}) x(r)")
        if one_in:
            below = max(1, int(FILES * share)) * per_file
            duck.sql(f"DELETE FROM {table} WHERE id < {below} AND hash(id) % {one_in} = 0")


def plain(spark: SparkSession, plan: ScanPlan) -> DataFrame:
    """Return Spark's own scan of the plan's files."""
    columns = tuple(plan.table.schema.find(name) for name in plan.columns)
    layout = present_layout(columns)
    assert layout is not None
    return scan(spark, [file.path for file in plan.files], layout, columns)


def to_nowhere(df: DataFrame) -> None:
    """Compute all rows."""
    df.write.format("noop").mode("overwrite").save()


def variants(spark: SparkSession, lake: Lake) -> dict[str, Callable[[], None]]:
    """Return what to time by name; ``_plain`` stands behind the name of what it is compared with."""
    found: dict[str, Callable[[], None]] = {}

    def add(name: str, plan: ScanPlan) -> None:
        found[f"{name}_plain"] = lambda: to_nowhere(plain(spark, plan))
        found[name] = lambda: to_nowhere(read_table(spark, plan))

    for table, *_ in DELETES:
        add(table, lake.scan(table))
    add("two_columns", lake.scan("plain", columns=TWO))
    never = lake.scan("plain")
    found["filter_plain"] = lambda: to_nowhere(plain(spark, never))
    found["filter"] = lambda: to_nowhere(plain(spark, never).where("id >= 0 OR number IS NULL"))
    return found


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    rounds: int, runs: dict[str, Callable[[], None]], process: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Return the wall and CPU seconds of each run, in each round but the first, which warms up."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            cpu, wall = cpu_seconds(process), time.perf_counter()
            run()
            if number:
                times[name][0].append(time.perf_counter() - wall)
                times[name][1].append(cpu_seconds(process) - cpu)
    return times


def report(times: dict[str, tuple[list[float], list[float]]], name: str, reference: str) -> None:
    """Print the medians of a run, and of its ratio to the reference in each round."""
    (wall, cpu), (base_wall, base_cpu) = times[name], times[reference]
    ratio = statistics.median(one / other for one, other in zip(wall, base_wall, strict=True))
    of_cpu = statistics.median(cpu) / max(0.01, statistics.median(base_cpu))
    least = min(wall) / min(base_wall)
    print(
        f"{name:12} {statistics.median(wall):6.2f} s  {statistics.median(cpu):6.2f} cpu  "
        f"x{ratio:.2f} wall, x{least:.2f} least wall, x{of_cpu:.2f} cpu of {reference}"
    )


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        catalog = file_catalog("sqlite", Path(folder))
        with open_lake(catalog) as duck:
            fill(duck, arguments.rows)
            duck.sql("SET threads = 2")
            spark = start_spark()
            process = spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001
            with Lake.connect(catalog.sqlalchemy_url) as lake:
                runs = variants(spark, lake)
                times = measure(arguments.rounds, runs, process)
                for name in runs:
                    if f"{name}_plain" in runs:
                        report(times, name, f"{name}_plain")
                readers: dict[str, Callable[[], None]] = {}
                for table, *_ in DELETES:
                    readers[f"arrow_{table}"] = lambda table=table: lake.read_arrow(table) and None
                    readers[f"duckdb_{table}"] = lambda table=table: duck.arrow(f"FROM {table}") and None
                times = measure(min(3, arguments.rounds), readers, os.getpid())
                for table, *_ in DELETES:
                    report(times, f"arrow_{table}", f"duckdb_{table}")
            spark.stop()


if __name__ == "__main__":
    main()
