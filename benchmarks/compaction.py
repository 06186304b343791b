"""Compare merging small files with DuckDB, and with Iceberg's and Delta Lake's compaction on one Spark.

One warm session, interleaved rounds over the same rows in as many files; each round starts from the table as
it was made. Targets: ours ≤ 0.6 times DuckDB's ``ducklake_merge_adjacent_files`` on as many cores, ≤ 0.25
times Iceberg's ``rewrite_data_files`` and Delta Lake's ``OPTIMIZE``; peak memory the same for five times as
many files. What spark-submit takes to start is printed beside it. Needs Maven Central. Run it on an idle
machine.

    python benchmarks/compaction.py                              # 1,000 files, then ours with 5,000
    python benchmarks/compaction.py --files 100 --more-files 0 --rounds 1 --who ours duckdb
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from merge import COLUMNS, start_spark, timed  # noqa: E402

from scripts import spark_peers  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

TOTALS = "count(*), sum(id), sum(number), cast(sum(amount) AS DECIMAL(38, 4))"


class System(ABC):
    """A table of many small files, and what merges them."""

    name: str

    def __init__(self, spark: SparkSession, folder: Path, files: int, rows: int) -> None:
        self.spark, self.folder = spark, folder
        self.files, self.rows = files, rows

    @abstractmethod
    def prepare(self) -> None:
        """Make the table."""

    @abstractmethod
    def reset(self) -> None:
        """Have the table as it was made."""

    @abstractmethod
    def compact(self) -> None:
        """Make large files of the small ones."""

    @abstractmethod
    def state(self) -> tuple[tuple[Any, ...], int]:
        """Return sums that tell the table from others, and how many files it has."""


class Duck(System):
    """DuckDB with two threads; the lake that it made is that of ours, too."""

    name = "duckdb"

    def prepare(self) -> None:
        from tests.reference.catalogs import CatalogDatabase, file_catalog

        made = self.folder / f"lake-{self.files}"
        if not made.exists():
            made.mkdir()
            self._make(file_catalog("sqlite", made))
        self.first = made / "catalog.sqlite"
        own = self.folder / f"{self.name}-{self.files}.sqlite"
        self.catalog = CatalogDatabase("sqlite", str(own), f"{made}/data/")
        self.reset()

    def _make(self, catalog: Any) -> None:  # noqa: ANN401 - imported late
        from tests.reference.duckdb_lake import open_lake

        with open_lake(catalog, data_inlining_row_limit=0) as lake:
            lake.sql(f"CREATE TABLE t AS SELECT {COLUMNS} FROM range(0) x(r)")
            for number in range(self.files):
                first = number * self.rows
                lake.sql(f"INSERT INTO t SELECT {COLUMNS} FROM range({first}, {first + self.rows}) x(r)")

    def reset(self) -> None:
        shutil.copy(self.first, self.catalog.location)

    def compact(self) -> None:
        self.sql("CALL ducklake_merge_adjacent_files('lake', 't')")

    def sql(self, sql: str) -> list[tuple[Any, ...]]:
        from tests.reference.duckdb_lake import open_lake

        with open_lake(self.catalog, data_inlining_row_limit=0) as lake:
            lake.raw.execute("SET threads = 2")
            return lake.sql(sql)

    def state(self) -> tuple[tuple[Any, ...], int]:
        count = self.sql("SELECT count(*) FROM ducklake_list_files('lake', 't')")[0][0]
        return self.sql(f"SELECT {TOTALS} FROM t")[0], count


class Ours(Duck):
    """The provider's job in this session, and its commit on a SQLite catalog."""

    name = "ours"

    def compact(self) -> None:
        from airflow_provider_ducklake.lake.catalog.lake import Lake
        from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
        from airflow_provider_ducklake.lake.planning.upkeep.compaction import MergeRule
        from airflow_provider_ducklake.lake.planning.writing.write import plan_write
        from airflow_provider_ducklake.lake.spark.job.request import (
            CompactionSource,
            JobRequest,
            job_directory,
        )
        from airflow_provider_ducklake.lake.spark.jobs.compact import compact
        from airflow_provider_ducklake.lake.writes.compaction import commit_compacted

        with Lake.connect(self.catalog.sqlalchemy_url) as lake:
            planned = lake.maintenance.plan_merge("t", MergeRule())
            job_id, staging_id, root = str(uuid.uuid4()), str(uuid.uuid4()), planned.table.root
            plan = plan_write(planned.table, job_directory(root, job_id))
            source = CompactionSource(planned, staging_id)
            compact(self.spark, JobRequest(job_id, source, (plan,), verb="merge_adjacent"))
            list(commit_compacted(lake, planned.table, job_directory(root, staging_id), CommitInfo()))


class SqlSystem(System):
    """One that is used by Spark SQL."""

    table: str

    def rows_in_files(self) -> str:
        """Return a query of the rows in as many tasks as files are wanted."""
        path = self.folder / f"lake-{self.files}" / "data" / "main" / "t"
        self.spark.read.parquet(str(path)).createOrReplaceTempView("base")
        return f"SELECT /*+ REPARTITION({self.files}) */ * FROM base"

    def state(self) -> tuple[tuple[Any, ...], int]:
        return tuple(self.spark.sql(f"SELECT {TOTALS} FROM {self.table}").collect()[0]), self.file_count()

    @abstractmethod
    def file_count(self) -> int:
        """Return how many files the table has."""


