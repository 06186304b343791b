"""Compare our write step with plain ``df.write.parquet`` of the same rows, codec and page version.

Our step is everything between the DataFrame and the operator: columns assigned, files written, footers read,
result files written. Run it on an idle machine. Targets: mixed ≤ 1.10, with a list (Arrow engine) ≤ 1.35.

    python benchmarks/insert_overhead.py                        # 10M rows, 5 rounds, both shapes
    python benchmarks/insert_overhead.py --rows 500000 --rounds 3
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import JobRequest, job_directory, source_of
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
from airflow_provider_ducklake.lake.spark.types.spark_types import fields_of_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

TARGETS = {"mixed": 1.10, "list": 1.35}
MIXED = (
    "id",
    "cast(id * 2654435761 % 1000003 as int) as number",
    "case when id % 97 = 0 then double('nan') else (id * 7919 % 1000033) / 7.0D end as ratio",
    "concat('customer-', id * 2654435761 % 1000000007) as many",
    "concat('region-', id % 23) as few",
    "timestamp_seconds(1700000000 + id * 13 % 31536000) as at",
    "cast((id * 104729 % 100000000) / 10000 as decimal(18,4)) as amount",
    "named_struct('a', cast(id % 1000 as int), 'b', concat('s', id % 5000)) as st",
)
LISTED = (*MIXED, "array(cast(id % 10 as int), cast(id % 100 as int), cast(id % 1000 as int)) as items")


def start_spark() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    prepare(spark)
    return spark


def plain(df: DataFrame, folder: Path) -> None:
    """Write as anyone would, with our codec and page version."""
    options = {"compression": "zstd", "parquet.writer.version": "v2"}
    df.write.options(**options).parquet(str(folder / "plain"))


def ours(df: DataFrame, folder: Path) -> None:
    """Write as the job does, result files included."""
    job_id = str(uuid.uuid4())
    schema = new_columns(fields_of_spark(df.schema))
    plan = WritePlan("main.t", job_directory(f"{folder}/", job_id), schema)
    request = JobRequest(job_id, source_of("unused.parquet"), (plan,))
    job_io.write_results(request, [write(df, plan)])


def seconds(action: Callable[[DataFrame, Path], None], df: DataFrame, root: Path) -> float:
    folder = Path(tempfile.mkdtemp(dir=root))
    os.sync()
    started = time.perf_counter()
    action(df, folder)
    elapsed = time.perf_counter() - started
    shutil.rmtree(folder)
    return elapsed


def compare(spark: SparkSession, shape: str, rows: int, rounds: int, root: Path) -> float:
    """Print and return the ratio of the medians of interleaved rounds; the first one only warms up."""
    columns = MIXED if shape == "mixed" else LISTED
    path = str(root / f"source-{shape}")
    spark.range(0, rows, 1, 4).selectExpr(*columns).write.mode("overwrite").parquet(path)
    df = spark.read.parquet(path)
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for number in range(rounds + 1):
        order = [("plain", plain), ("ours", ours)]
        for name, action in order if number % 2 else order[::-1]:
            elapsed = seconds(action, df, root)
            if number:
                times[name].append(elapsed)
    middle = {name: statistics.median(found) for name, found in times.items()}
    ratio = middle["ours"] / middle["plain"]
    print(
        f"{shape}: plain {middle['plain']:.2f} s, ours {middle['ours']:.2f} s, ratio {ratio:.2f} "
        f"(target {TARGETS[shape]:.2f}); rounds plain {shown(times['plain'])}, ours {shown(times['ours'])}",
        flush=True,
    )
    return ratio


def start_up_seconds() -> float:
    """Return how long spark-submit takes to start a session and do nothing: what every job pays besides."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "nothing.py")
        job.write_text("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().stop()\n")
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", str(job)]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - started


def shown(times: list[float]) -> str:
    return "/".join(f"{elapsed:.2f}" for elapsed in times)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=["mixed", "list", "both"], default="both")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    shapes = ["mixed", "list"] if arguments.shape == "both" else [arguments.shape]
    print(f"spark-submit's start-up, not counted below: {start_up_seconds():.1f} s", flush=True)
    spark = start_spark()
    with tempfile.TemporaryDirectory() as root:
        ratios = {
            shape: compare(spark, shape, arguments.rows, arguments.rounds, Path(root)) for shape in shapes
        }
    spark.stop()
    missed = [shape for shape, ratio in ratios.items() if ratio > TARGETS[shape]]
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
