"""Compare MERGE, DELETE and a partitioned write with Delta Lake and Iceberg on one Spark, and with DuckDB.

One session, interleaved rounds on the same rows; each round starts from the same table. The others run in the
mode in which they do not rewrite data files (deletion vectors, merge-on-read). Targets: MERGE of 1 % updates
and 0.1 % inserts, and DELETE of 1 %, ≤ 0.5 times the better of Delta Lake and Iceberg; a write of 100
partitions, one of them with half of the rows, no slower than the better. CPU is that of the JVM and of the
Python workers. Needs Maven Central. Run it on an idle machine.

    python benchmarks/merge.py                       # 10M rows in 20 files, 5 rounds
    python benchmarks/merge.py --rows 1000000 --rounds 2 --only merge
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts import spark_peers  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)
FILES = 20
COLUMNS = """
    r::BIGINT AS id, (r * 7919 % 1000003)::INT AS number, (r * 13 % 100003) / 7.0::DOUBLE AS ratio,
    'customer-' || (r * 2654435761 % 1000000007) AS many, 'region-' || (r % 23) AS few,
    TIMESTAMP '2024-01-01' + to_seconds(r % 1000000) AS moment,
    (r * 104729 % 100000000 / 10000)::DECIMAL(18,4) AS amount,
    CASE WHEN r % 2 = 0 THEN 0 ELSE (r % 199 + 1) // 2 END::INT AS part
