"""Compare inserts and scans of an encrypted lake with those of a plain one: ratios of medians.

One session, both lakes in turn, the same rows. Target: insert and scan at most 1.6 times the plain lake's.
Run it on an idle machine.

    python benchmarks/encryption.py                      # 2M rows, 5 rounds
    python benchmarks/encryption.py --rows 200000 --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.writes.session import LakeSession
from benchmarks.insert_overhead import start_spark
from tests.reference.catalogs import file_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "int64", "few": "varchar", "many": "varchar", "ratio": "float64", "at": "timestamp"}
ROWS = (
    "id",
    "concat('region-', id % 23) AS few",
    "concat('customer-', id * 2654435761 % 1000000007) AS many",
    "id / 7D AS ratio",
    "timestamp_ntz'2024-01-01 00:00:00' + make_dt_interval(0, 0, 0, id % 100000) AS at",
)
NAMES = ("plain", "encrypted")


def main() -> None:
    """Print seconds and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    spark = start_spark()
    rows = spark.range(0, arguments.rows, 1, 4).selectExpr(*ROWS).localCheckpoint()
    with tempfile.TemporaryDirectory() as folder:
        lakes = {name: _lake(Path(folder) / name, encrypted=name == "encrypted") for name in NAMES}
        for what, act in (("insert", _insert), ("scan", _scan), ("scan without Spark", _read_arrow)):
            seconds: dict[str, list[float]] = {name: [] for name in NAMES}
            for _ in range(arguments.rounds + 1):  # the first is left out
                for name in NAMES:
                    seconds[name].append(_timed(partial(act, spark, lakes[name], rows)))
            plain, encrypted = (statistics.median(seconds[name][1:]) for name in NAMES)
            print(f"{what:20} plain {plain:6.2f} s, encrypted {encrypted:6.2f} s: x{encrypted / plain:.2f}")


def _lake(folder: Path, *, encrypted: bool) -> Lake:
    folder.mkdir()
    catalog = file_catalog("sqlite", folder)
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path, encrypted=encrypted)
    lake.set_option("data_inlining_row_limit", 0)
    with lake.transaction() as tx:
        tx.create_table("t", COLUMNS)
    return lake


def _insert(spark: SparkSession, lake: Lake, rows: DataFrame) -> None:
    LakeSession(spark, lake).insert("t", rows, mode="overwrite")


def _scan(spark: SparkSession, lake: Lake, _rows: DataFrame) -> None:
    LakeSession(spark, lake).read("t").write.format("noop").mode("overwrite").save()


def _read_arrow(_spark: SparkSession, lake: Lake, _rows: DataFrame) -> None:
    lake.read_arrow("t")


def _timed(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
