"""Compare one-row appends, Parquet file included, by us, by the reference and by two other projects.

1, 4 and 16 processes append to one table for some seconds; inlining is off everywhere, PostgreSQL is durable,
and every client retries as often as it does by itself. With 16 writers on SQLite the reference hardly starts.
Run it on an idle machine. Targets: appends per second ≥ 2.5 times the reference's with 1 and 16 writers, the
longest append with 16 writers ≤ 1/20 of the reference's, no error of ours.

    python benchmarks/commit.py                          # PostgreSQL and SQLite, 10 s each
    python benchmarks/commit.py --catalog postgres --writers 1 --seconds 5 --who ours reference
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

from append_loop import run  # noqa: E402

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from tests.reference.catalogs import CatalogDatabase, data_directory, file_catalog  # noqa: E402
from tests.reference.duckdb_lake import open_lake  # noqa: E402
from tests.reference.postgres import PostgresServer, fresh_database  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PEERS = ROOT / "build" / "peers"


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


def append_as_ours(url: str) -> Callable[[], Any]:
    rows = pa.table({"i": pa.array([1], pa.int64()), "s": ["x"]})
    lake = Lake.connect(url)
    return lambda: lake.append_arrow("t", rows)


def append_as_reference(attach: str) -> Callable[[], Any]:
    options = {"busy_timeout": 20_000} if ":sqlite:" in attach else {}
    lake = open_lake(attach, **options)
    return lambda: lake.sql("INSERT INTO t VALUES (1, 'x')")


HOME_WRITERS = {"ours": append_as_ours, "reference": append_as_reference}
EVERYBODY = (*HOME_WRITERS, "pyducklake", "ducklake-dataframe")


def command_of(who: str, target: str, seconds: float) -> list[str]:
    if who in HOME_WRITERS:
        return [sys.executable, __file__, "--be", who, "--target", target, "--seconds", str(seconds)]
    return [str(PEERS / "bin" / "python"), str(HERE / "peer_writer.py"), who, target, str(seconds)]


def prepare_peers() -> None:
    """Make the environment of the other projects, once."""
    if (PEERS / "done").exists():
        return
    python = str(PEERS / "bin" / "python")
    subprocess.run(["uv", "venv", "-q", "--clear", "-p", sys.executable, PEERS], check=True)
    (PEERS / "home").mkdir()
    install = ["uv", "pip", "install", "-q", "-p", python, "-r", HERE / "peers.txt"]
    # The extensions' packages lag behind DuckDB, of which pyducklake names the newest.
    subprocess.run([*install, "--override", HERE / "peers-overrides.txt"], check=True)
    subprocess.run([python, HERE / "peer_writer.py", "install"], check=True, env=_peer_environment())
    (PEERS / "done").touch()


def _peer_environment() -> dict[str, str]:
    return {**os.environ, "HOME": str(PEERS / "home")}  # where DuckDB looks for extensions


def race(who: str, target: str, writers: int, seconds: float) -> Figures:
    environment = None if who in HOME_WRITERS else _peer_environment()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [
        subprocess.Popen(command_of(who, target, seconds), text=True, cwd=ROOT, env=environment, **pipes)
        for _ in range(writers)
    ]
    for one in running:
        assert one.stdout.readline() == "ready\n"
    for one in running:
        one.stdin.write("\n")
        one.stdin.flush()
    results = [json.loads(one.communicate()[0]) for one in running]
    everything = sorted(1000 * one for result in results for one in result["times"])
    by_kind = {error.split(":")[0]: error for result in results for error in result["errors"]}
    for error in by_kind.values():
        print("  error:", " ".join(error.split()))
    return Figures(
        per_second=len(everything) / max(result["elapsed"] for result in results),
        p50=statistics.median(everything),
        p95=percentile(everything, 0.95),
        worst_p95=max(
            percentile(sorted(1000 * t for t in one["times"] or [math.inf]), 0.95) for one in results
        ),
        longest=everything[-1],
        errors=sum(len(result["errors"]) for result in results),
    )


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def new_catalog(server: PostgresServer | None) -> Iterator[CatalogDatabase]:
    with tempfile.TemporaryDirectory() as folder:
        if server is None:
            yield file_catalog("sqlite", Path(folder))
        else:
            with fresh_database(server.port) as database:
                yield CatalogDatabase("postgres", database, data_directory(Path(folder)))


def measure(kind: str, who: str, writers: int, seconds: float, server: PostgresServer | None) -> Figures:
    with new_catalog(server) as catalog:
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            lake.set_option("data_inlining_row_limit", 0)
            with lake.transaction() as tx:
                tx.create_table("t", {"i": "int64", "s": "varchar"})
        target = catalog.sqlalchemy_url if who == "ours" else catalog.attach_string
        found = race(who, target, writers, seconds)
    print(f"{kind:9} {writers:2} writers  {who:18} {found}", flush=True)
    return found


def compare(kind: str, arguments: argparse.Namespace, server: PostgresServer | None) -> None:
    for writers in arguments.writers:
        found = {who: measure(kind, who, writers, arguments.seconds, server) for who in arguments.who}
        if "ours" in found and "reference" in found:
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
    parser.add_argument("--who", nargs="*", choices=EVERYBODY, default=EVERYBODY)
    parser.add_argument("--be", choices=list(HOME_WRITERS), help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        run(HOME_WRITERS[arguments.be](arguments.target), arguments.seconds)
        return 0
    if set(arguments.who) - set(HOME_WRITERS):
        prepare_peers()
    for kind in ("postgres", "sqlite") if arguments.catalog == "all" else (arguments.catalog,):
        server = PostgresServer(durable=True) if kind == "postgres" else None
        try:
            compare(kind, arguments, server)
        finally:
            if server is not None:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