"""
ON = "t.id = s.id"
DELETED = "id % 100 = 17"


def make_data(folder: Path, rows: int) -> None:
    """Write the table's rows and the source's: 1 % of the ids again with other values, 0.1 % new ones."""
    import duckdb

    per_file = rows // FILES
    (folder / "base").mkdir()
    for number in range(FILES):
        first = number * per_file
        query = f"SELECT {COLUMNS} FROM range({first}, {first + per_file}) x(r)"
        duckdb.sql(f"COPY ({query}) TO '{folder}/base/{number:02d}.parquet' (COMPRESSION zstd)")
    changed = f"SELECT r FROM range({rows}) x(r) WHERE hash(r) % 100 = 7"
    new = f"SELECT r FROM range({rows}, {rows + rows // 1000}) x(r)"
    source = (
        f"SELECT * REPLACE (number + 1 AS number) FROM (SELECT {COLUMNS} FROM ({changed} UNION ALL {new}))"
    )
    duckdb.sql(f"COPY ({source}) TO '{folder}/source.parquet' (COMPRESSION zstd)")


class System(ABC):
    """A table format on Spark."""

    name: str

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        spark.read.parquet(f"{folder}/source.parquet").createOrReplaceTempView("source")

    @abstractmethod
    def prepare(self) -> None:
        """Make the table with the rows of the base files."""

    @abstractmethod
    def reset(self) -> None:
        """Have the table as it was made."""

    @abstractmethod
    def merge(self) -> None:
        """Merge the source into the table."""

    @abstractmethod
    def delete(self) -> None:
        """Delete one row in a hundred."""

    @abstractmethod
    def write_partitioned(self) -> None:
        """Write all rows to a new table of 100 partitions, one of which has half of them."""

    @abstractmethod
    def totals(self) -> tuple[Any, ...]:
        """Return how many rows the table has, and sums that tell it from others."""


TOTALS = "count(*), sum(id), sum(number), cast(sum(amount) AS DECIMAL(38, 4))"


class SqlSystem(System):
    """One that is used by SQL."""

    table: str

    def base(self) -> str:
        return f"SELECT * FROM parquet.`{self.folder}/base`"

    def merge(self) -> None:
        self.spark.sql(
            f"MERGE INTO {self.table} t USING source s ON {ON} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self) -> None:
        self.spark.sql(f"DELETE FROM {self.table} WHERE {DELETED}")

    def totals(self) -> tuple[Any, ...]:
        return tuple(self.spark.sql(f"SELECT {TOTALS} FROM {self.table}").collect()[0])


class Delta(SqlSystem):
    """Delta Lake with deletion vectors."""

    name = "delta"

    def prepare(self) -> None:
        self.table = "changed"
        self.spark.sql(
            f"CREATE TABLE {self.table} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
            f"AS {self.base()}"
        )

    def reset(self) -> None:
        self.spark.sql(f"RESTORE TABLE {self.table} TO VERSION AS OF 0")

    def write_partitioned(self) -> None:
        name = f"p{time.monotonic_ns()}"
        self.spark.sql(f"CREATE TABLE {name} USING delta PARTITIONED BY (part) AS {self.base()}")


class Iceberg(SqlSystem):
    """Iceberg, merge-on-read."""

    name = "iceberg"
    table = "ice.db.t"

    def prepare(self) -> None:
        modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
        self.spark.sql("CREATE DATABASE IF NOT EXISTS ice.db")
        self.spark.sql(
            f"CREATE TABLE {self.table} TBLPROPERTIES ('format-version' = '2', {modes}) AS {self.base()}"
        )
        (self.first,) = self.spark.sql(f"SELECT snapshot_id FROM {self.table}.snapshots").collect()[0]

    def reset(self) -> None:
        self.spark.sql(f"CALL ice.system.rollback_to_snapshot('db.t', {self.first})")

    def write_partitioned(self) -> None:
        name = f"ice.db.p{time.monotonic_ns()}"
        self.spark.sql(f"CREATE TABLE {name} PARTITIONED BY (part) AS {self.base()}")


class Ours(System):
    """The provider's jobs in this session, and their commits on a SQLite catalog."""

    name = "ours"

    def prepare(self) -> None:
        from airflow_provider_ducklake.lake.catalog.lake import Lake

        self.lake = Lake.create(f"sqlite:///{self.folder}/ours.sqlite", f"{self.folder}/ours/")
        self.insert("t", {})
        self.lake.close()
        shutil.copy(f"{self.folder}/ours.sqlite", f"{self.folder}/first.sqlite")

    def reset(self) -> None:
        self.lake.close()
        shutil.copy(f"{self.folder}/first.sqlite", f"{self.folder}/ours.sqlite")

    def insert(self, table: str, partition_by: Sequence[str]) -> None:
        """Make a table of the base files as the insert operator does."""
        from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
        from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
        from airflow_provider_ducklake.lake.planning.writing.write import create_and_append, plan_create
        from airflow_provider_ducklake.lake.spark.job.request import job_directory
        from airflow_provider_ducklake.lake.spark.jobs.insert import write

        new = self.lake.reads.new_table(QualifiedName.of(table))
        plan = plan_create(new, job_directory(new.root, str(uuid.uuid4())), tuple(partition_by))
        result = write(self.spark.read.parquet(f"{self.folder}/base"), plan)
        self.lake.committer.commit(new.snapshot.id, create_and_append(new, result), CommitInfo())

    def change(self, verb: str, **clauses: Any) -> None:  # noqa: ANN401 - of RowChangeSource
        """Run a job of row changes and commit it, as the operators do."""
        from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
        from airflow_provider_ducklake.lake.planning.writing.write import plan_write
        from airflow_provider_ducklake.lake.spark.job.request import (
            JobRequest,
            RowChangeSource,
            job_directory,
        )
        from airflow_provider_ducklake.lake.spark.jobs.row_changes import change_rows

        scan, job_id = self.lake.scan("t", stats_of=["id"]), str(uuid.uuid4())
        directory = job_directory(scan.table.root, job_id)
        plans = tuple(plan_write(scan.table, f"{directory}{name}/") for name in ("updated", "inserted"))
        request = JobRequest(job_id, RowChangeSource(scan, **clauses), plans, verb=verb)
        done = change_rows(self.spark, request)
        self.lake.committer.commit_change_sets([self.lake.writes.row_changes(scan.table, done)], CommitInfo())

    def merge(self) -> None:
        from airflow_provider_ducklake.lake.spark.job.request import Action, Clause, Dataset, DatasetSource

        self.change(
            "merge",
            source=DatasetSource(Dataset("parquet", f"{self.folder}/source.parquet")),
            on=ON.replace("t.", "target.").replace("s.", "source."),
            matched=(Clause(Action.UPDATE, values=None),),
            not_matched=(Clause(Action.INSERT, values=None),),
        )

    def delete(self) -> None:
        from airflow_provider_ducklake.lake.spark.job.request import Action, Clause

        self.change("delete", not_matched_by_source=(Clause(Action.DELETE, DELETED),))

    def write_partitioned(self) -> None:
        self.insert(f"p{time.monotonic_ns()}", ["part"])

    def totals(self) -> tuple[Any, ...]:
        from airflow_provider_ducklake.lake.spark.read import read_table

        read_table(self.spark, self.lake.scan("t")).createOrReplaceTempView("ours")
        return tuple(self.spark.sql(f"SELECT {TOTALS} FROM ours").collect()[0])