class Delta(SqlSystem):
    """Delta Lake."""

    name, table = "delta", "small"

    def prepare(self) -> None:
        self.spark.sql(f"CREATE TABLE {self.table} USING delta AS {self.rows_in_files()}")

    def reset(self) -> None:
        self.spark.sql(f"RESTORE TABLE {self.table} TO VERSION AS OF 0")

    def compact(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.table}")

    def file_count(self) -> int:
        return int(self.spark.sql(f"DESCRIBE DETAIL {self.table}").collect()[0]["numFiles"])


class Iceberg(SqlSystem):
    """Iceberg."""

    name, table = "iceberg", "ice.db.small"

    def prepare(self) -> None:
        self.spark.sql("CREATE DATABASE IF NOT EXISTS ice.db")
        self.spark.sql(
            f"CREATE TABLE {self.table} TBLPROPERTIES ('write.distribution-mode' = 'none') "
            f"AS {self.rows_in_files()}"
        )
        (self.first,) = self.spark.sql(f"SELECT snapshot_id FROM {self.table}.snapshots").collect()[0]

    def reset(self) -> None:
        self.spark.sql(f"CALL ice.system.rollback_to_snapshot('db.small', {self.first})")

    def compact(self) -> None:
        self.spark.sql("CALL ice.system.rewrite_data_files(table => 'db.small')")

    def file_count(self) -> int:
        return int(self.spark.sql(f"SELECT count(*) FROM {self.table}.files").collect()[0][0])


SYSTEMS: dict[str, type[System]] = {one.name: one for one in (Duck, Ours, Delta, Iceberg)}


class PeakMemory:
    """The most memory that the Python processes below this one had, and the JVM, while it was looked at."""

    def __init__(self) -> None:
        self.python = self.jvm = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.05):
            found = {"java": 0, "python": 0}
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    name = (path / "comm").read_text().strip()
                    pages = int((path / "statm").read_text().split()[1])
                except OSError:
                    continue
                if name.startswith(("java", "python")) and int(path.name) != os.getpid():
                    found["java" if name.startswith("java") else "python"] += pages * 4096
            self.python, self.jvm = max(self.python, found["python"]), max(self.jvm, found["java"])


def submit_seconds() -> float:
    """Return what spark-submit takes for a job that does nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().stop()\n")
        script.flush()
        started = time.perf_counter()
        command = ["spark-submit", "--master", "local[2]", "--conf", "spark.ui.enabled=false", script.name]
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - started


def compare(systems: list[System], rounds: int) -> None:
    """Compact each table in turn, round by round, and print medians of all but the first."""
    times: dict[str, list[tuple[float, float]]] = {one.name: [] for one in systems}
    counts: dict[str, int] = {}
    for number in range(rounds + 1):
        totals = {}
        for system in systems:
            found = timed(system.compact)
            if number:
                times[system.name].append(found)
            totals[system.name], counts[system.name] = system.state()
            system.reset()
        if len(set(totals.values())) != 1:
            raise AssertionError(f"Compaction made different tables: {totals}")
    walls = {name: statistics.median(wall for wall, _ in found) for name, found in times.items()}
    for name, found in times.items():
        cpu = statistics.median(cpu for _, cpu in found)
        ratio = f"  ours x{walls['ours'] / walls[name]:.2f} of it" if "ours" in walls else ""
        print(f"{name:9} {walls[name]:7.2f} s  {cpu:7.2f} cpu, {counts[name]} files{ratio}", flush=True)


def measure_memory(spark: SparkSession, folder: Path, sizes: list[int], rows: int) -> None:
    """Print how much memory ours takes at most, by the number of files."""
    for files in sizes:
        ours = Ours(spark, folder, files, rows)
        ours.prepare()
        with PeakMemory() as peak:
            wall, _ = timed(ours.compact)
        _, count = ours.state()
        megabytes = f"Python {peak.python >> 20} MiB, JVM {peak.jvm >> 20} MiB"
        print(f"ours, {files} files into {count}: {wall:.1f} s, at most {megabytes}", flush=True)


def with_folder(run: Callable[[Path], None]) -> None:
    """Run with a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="compaction-"))
    try:
        run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run the comparison in an environment of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--more-files", type=int, default=5000, help="ours once more, for its memory; 0: not")
    parser.add_argument("--rows", type=int, default=10_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--who", nargs="+", default=[*SYSTEMS], choices=[*SYSTEMS])
    arguments = parser.parse_args()
    if not sys.executable.startswith(str(spark_peers.FOLDER)):
        spark_peers.run(["python", *sys.argv])

    def run(folder: Path) -> None:
        print(f"spark-submit of a job that does nothing: {submit_seconds():.1f} s", flush=True)
        spark = start_spark(folder)
        systems = [SYSTEMS[name](spark, folder, arguments.files, arguments.rows) for name in arguments.who]
        for system in systems:
            system.prepare()
        compare(systems, arguments.rounds)
        if arguments.more_files:
            measure_memory(spark, folder, [arguments.files, arguments.more_files], arguments.rows)
        spark.stop()

    with_folder(run)


if __name__ == "__main__":
    main()
