"""Compare an insert job's write with plain ``df.write.parquet``: time, CPU, peak memory, size of files.

Both write the same rows with the same codec and page version, from a Parquet file, in one session of
two cores; rounds are interleaved and their medians printed. CPU is that of the JVM and its Python workers.
Peak memory is measured apart, in a fresh session for each writer, as an old JVM gives none back.

    python benchmarks/shapes.py                                     # all shapes, 5 rounds
    python benchmarks/shapes.py --shapes narrow wide --rounds 3 --scale 0.1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.format.partitioning import parse_partition_by
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.sorting import SortField
from airflow_provider_ducklake.lake.planning.writing.write import RowOrder, WritePlan
from airflow_provider_ducklake.lake.spark.job.request import job_directory
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
from airflow_provider_ducklake.lake.spark.types.spark_types import fields_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TICK = os.sysconf("SC_CLK_TCK")
_SPREAD = "pmod(xxhash64(id), 1000003)"


@dataclass(frozen=True)
class Shape:
    """Rows of a table: how many, of which columns, by which keys."""

    rows: int
    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    sorted_by_first: bool = False
    tasks: int = 4
    conf: tuple[tuple[str, str], ...] = ()


def _text(pieces: int) -> str:
    """Return a column of strings of 64 bytes a piece, which compress to half."""
    hashes = f"transform(sequence(1, {pieces}), x -> sha2(concat(id, '-', x), 256))"
    return f"concat_ws('', {hashes}) as text"


_MIXED = (
    f"cast({_SPREAD} as int) as number",
    "id",
    "pmod(xxhash64(id, 1), 1000033) / 7.0D as ratio",
    "concat('customer-', pmod(xxhash64(id, 2), 1000000007)) as many",
    "concat('region-', id % 23) as few",
    "timestamp_seconds(1700000000 + pmod(xxhash64(id, 3), 31536000)) as at",
    "cast(pmod(xxhash64(id, 4), 100000000) / 10000 as decimal(18,4)) as amount",
)
_WIDE = tuple(
    (
        "cast(pmod(xxhash64(id, {0}), 1000003) as int) as i{0}",
        "pmod(xxhash64(id, {0}), 1000033) / 7.0D as d{0}",
        "concat('v', pmod(xxhash64(id, {0}), 9973)) as s{0}",
    )[place % 3].format(place)
    for place in range(1, 201)
)
_NESTED = (
    "id",
    "named_struct('a', cast(id % 1000 as int), 'b', concat('s', id % 5000)) as st",
    "transform(sequence(1, cast(id % 5 as int) + 1), x -> x * id) as items",
    "map(concat('k', id % 7), id, 'all', id * 2) as pairs",
)
SHAPES = {
    "narrow": Shape(20_000_000, ("id", f"cast({_SPREAD} as int) as number")),
    "mixed": Shape(5_000_000, _MIXED),
    "wide": Shape(150_000, _WIDE),
    "long strings": Shape(300_000, ("id", _text(32))),
    "1 MB values": Shape(200, ("id", _text(16_384))),
    "20 MB values": Shape(16, ("id", _text(327_680))),
    "partitioned": Shape(4_000_000, _MIXED, partition_by=("few",)),
    "sorted": Shape(4_000_000, _MIXED, sorted_by_first=True),
    "nested": Shape(2_000_000, _NESTED),
    "struct": Shape(4_000_000, _NESTED[:2]),
}


def start_spark(heap: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.driver.memory": heap,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    prepare(spark)
    return spark


def source(spark: SparkSession, shape: Shape, folder: Path, scale: float) -> DataFrame:
    """Return the rows as a DataFrame over a Parquet file, made on the first call."""
    path = folder / "source"
    if not path.exists():
        rows = max(shape.tasks, int(shape.rows * scale))
        df = spark.range(0, rows, 1, shape.tasks).selectExpr(*shape.columns)
        df.write.option("parquet.block.size", str(32 * 2**20)).parquet(str(path))
    return spark.read.parquet(str(path))


def plain(df: DataFrame, shape: Shape, folder: Path) -> None:
    """Write as anyone would, with our codec and page version, sorted or partitioned as ours is."""
    if shape.partition_by:
        df = df.repartition(*shape.partition_by)
    if shape.sorted_by_first:
        df = df.sortWithinPartitions(df.columns[0])
    writer = df.write.options(**{"compression": "zstd", "parquet.writer.version": "v2"})
    if shape.partition_by:
        writer = writer.partitionBy(*shape.partition_by)
    writer.parquet(str(folder / "plain"))


def job(df: DataFrame, shape: Shape, folder: Path) -> None:
    """Write as the insert job does."""
    schema = new_columns(fields_of_spark(df.schema))
    fields = parse_partition_by(shape.partition_by, schema, "main.t")
    keys = (SortField(df.columns[0]),) if shape.sorted_by_first else ()
    directory = job_directory(f"{folder}/", str(uuid.uuid4()))
    plan = WritePlan("main.t", directory, schema, fields, row_order=RowOrder(keys))
    write(df, plan)


WRITERS = {"plain": plain, "job": job}


def family() -> list[Path]:
    """Return the folders in /proc of this process and all below it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return [Path("/proc", str(one)) for one in found]