class Duck(System):
    """DuckDB alone, with two threads, on a lake of its own."""

    name = "duckdb"

    def prepare(self) -> None:
        from tests.reference.catalogs import file_catalog

        (self.folder / "duck").mkdir()
        self.catalog = file_catalog("sqlite", self.folder / "duck")
        self.run(f"CREATE TABLE t AS FROM '{self.folder}/base/*.parquet' LIMIT 0")
        for number in range(FILES):
            self.run(f"INSERT INTO t FROM '{self.folder}/base/{number:02d}.parquet'")
        shutil.copy(self.catalog.location, self.folder / "first_duck.sqlite")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        from tests.reference.duckdb_lake import open_lake

        with open_lake(self.catalog, data_inlining_row_limit=0) as lake:
            lake.raw.execute("SET threads = 2")
            return lake.sql(sql)

    def reset(self) -> None:
        shutil.copy(self.folder / "first_duck.sqlite", self.catalog.location)

    def merge(self) -> None:
        self.run(
            f"MERGE INTO t USING '{self.folder}/source.parquet' s ON {ON} "
            "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )

    def delete(self) -> None:
        self.run(f"DELETE FROM t WHERE {DELETED}")

    def write_partitioned(self) -> None:
        name = f"p{time.monotonic_ns()}"
        self.run(
            f"CREATE TABLE {name} AS FROM t LIMIT 0; ALTER TABLE {name} SET PARTITIONED BY (part); "
            f"INSERT INTO {name} FROM '{self.folder}/base/*.parquet'"
        )

    def totals(self) -> tuple[Any, ...]:
        return self.run(f"SELECT {TOTALS} FROM t")[0]


SYSTEMS: dict[str, type[System]] = {one.name: one for one in (Ours, Delta, Iceberg, Duck)}
WORK = ("merge", "delete", "write_partitioned")


def start_spark(folder: Path) -> SparkSession:
    """Start a session that knows both formats and ours."""
    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.lake.spark.sessions.settings import prepare

    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "6g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        **spark_peers.jars(spark_peers.DELTA, spark_peers.ICEBERG),
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"{folder}/iceberg",
    }
    builder = SparkSession.builder.appName("merge")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    prepare(spark)
    return spark


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, of those that ended as well."""
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting += parents.get(process, [])
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / tick
    return total


def timed(run: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = cpu_seconds(), time.perf_counter()
    run()
    return time.perf_counter() - wall, cpu_seconds() - cpu


def compare(systems: list[System], work: str, rounds: int) -> None:
    """Do a piece of work on each system in turn, round by round, and print medians of all but the first."""
    times: dict[str, list[tuple[float, float]]] = {one.name: [] for one in systems}
    for number in range(rounds + 1):
        totals = {}
        for system in systems:
            found = timed(getattr(system, work))
            if number:
                times[system.name].append(found)
            totals[system.name] = system.totals()
            if work != "write_partitioned":
                system.reset()
        if len(set(totals.values())) != 1:
            raise AssertionError(f"{work} made different tables: {totals}")
    walls = {name: statistics.median(wall for wall, _ in found) for name, found in times.items()}
    cpus = {name: statistics.median(cpu for _, cpu in found) for name, found in times.items()}
    best = min((walls[name] for name in ("delta", "iceberg") if name in walls), default=None)
    for name in times:
        ratio = "" if best is None else f"  x{walls[name] / best:.2f} of the better of Delta Lake and Iceberg"
        print(f"{work:18} {name:9} {walls[name]:7.2f} s  {cpus[name]:7.2f} cpu{ratio}", flush=True)


def main() -> None:
    """Run the comparison in an environment of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--who", nargs="+", default=[*SYSTEMS], choices=[*SYSTEMS])
    parser.add_argument("--only", nargs="+", default=[*WORK], choices=[*WORK])
    arguments = parser.parse_args()
    if not sys.executable.startswith(str(spark_peers.FOLDER)):
        spark_peers.run(["python", *sys.argv])
    folder = Path(tempfile.mkdtemp(prefix="merge-"))
    try:
        make_data(folder, arguments.rows)
        spark = start_spark(folder)
        systems = [SYSTEMS[name](spark, folder) for name in arguments.who]
        for system in systems:
            system.prepare()
        for work in arguments.only:
            compare(systems, work, arguments.rounds)
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
