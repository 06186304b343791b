"""Time the reading of large CSV and JSON files, beside Spark's own reader with the same types in one session.

Target: at most 1.2 times Spark's time, to Parquet files.

    python benchmarks/text_sources.py                       # a file of 1 GB of each format, 3 rounds
    python benchmarks/text_sources.py --megabytes 100 --rounds 1
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from airflow_provider_ducklake.lake.spark.job.request import Dataset  # noqa: E402
from airflow_provider_ducklake.lake.spark.text_sources import read_texts  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_TYPES = "id BIGINT, name STRING, note STRING, price DECIMAL(12,2), ratio DOUBLE, day DATE, at TIMESTAMP_NTZ"
_ROW = """
    i AS id, 'name ' || i AS name, 'a "quoted", and separated note of ' || i AS note,
    (i / 4)::DECIMAL(12, 2) AS price, i / 7.0 AS ratio, DATE '1997-05-19' + (i % 9000)::INTEGER AS day,
    make_timestamp(1000000000000000 + i * 1000003) AS at
"""
_BYTES = {"csv": 132, "json": 192}  # of a row, about


def write(path: Path, megabytes: int) -> None:
    """Write a file of one format, which its suffix names, by DuckDB."""
    kind = path.suffix[1:]
    rows = f"SELECT {_ROW} FROM range({megabytes * 10**6 // _BYTES[kind]}) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT {kind})")


def timed(run: Callable[[], None]) -> float:
    begin = time.monotonic()
    run()
    return time.monotonic() - begin


def measure(spark: SparkSession, path: Path, rounds: int, *, has_types: bool) -> None:
    kind = path.suffix[1:]
    options = {"header": "true"} if kind == "csv" else {}
    if has_types:
        options["schema"] = _TYPES

    def ours() -> DataFrame:
        return read_texts(spark, Dataset(kind, str(path), options), str(path), "rows", None, fills=False)

    def sparks() -> DataFrame:
        reader = spark.read.schema(_TYPES) if has_types else spark.read
        reader = reader.options(mode="FAILFAST")
        return reader.csv(str(path), header=True, escape='"') if kind == "csv" else reader.json(str(path))

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        seconds: dict[str, list[float]] = {"ours": [], "Spark's": []}
        for turn in range(rounds + 1):  # the first warms up
            for name, read in (("ours", ours), ("Spark's", sparks)):
                took = timed(lambda read=read: read().write.mode("overwrite").parquet(f"{folder}/rows"))
                if turn:
                    seconds[name].append(took)
    mine, plain = (statistics.median(found) for found in seconds.values())
    size, types = path.stat().st_size / 1e6, "given types" if has_types else "no types"
    print(
        f"{kind:4} {size:.0f} MB, {types}: {mine:.1f} s, Spark's reader {plain:.1f} s: {mine / plain:.2f} x",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    builder = SparkSession.builder.master("local[*]").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "json"):
            path = Path(folder) / f"rows.{kind}"
            write(path, given.megabytes)
            for has_types in (True, False):
                measure(spark, path, given.rounds, has_types=has_types)
            path.unlink()
    spark.stop()


if __name__ == "__main__":
    main()
