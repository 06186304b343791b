"""Measure what each public call costs on lakes that are large in one direction, and how the cost grows.

The lakes are filled by SQL (tests/scale); but for two their data files do not exist. Each call runs in a
process of its own, up to three times: the statements are of the first run, so is the peak of the process's
resident memory above what it was before. The time is CPU time, of the process and of the server together, of
the run that took least: it is the time on an idle machine but for waits, as for a disk at each commit. A call
that takes longer than `--limit` on the clock is given up, and left out at larger sizes. Results are kept as
JSON, by catalog and direction, so that the pieces of a long run add up.

    python benchmarks/scale.py                                              # 0.1, 1 and 10 percent: minutes
    python benchmarks/scale.py --catalog sqlite --directions files --percent 1 10 100 --write docs/scale.md
    python benchmarks/scale.py --catalog postgres --directions files --percent 100 --indexes
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import psycopg  # noqa: E402
from commit import new_catalog  # noqa: E402
from scaling import page  # noqa: E402
from scaling.measure import Figures, in_process, measure, warm_up  # noqa: E402

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from tests.reference.postgres import PostgresServer, libpq  # noqa: E402
from tests.scale.calls import CALLS  # noqa: E402
from tests.scale.fill import analyze  # noqa: E402
from tests.scale.models import DIRECTIONS, Model, make  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reference.catalogs import CatalogDatabase

    Keep = Callable[[int, str, dict[str, Any]], None]  # of a size, and the name of a call

RESULTS = HERE / "scaling" / "results.json"
_MAKING = 7200.0  # seconds


def prepare(model: Model, *, indexes: bool) -> None:
    begin = time.perf_counter()

    def work() -> str:
        make(model)
        if indexes:
            with Lake.connect(model.catalog.sqlalchemy_url) as lake:
                lake.maintenance.create_indexes()
            analyze(model.catalog)
        return "made"

    assert in_process(work, _MAKING) == "made", "the model was not made"
    print(f"  made in {time.perf_counter() - begin:.0f} s", flush=True)


def end_sessions(catalog: CatalogDatabase) -> None:
    """End what a call that was given up still asks a server."""
    if catalog.kind == "postgres":
        with psycopg.connect(libpq(int(catalog.server["port"]), "postgres"), autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                (catalog.database,),
            )


def run_size(model: Model, given_up: set[str], arguments: argparse.Namespace, keep: Keep) -> None:
    prepare(model, indexes=arguments.indexes)
    for call in CALLS:
        if arguments.calls and not any(word in call.name for word in arguments.calls):
            continue
        figures = Figures(error=f"> {arguments.limit:.0f} s")
        if call.name not in given_up:
            figures = measure(model, call, arguments.limit)
        if figures.error is not None:
            end_sessions(model.catalog)
            given_up.add(call.name)
        keep(model.size, call.name, figures.as_json())
        print(f"  {model.size:9,} {call.name:40} {figures.as_json()}", flush=True)


def run_direction(
    name: str, server: PostgresServer | None, arguments: argparse.Namespace, keep: Keep
) -> None:
    direction = DIRECTIONS[name]
    given_up: set[str] = set()
    for percent in arguments.percent:
        size = max(int(direction.full_size * percent / 100), direction.smallest)
        with new_catalog(server) as catalog:
            print(f"{catalog.kind} {name} {size:,}", flush=True)
            run_size(Model(catalog, direction, size), given_up, arguments, keep)


def run_catalog(kind: str, arguments: argparse.Namespace) -> None:
    server = PostgresServer(durable=True) if kind == "postgres" else None
    catalog = kind + ("+indexes" if arguments.indexes else "")
    try:
        for name in arguments.directions:

            def keep(size: int, call: str, figures: dict[str, Any], name: str = name) -> None:
                add_result(arguments.results, (catalog, name, str(size), call), figures)
                if arguments.write:
                    page.write(arguments.write, read_results(arguments.results))

            run_direction(name, server, arguments, keep)
    finally:
        if server is not None:
            server.stop()


def read_results(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def add_result(path: Path, place: tuple[str, ...], figures: dict[str, Any]) -> None:
    results = read_results(path)
    *above, call = place
    inner = results
    for name in above:
        inner = inner.setdefault(name, {})
    inner[call] = figures
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", choices=["postgres", "sqlite", "all"], default="all")
    parser.add_argument("--directions", nargs="*", choices=list(DIRECTIONS), default=list(DIRECTIONS))
    parser.add_argument("--percent", type=float, nargs="*", default=[0.1, 1, 10], help="of the full size")
    parser.add_argument("--calls", nargs="*", help="words; only calls with one of them in their name")
    parser.add_argument("--indexes", action="store_true", help="after lake.maintenance.create_indexes()")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a call")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", type=Path, help="the page whose tables are to be replaced")
    arguments = parser.parse_args()
    if arguments.write and not arguments.percent:
        page.write(arguments.write, read_results(arguments.results))
        return 0
    warm_up()
    for kind in ("sqlite", "postgres") if arguments.catalog == "all" else (arguments.catalog,):
        run_catalog(kind, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