def cpu_seconds() -> float:
    """Return what the family has used; that of workers that ended is with their parents."""
    total = 0
    for folder in family():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICK


def resident_bytes() -> int:
    total = 0
    for folder in family():
        try:
            total += int((folder / "statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def measured(writer: str, df: DataFrame, shape: Shape, root: Path) -> tuple[float, float, int]:
    """Return seconds, CPU seconds and bytes of files of one write."""
    folder = Path(tempfile.mkdtemp(dir=root))
    os.sync()
    used, started = cpu_seconds(), time.perf_counter()
    WRITERS[writer](df, shape, folder)
    elapsed, used = time.perf_counter() - started, cpu_seconds() - used
    size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
    shutil.rmtree(folder)
    return elapsed, used, size


def peak_memory(writer: str, name: str, root: Path, scale: float) -> int | None:
    """Return the most bytes that a fresh session and its workers had at once; None where it failed."""
    command = [sys.executable, __file__, "--peak", writer, name, str(root), "--scale", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


def print_peak(writer: str, name: str, root: Path, scale: float) -> None:
    spark = start_spark("1500m")
    shape, folder = SHAPES[name], Path(tempfile.mkdtemp(dir=root))
    df = source(spark, shape, root, scale)
    base, peak, ended = resident_bytes(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    WRITERS[writer](df, shape, folder)
    ended.set()
    watcher.join()
    spark.stop()
    print(max(peak[0], base))


def compare(spark: SparkSession, name: str, rounds: int, scale: float, *, memory: bool) -> None:
    shape = SHAPES[name]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        df = source(spark, shape, root, scale)
        found: dict[str, list[tuple[float, float, int]]] = {writer: [] for writer in WRITERS}
        for number in range(rounds + 1):
            for writer in list(found) if number % 2 else list(found)[::-1]:
                try:
                    one = measured(writer, df, shape, root)
                except Exception as error:  # noqa: BLE001 - a shape that a writer cannot write is a finding
                    print(f"{name}: {writer} cannot: {str(error).splitlines()[0][:160]}", flush=True)
                    found.pop(writer)
                    continue
                if number:  # the first one warms up
                    found[writer].append(one)
        peaks = {writer: peak_memory(writer, name, root, scale) if memory else None for writer in found}
    middle = {
        writer: [statistics.median(values) for values in zip(*of_one, strict=True)]
        for writer, of_one in found.items()
        if of_one
    }
    for writer, (seconds, used, size) in middle.items():
        base = middle["plain"]
        peak = peaks[writer]
        shown = "-" if peak is None else f"{peak / 2**20:.0f} MiB"
        print(
            f"{name:<14}{writer:<8}{seconds:6.2f} s {seconds / base[0]:5.2f} x"
            f"   CPU {used:6.2f} s {used / base[1]:5.2f} x"
            f"   files {size / 2**20:8.1f} MiB {size / base[2]:5.2f} x   peak {shown}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        writer, name, root = given.peak
        print_peak(writer, name, Path(root), given.scale)
        return
    spark = start_spark("4g")
    for name in given.shapes:
        compare(spark, name, given.rounds, given.scale, memory=not given.no_memory)
    spark.stop()


if __name__ == "__main__":
    main()
