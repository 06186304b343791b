"""Compare one-row appends, Parquet file included, by us and by the reference: 1, 4 and 16 processes at once.

Every writer appends to one table for some seconds; inlining is off on both sides, PostgreSQL is durable. Run
it on an idle machine. Targets: appends per second ≥ 2.5 times the reference's with 1 and 16 writers, the
longest append with 16 writers ≤ 1/20 of the reference's, no error.

    python benchmarks/commit.py                          # PostgreSQL and SQLite, 10 s each
    python benchmarks/commit.py --catalog postgres --writers 1 --seconds 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from airflow_provider_ducklake.catalog.lake import Lake  # noqa: E402
from tests.reference.catalogs import CatalogDatabase, data_directory, file_catalog  # noqa: E402
from tests.reference.duckdb_lake import open_lake  # noqa: E402
from tests.reference.postgres import PostgresServer, fresh_database  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Figures:
    """Appends per second of all writers together; milliseconds; errors."""

    per_second: float
    p50: float
    p95: float
    worst_p95: float
    longest: float
    errors: int

    def __str__(self) -> str:
        return (
            f"{self.per_second:7.1f}/s  p50 {self.p50:7.1f}  p95 {self.p95:7.1f}  worst writer's p95 "
            f"{self.worst_p95:8.1f}  longest {self.longest:8.1f} ms  errors {self.errors}"
        )


def append_as_ours(url: str) -> Iterator[Callable[[], Any]]:
    rows = pa.table({"i": pa.array([1], pa.int64()), "s": ["x"]})
    with Lake.connect(url) as lake:
        yield lambda: lake.append_arrow("t", rows)


def append_as_reference(attach: str) -> Iterator[Callable[[], Any]]:
    options = {"busy_timeout": 20_000} if ":sqlite:" in attach else {}
    with open_lake(attach, **options) as lake:
        lake.sql("SET ducklake_max_retry_count = 100")
        yield lambda: lake.sql("INSERT INTO t VALUES (1, 'x')")


WRITERS = {"ours": append_as_ours, "reference": append_as_reference}


def write(who: str, target: str, seconds: float) -> dict[str, Any]:
    """Be one writer: warm up by one append, wait for the start, append until the time is over."""
    times: list[float] = []
    errors: list[str] = []
    for append in WRITERS[who](target):
        _warm_up(append)
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            begin = time.perf_counter()
            try:
                append()
            except Exception as error:  # noqa: BLE001 - counted
                errors.append(str(error)[:200])
            else:
                times.append(time.perf_counter() - begin)
        elapsed = time.perf_counter() - started
    return {"times": times, "elapsed": elapsed, "errors": errors}


def _warm_up(append: Callable[[], Any]) -> None:
    """Append once; the others do so at the same time, and SQLite may give up on one of them."""
    for _ in range(50):
        try:
            append()
        except Exception:  # noqa: BLE001 - whatever it was, the next time may do
            time.sleep(0.1)
        else:
            return


def race(who: str, target: str, writers: int, seconds: float) -> Figures:
    command = [sys.executable, __file__, "--be", who, "--target", target, "--seconds", str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [subprocess.Popen(command, text=True, cwd=ROOT, **pipes) for _ in range(writers)]
    for one in running:
        assert one.stdout.readline() == "ready\n"
    for one in running:
        one.stdin.write("\n")
        one.stdin.flush()
    results = [json.loads(one.communicate()[0]) for one in running]
    everything = sorted(1000 * one for result in results for one in result["times"])
    for error in {error for result in results for error in result["errors"]}:
        print("  error:", error)
    return Figures(
        per_second=len(everything) / max(result["elapsed"] for result in results),
        p50=statistics.median(everything),
        p95=percentile(everything, 0.95),
        worst_p95=max(percentile(sorted(1000 * t for t in one["times"] or [1e9]), 0.95) for one in results),
        longest=everything[-1],
        errors=sum(len(result["errors"]) for result in results),
    )


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def new_catalog(kind: str, server: PostgresServer | None) -> Iterator[CatalogDatabase]:
    with tempfile.TemporaryDirectory() as folder:
        if server is None:
            yield file_catalog(kind, Path(folder))
        else:
            with fresh_database(server.port) as database:
                yield CatalogDatabase("postgres", database, data_directory(Path(folder)))


def measure(kind: str, writers: int, seconds: float, server: PostgresServer | None) -> None:
    found: dict[str, Figures] = {}
    for who in WRITERS:
        with new_catalog(kind, server) as catalog:
            with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
                lake.set_option("data_inlining_row_limit", 0)
                with lake.transaction() as tx:
                    tx.create_table("t", {"i": "int64", "s": "varchar"})
            target = catalog.sqlalchemy_url if who == "ours" else catalog.attach_string
            found[who] = race(who, target, writers, seconds)
            print(f"{kind:9} {writers:2} writers  {who:9} {found[who]}", flush=True)
    ours, theirs = found["ours"], found["reference"]
    print(
        f"{kind:9} {writers:2} writers  ratio {ours.per_second / theirs.per_second:.2f}; longest 1/"
        f"{theirs.longest / ours.longest:.1f} of the reference's",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", choices=["postgres", "sqlite", "all"], default="all")
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--be", choices=list(WRITERS), help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        print(json.dumps(write(arguments.be, arguments.target, arguments.seconds)))
        return 0
    for kind in ("postgres", "sqlite") if arguments.catalog == "all" else (arguments.catalog,):
        server = PostgresServer(durable=True) if kind == "postgres" else None
        try:
            for writers in arguments.writers:
                measure(kind, writers, arguments.seconds, server)
        finally:
            if server is not None:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
